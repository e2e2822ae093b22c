"""Worker processes: what driver and worker tell each other, stacks of trials, and the processes of this machine."""
