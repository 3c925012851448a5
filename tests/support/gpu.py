"""Tests that compute on a GPU."""

from __future__ import annotations

import pytest
import torch

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="computes on a GPU, and torch finds none here, as on the machines of CI: to be run on a machine with one, "
    "see docs/development/testing.md",
)
