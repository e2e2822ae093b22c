"""Certified radii from rigorous norms."""
