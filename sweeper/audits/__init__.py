"""Audits of a sweep: what its trials compute, draw and release, attacked and held against what is claimed of them."""
