"""Networks and the distributions of actions."""
