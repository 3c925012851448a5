"""`arena list`: everything that has a name, with its options.

`catalog` reads them from their source, `command` prints them, also as pages in Markdown, and `json_schema` makes the
schema with which editors complete a configuration.
"""

from arena.cli.list.command import add_arguments, run

__all__ = ["add_arguments", "run"]
