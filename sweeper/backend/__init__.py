"""Where trials run: what a worker trains, what the driver is told, and the processes behind: our own, or Ray's."""
