"""The service: sweeps over HTTP, for a team.

`create_app` makes it from `ServiceSettings`; `serving` listens with it. What it shows it reads from the folders in
which sweeps live, through `Catalog`; sweeps run in processes of their own, which it starts, watches and, when they
died, starts again. Nothing here trains, and nothing that a request names is imported.
"""
