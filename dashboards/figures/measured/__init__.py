"""Figures of what benchmarks have measured, for the guide; no page of the program shows them."""
