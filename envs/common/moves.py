"""How players move on the square [-1, 1]^2: one of five moves per tick."""

from __future__ import annotations

import numpy as np

STEP = 0.1  # length of a move
MOVES = STEP * np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], np.float64)  # stay, +x, -x, +y, -y
