"""Secure aggregation: a server learns the sum of the parties' words, and of no party's words anything else."""
