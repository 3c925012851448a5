"""The messages between one seat and its match: their layout in memory, and both ends."""
