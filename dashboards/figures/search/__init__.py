"""How the search of one sweep went: its trials, stages and workers."""
