"""Figures of several sweeps."""
