"""Private selection: candidates behind a closed door, and what leaves through it at the end."""
