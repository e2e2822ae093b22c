"""Whole curves of private rows as paid releases: distribution functions, ROC, calibration, certified accuracy."""
