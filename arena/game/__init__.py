"""What a game is to the arena: its interface, its spaces, and the lockstep of one match."""
