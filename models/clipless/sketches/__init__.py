"""A private sketch of labelled rows: one noisy release, and synthetic rows that are drawn from it."""
