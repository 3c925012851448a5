"""Learning from recorded data, and judging a policy by it."""
