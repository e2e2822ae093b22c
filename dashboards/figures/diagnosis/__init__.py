"""Figures of a diagnosis."""
