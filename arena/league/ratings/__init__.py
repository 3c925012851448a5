"""Strengths of players from the results of their games."""
