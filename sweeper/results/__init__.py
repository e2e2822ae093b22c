"""What is made of recorded trials: fronts, picked models, comparisons, importances, exports."""
