"""A module of somebody else that cannot be imported."""

raise ZeroDivisionError("fails at import")
