"""Recurrent policies: a layer whose output also depends on what the row has seen before in its episode.

What a row remembers is a vector, its *memory*: zero when an episode begins, and updated on every tick on which the row
acts. It is recorded beside the observations, as one more leaf [N, memory_size], the last one: what the row remembers
*before* it sees the others. One tick's features follow from these leaves alone, so acting, values and log-probabilities
need nothing else.

Actor and critic have recurrent layers of their own: in a shared layer the critic's gradient, which is many times
larger, would dominate the policy's. Where one optimizer moves both, they are computed side by side, as twins. Else each
has an encoder to itself, which reads and writes its own part of the memory.

For learning, a row's transitions are chopped into *sequences*: runs of at most `length` transitions of one episode.
A sequence begins with the memory that was recorded there, as a constant, and goes on with what the current weights make
of it; the gradient goes back through time to its beginning, and no further (Williams and Peng 1990, doi
10.1162/neco.1990.2.4.490). Sequences are processed side by side, sorted by length, so that ended sequences drop out:
there is no padding and no mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Space
from torch import Tensor, nn
from torch.nn import functional

from policies.networks.actor_critic import Encoder, Features


class GRU(nn.Module):
    """Gated recurrent units (Cho et al. 2014, arXiv 1406.1078), side by side; the memory of each is its output h.

    All of them, `count`, see `inputs` numbers, and each gives `size`.
    """

    gates, memories = 3, 1  # vectors that one tick computes, and that it remembers

    def __init__(self, inputs: int, size: int, generator: torch.Generator, *, count: int = 2) -> None:
        super().__init__()
        self.size, self.count = size, count
        self.from_inputs = nn.Parameter(torch.empty(count, self.gates * size, inputs))
        self.from_memory = nn.Parameter(torch.empty(count, self.gates * size, size))
        self.bias = nn.Parameter(torch.zeros(count, self.gates * size))
        for weights in (self.from_inputs, self.from_memory):
            for gate in weights.flatten(0, 1).chunk(count * self.gates):
                nn.init.orthogonal_(gate, generator=generator)

    def contribution(self, inputs: Tensor) -> Tensor:
        """What the inputs [N, inputs] contribute to the gates [count, N, gates * size], whatever is remembered."""
        both = functional.linear(inputs, self.from_inputs.flatten(0, 1), self.bias.flatten())
        return both.view(inputs.shape[0], self.count, -1).transpose(0, 1)

    def tick(self, from_inputs: Tensor, memory: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The memory after a tick, arrays [count, N, size], the output first; `from_inputs` is their `contribution`."""
        (h,) = memory
        parts = [2 * self.size, self.size]
        input_gates, input_candidate = torch.split(from_inputs, parts, -1)
        gates, candidate = torch.split(torch.bmm(h, self.from_memory.transpose(1, 2)), parts, -1)
        reset, update = (input_gates + gates).sigmoid().chunk(2, -1)
        new = (input_candidate + reset * candidate).tanh()
        return (new + update * (h - new),)


class LSTM(GRU):
    """Layers of long short-term memory (Hochreiter and Schmidhuber 1997, doi 10.1162/neco.1997.9.8.1735).

    The memory of each is its output h and its cell c. It has forget gates, whose bias begins at 1, so that it begins
    with remembering (Gers et al. 2000, doi 10.1162/089976600300015015).
    """

    gates, memories = 4, 2

    def __init__(self, inputs: int, size: int, generator: torch.Generator, *, count: int = 2) -> None:
        super().__init__(inputs, size, generator, count=count)
        nn.init.ones_(self.bias.data[:, size : 2 * size])

    def tick(self, from_inputs: Tensor, memory: Sequence[Tensor]) -> tuple[Tensor, ...]:
        h, c = memory
        gates = torch.baddbmm(from_inputs, h, self.from_memory.transpose(1, 2))
        flows, candidate = torch.split(gates, [3 * self.size, self.size], -1)
        enter, forget, leave = flows.sigmoid().chunk(3, -1)
        c = forget * c + enter * candidate.tanh()
        return leave * c.tanh(), c


RECURRENT: dict[str, type[GRU]] = {"lstm": LSTM, "gru": GRU}


class RecurrentEncoder(Encoder):
    """Leaves, the last of them the memory, to the features of `count` layers side by side, [N, count * size].

    `kind` is a name in `RECURRENT`; `inner` encodes the other leaves, None: the built-in one. Of the memory it reads
    and writes `memory_size` numbers, from number `first` on; others belong to other encoders.
    """

    def __init__(
        self,
        space: Space[Any],
        *,
        kind: str,
        hidden_size: int,
        generator: torch.Generator,
        inner: Encoder | None = None,
        count: int = 1,
        first: int = 0,
    ) -> None:
        if inner is None:
            super().__init__(space, generator)
        else:
            nn.Module.__init__(self)
            self.features = inner.features
        self.own = inner  # its name in stored weights
        self.layer = RECURRENT[kind](self.features, hidden_size, generator, count=count)
        self.features = hidden_size
        self.memory_size = self.layer.memories * count * hidden_size
        self.first, self.end = first, first + self.memory_size
        self.learns = True

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        """Features of rows with the memory that their last leaf holds."""
        return self.ticked(leaves)[0]

    def ticked(self, leaves: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The features, and the memory after this tick: that of all encoders, of which this one has changed its own."""
        *others, memory = leaves
        after = self.layer.tick(self.layer.contribution(self._encoded(others)), self._read(memory))
        parts = [memory[:, : self.first], *map(_by_row, after), memory[:, self.end :]]
        return _by_row(after[0]), torch.cat([part for part in parts if part.shape[1]], 1)

    def unrolled(self, leaves: Sequence[Tensor], lengths: Tensor | None) -> Tensor:
        """Features of sequences, one after the other in the rows, with the memory of the current weights.

        `lengths` [S] are the transitions of each sequence, at least one, N in sum; None: every row for itself. Of the
        memory only what each sequence begins with is read.
        """
        if lengths is None:
            return self(leaves)  # type: ignore[no-any-return]
        *others, memory = leaves
        sizes = lengths.cpu().numpy()
        by_length = np.argsort(-sizes, kind="stable")
        begins = (np.cumsum(sizes) - sizes)[by_length]
        times = np.arange(sizes.max())[:, None]
        going_on = times < sizes[by_length]  # [longest, S]
        counts = going_on.sum(1).tolist()  # sequences that there are at each time, longer ones first
        index = torch.from_numpy((begins + times)[going_on]).to(memory.device)  # rows in the order of time
        by_time = torch.split(self.layer.contribution(self._encoded(others)).index_select(1, index), counts, 1)
        now = self._read(memory.index_select(0, index[: counts[0]]))
        outputs = []
        for part, before, count in zip(by_time, [counts[0], *counts], counts, strict=False):
            now = self.layer.tick(part, now if count == before else [vector[:, :count] for vector in now])
            outputs.append(now[0])
        return _by_row(torch.cat(outputs, 1).index_select(1, index.argsort()))

    def parted(self, features: Tensor) -> Features:
        """The features of actor and critic: each has its half of [N, features]."""
        return Features(*features.chunk(2, 1))

    def _encoded(self, leaves: Sequence[Tensor]) -> Tensor:
        return super().forward(leaves) if self.own is None else self.own(leaves)

    def _read(self, memory: Tensor) -> Sequence[Tensor]:
        own = memory[:, self.first : self.end]
        return own.view(memory.shape[0], self.layer.memories, self.layer.count, -1).permute(1, 2, 0, 3).unbind()


def _by_row(layers: Tensor) -> Tensor:
    """[count, N, size] as [N, count * size]."""
    return layers.transpose(0, 1).flatten(1)
