"""Fronts and figures as files."""
