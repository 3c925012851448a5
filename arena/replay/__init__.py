"""Replays (`record: replays`): their files, playback, verification and video."""
