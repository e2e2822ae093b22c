"""What training costs in privacy: events (what was done), accounting (its price), calibration (the inverse)."""
