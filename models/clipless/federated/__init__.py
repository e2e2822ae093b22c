"""Counts over parties that share no row: a trusted curator, secure aggregation, and function secret sharing."""
