"""Recorded transitions: `record: samples`, their files and how they are read."""
