"""Drivers of submitted sweeps: their queue, their processes, their states."""
