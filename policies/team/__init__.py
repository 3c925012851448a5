"""Critics that see a whole team."""
