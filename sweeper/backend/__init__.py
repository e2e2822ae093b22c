"""Where trials run: one protocol, implemented by the local pool and on a Ray cluster."""
