"""The search space, and the samplers that propose configurations. The only door to Optuna."""

import warnings

# tqdm, which comes with Optuna, misses widgets in a notebook; nothing here draws a bar with it.
warnings.filterwarnings("ignore", message="IProgress not found")
