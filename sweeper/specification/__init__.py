"""The spec: what a sweep is asked to do, read from YAML and checked."""
