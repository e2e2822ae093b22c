"""A user's own module, made of known operations, as a network of layers with bound rules."""
