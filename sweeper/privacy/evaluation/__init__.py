"""What scores and curves of private rows cost, and their noise."""
