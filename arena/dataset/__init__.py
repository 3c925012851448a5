"""Recorded transitions (`record: samples`): their files, writer and reader."""
