"""New rows without labels, encoded as the training rows were."""
