"""Figures of one sweep over its hyperparameters: which of them went along with what, trial by trial."""
