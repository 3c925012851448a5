"""`python -m arena` is the same as `arena`.

Python puts the current directory first on the module path, where a user's `random.py` would hide Python's own module.
Here it is moved to the end, as for the command `arena`, before anything is imported.
"""

import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):  # safe path (Python 3.11, `-P`): it is not on the path
        sys.path.append(sys.path.pop(0))

    from arena.cli.main import main

    sys.exit(main())
