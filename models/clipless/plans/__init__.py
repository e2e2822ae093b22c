"""Plans: what a training will do and spend, fixed before the first draw."""
