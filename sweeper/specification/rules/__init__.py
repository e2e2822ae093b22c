"""Rules over several sections of a spec. Each module yields the rules of its kind that a spec breaks."""
