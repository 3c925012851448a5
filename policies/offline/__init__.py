"""Learning from recorded data, and evaluating a policy with it."""
