"""The processes in which `arena board` plays games: `watched` a recorded episode, `played` a match with people.

Each is a program of its own, which the server starts: a game's code never runs in the server.
"""
