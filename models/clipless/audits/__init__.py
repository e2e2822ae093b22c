"""Attacks on this library's own guarantees: the attained lower bound of an epsilon beside the claim.

An audit can contradict a claim; it never proves one.
"""
