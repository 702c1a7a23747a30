"""Averaging of replicas that send each other how their weights have changed, compressed.

Each group keeps, beside the weights, what its members know of each other: y_i of replica i, at first the initial
weights, which all have. For an averaging each sends q_i = C(x_i - y_i), and then

    y_i <- y_i + q_i        x_i <- x_i + step (mean over j of y_j - y_i)

The members' mean is unchanged by it. What q_i leaves out is in a later one. A member keeps, for each group that it is
in, y_i and the difference in the second line: small numbers, in which rounding errors are small.

Shape legend: n parameters.

Source: Koloskova, Stich and Jaggi 2019, Decentralized stochastic optimization and gossip algorithms with compressed
communication, algorithm 2 and its memory-efficient form (CHOCO-SGD).
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from syncline.datasets.streams import Purpose, stream
from syncline.learning.compression import Compression, compressed


class Gossip:
    """One replica in one group.

    Args:
        compression: of changes.
        weights: the initial ones, of all members [n].
        step: towards the mean, in (0, 1].
        worker, seed: the key of its random choices, with the number of the training step; `seed` is the run's.
    """

    def __init__(self, compression: Compression, weights: Tensor, step: float, worker: int, seed: int) -> None:
        self.compression, self._step, self._worker, self._seed = compression, step, worker, seed
        self._own = weights.clone()
        # mean of y_j, less y_i [n]: after `send` the mean of what all have sent is to be added to it
        self.offset_from_mean = torch.zeros_like(weights)

    def send(self, weights: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """The change of these weights [n] in training step `number`: its bytes, and what they stand for [n]."""
        change = (weights - self._own).cpu()
        seed = stream(Purpose.COMPRESS, self._worker, number, self._seed).integers(2**63)
        sent = compressed(self.compression, change, int(seed))
        change = change.to(weights.device)
        self._own.add_(change)
        self.offset_from_mean.sub_(change)
        return sent, change

    def step(self, weights: Tensor) -> None:
        """Step towards the mean, once `offset_from_mean` knows the changes of all members; these weights [n] change."""
        weights.add_(self.offset_from_mean, alpha=self._step)

    def state_dict(self) -> dict[str, Tensor]:
        """Its own tensors, which the next averaging changes."""
        return {"own": self._own, "apart": self.offset_from_mean}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state_dict` gave."""
        self._own.copy_(state["own"])
        self.offset_from_mean.copy_(state["apart"])


def mean_of(tensors: Sequence[Tensor], weights: Sequence[float] = ()) -> Tensor:
    """Their sum in order, divided; so every member has the same bits.

    Args:
        weights: > 0, one a tensor; none, or equal ones, give the plain mean.
    """
    relative = [weight / weights[0] for weight in weights] or [1.0] * len(tensors)
    total = tensors[0].clone()
    for other, weight in zip(tensors[1:], relative[1:], strict=True):
        total.add_(other, alpha=weight)
    return total.div_(sum(relative))
