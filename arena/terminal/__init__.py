"""Output for the terminal: the live display, the table and the drawing of a plan, messages."""
