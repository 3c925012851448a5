"""The conversation of one seat with its match: its layout in memory, and its two ends."""
