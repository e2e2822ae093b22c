"""Figures of one sweep: the curves of private test rows that its points released."""
