"""What is made of one picked model: predictions, its entry in the registry, a diagnosis."""
