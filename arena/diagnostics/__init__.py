"""Where time goes and where processes hang. Knows no roles."""
