"""The arena in a browser: the application of `arena board`.

board           what all rooms share
app             the application: who may ask, and the rooms
runs, run, ...  a room per page; each has `routes`
"""
