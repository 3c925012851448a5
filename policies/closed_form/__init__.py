"""Derivatives of the losses by hand, for multi-layer perceptrons on the CPU: equal to autograd, and faster.

The losses are defined in the algorithms' files and differentiated by torch wherever this package does not apply;
`tests/unit/test_closed_form.py` compares both. If you change a loss in place, change its derivative here as well. A
subclass with a loss of its own needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.networks.actor_critic import Encoder

if TYPE_CHECKING:
    from policies.common.algorithm import Algorithm


def applies(algorithm: Algorithm, written_for: type[Algorithm], encoder: Encoder) -> bool:
    """Whether this package has the gradients of an algorithm's loss: no images, no memory, on the CPU, the same loss.

    Args:
        algorithm: that learns.
        written_for: the class whose `loss` and `losses` are differentiated here; a subclass may replace them.
        encoder: of the algorithm's networks.
    """
    kind = type(algorithm)
    same = all(getattr(kind, name, None) is getattr(written_for, name, None) for name in ("loss", "losses"))
    return same and not encoder.learns and algorithm.device.type == "cpu"
