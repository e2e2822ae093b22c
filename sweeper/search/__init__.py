"""The search space, and the samplers that propose configurations. The only door to Optuna."""
