"""Trials on Ray: its cluster and nodes, Ray Tune, stacks, trainings that Ray sees nothing of, and Ray's jobs."""
