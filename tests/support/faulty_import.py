"""A module of a user that cannot be imported."""

raise ZeroDivisionError("fails at import")
