"""The account of a data set: one budget for everything that ever reads its private rows."""
