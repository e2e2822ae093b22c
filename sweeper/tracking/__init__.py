"""MLflow: writing trials as runs, and reading them back."""
