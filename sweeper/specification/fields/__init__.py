"""What the fields of a spec are made of: ranges, choices, and the messages for bad values."""
