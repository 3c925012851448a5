"""`python -m arena` is the same as `arena`.

Python puts the current directory before everything else, where a user's `random.py` would be taken for Python's own.
It goes behind everything else, as for the command `arena`, before anything is imported.
"""

import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):  # from Python 3.11 on; then it is not there
        sys.path.append(sys.path.pop(0))

    from arena.cli.main import main

    sys.exit(main())
