"""The stack of ``docker-compose.yml`` as processes of one machine, where there is no Docker.

Commands, environment, health checks, dependencies and restart policies are read from the compose file itself; only
addresses and folders are this machine's. Linux only: every service gets a loopback address of its own.
"""
