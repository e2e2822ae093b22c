"""The training loop, its optimisers, and per-example gradients for DP-SGD."""
