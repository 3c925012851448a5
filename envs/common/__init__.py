"""What the built-in games share."""
