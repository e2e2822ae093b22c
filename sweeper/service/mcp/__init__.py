"""The door for automatic clients: a Model Context Protocol server whose tools call the service, as any client of it."""
