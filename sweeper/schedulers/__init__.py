"""Schedulers: which trials go on after each rung."""
