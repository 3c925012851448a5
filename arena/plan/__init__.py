"""From a configuration to a plan: which role sits where, on which rank, and whether it can end."""
