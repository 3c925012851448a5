"""Profiles, Python stacks, output of programs, memory of killed jobs: where time goes, what hangs. Imports no roles."""
