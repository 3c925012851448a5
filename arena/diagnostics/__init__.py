"""Profiles and Python stacks: where time goes, and where processes hang. Imports no roles."""
