"""The arena in a browser: the application of `arena board`.

app             the application: who may ask, the templates, and the rooms
server          the server on this machine
runs, run, ...  a room per page; each has `routes`
"""
