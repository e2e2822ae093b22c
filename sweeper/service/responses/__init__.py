"""What the service answers with: views of sweeps, rendered once and shared; streams and files."""
