"""One trial: building what a configuration names, training it, scoring it."""
