"""What a sweep will do, and what it costs, decided before anything is trained; no private row decides any of it."""
