"""`arena play`: a human takes a seat of a match, in the terminal or through a pipe.

`command` makes a run of it, `human` is the algorithm in the worker's place, `decisions` what it shows and asks (pure),
`shown_game` the game with its text picture in the infos.
"""

from arena.cli.play.command import add_arguments, run

__all__ = ["add_arguments", "run"]
