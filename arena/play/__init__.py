"""`arena play`: a human takes a seat of a match, in the terminal or through a pipe.

`human` is the algorithm in the worker's place, `decisions` what it shows and asks (pure), `console` its lines,
`advice` what a policy thinks of the choices, `shown_game` the game with its own text picture in the infos.
"""
