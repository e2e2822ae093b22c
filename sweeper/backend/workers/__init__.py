"""Workers: their messages with the driver, who assigns trials to them, stacks of trials, and the local pool."""
