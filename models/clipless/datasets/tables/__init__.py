"""Tables: declared columns, and their rows as tensors."""
