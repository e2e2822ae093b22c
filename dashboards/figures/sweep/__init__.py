"""Figures of one sweep."""
