"""Pareto dominance, hypervolumes, attainment surfaces and knees."""
