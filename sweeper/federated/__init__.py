"""Evaluation of a picked model over parties that share no row: servers and parties as processes, over HTTP."""
