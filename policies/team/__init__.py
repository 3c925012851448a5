"""Learning by whole teams: joint transitions, networks, critics."""
