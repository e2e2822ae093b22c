"""Public features: what a frozen public encoder makes of each row, once, as the rows that are trained on."""
