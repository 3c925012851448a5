"""Profiles, Python stacks and the output of programs: where time goes, where processes hang. Imports no roles."""
