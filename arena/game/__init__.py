"""What a game is to the arena: its interface, its spaces, and the lockstep of one match."""

from arena.game.api import BatchedEnv, Frame, Interface, Step

__all__ = ["BatchedEnv", "Frame", "Interface", "Step"]
