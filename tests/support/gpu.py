"""Tests that compute on a GPU.

The same claims are tested with `device: cpu` everywhere. CI has no GPU, so these tests are run by hand on one
before a release, see docs/development/release.md.
"""

from __future__ import annotations

import pytest
import torch

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="torch finds no GPU on this machine. CI's machines have none: these tests are run on one before a release, "
    "see docs/development/release.md",
)
