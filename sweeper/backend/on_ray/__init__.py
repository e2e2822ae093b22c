"""Trials on a Ray cluster: joining it, its nodes, Ray Tune, a pool of actors for stacks, and Ray's jobs."""
