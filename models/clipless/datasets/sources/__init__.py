"""Data sets by name: embedded ones, image sets, known tables, and the downloads behind them."""
