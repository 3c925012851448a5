"""What is refused before anything starts: every policy is tried on every seat that it may get."""
