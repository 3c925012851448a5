"""What `rogue_net` needs of torch-scatter, which has no wheel: means over groups of rows, with a gradient."""

from __future__ import annotations

import torch


def scatter(
    src: torch.Tensor, index: torch.Tensor, dim: int = 0, out: torch.Tensor | None = None, reduce: str = "mean"
) -> torch.Tensor:
    """The mean of the rows of each group; added to `out` in place where it is given, so that values learn."""
    assert (dim, reduce) == (0, "mean")
    size = int(index.max()) + 1 if out is None else len(out)
    counts = torch.zeros(size, device=src.device).index_add(0, index, torch.ones(len(index), device=src.device))
    means = torch.zeros(size, src.shape[1], device=src.device).index_add(0, index, src)
    means = means / counts.clamp_min(1)[:, None]
    return means if out is None else out.add_(means)
