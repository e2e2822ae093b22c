"""The driver: the process that runs a sweep, writes its records, and resumes it."""
