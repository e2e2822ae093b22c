"""The folder of a sweep on disk: append-only JSON lines, the driver's lock, requests to a running driver."""
