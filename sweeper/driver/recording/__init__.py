"""What the driver writes of trials as they go: their records, what they spend, and the scores of the final front."""
