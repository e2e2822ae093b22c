"""Plans of trainings and of their privacy, fixed before the first draw."""
