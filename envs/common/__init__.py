"""Shared by the built-in games: drawing, lanes, options."""
