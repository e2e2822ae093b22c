"""The privacy cost of training: events (what was done), accounting (its price), calibration (the inverse)."""
