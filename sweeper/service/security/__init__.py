"""Who may ask for what: tokens, limits, and what a spec from the network may name."""
