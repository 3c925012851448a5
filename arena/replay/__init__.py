"""Recorded games: `record: replays`, their files, playing them again, video."""
