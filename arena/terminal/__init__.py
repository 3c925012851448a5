"""What a person sees: the live display, the table and the drawing of a plan, messages."""
