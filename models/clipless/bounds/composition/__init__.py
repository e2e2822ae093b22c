"""Bounds of layers one after the other: composed for a block, propagated through a network."""
