"""The command line. Each module holds one group of commands."""
