"""The mark of tests that compute on a GPU; on the CPU, the same algorithms are tested on every machine."""

from __future__ import annotations

import pytest
import torch

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="computes on a CUDA GPU, and torch finds none on this machine (CI's machines have none either). Before each "
    "release these tests run on one: docs/development/testing.md has the command",
)
