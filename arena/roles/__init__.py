"""The three roles: the root records, environments own the games, workers run the algorithms.

`stage` plays a role on an endpoint, whatever the transport; `episodes` keeps an environment's accounts; `frozen` is how
a worker plays that does not learn.
"""
