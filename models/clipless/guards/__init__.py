"""The guard, which holds every row's contribution to a sum within its sensitivity, and the sums themselves."""
