"""The replica of one asynchronous peer, alike in virtual time, as a process and in a replay; and whom it meets.

Shape legend: W workers, n parameters, m float buffer elements.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.datasets.streams import Purpose, stream
from syncline.learning.optimizer import Optimizer
from syncline.strategies.neighbours import Neighbours

BLOCK = 64  # choices of one stream: making one takes as long as an update of times alone


class Choices:
    """With whom workers average, of all their neighbours uniformly.

    Args:
        num_workers: W.
        seed: of the run.
    """

    def __init__(self, neighbours: Neighbours, num_workers: int, seed: int) -> None:
        self._neighbours, self._num_workers, self._seed = neighbours, num_workers, seed
        self._degree = neighbours.degree(num_workers)
        self._blocks: dict[int, tuple[int, npt.NDArray[np.int64]]] = {}  # by worker: its number, and the choices

    def peer(self, worker: int, iteration: int) -> int:
        """After the worker's gradient of this number."""
        number, place = divmod(iteration, BLOCK)
        block = self._blocks.get(worker)
        if block is None or block[0] != number:
            drawn = stream(Purpose.PEER, worker, number, self._seed).integers(self._degree, size=BLOCK)
            block = self._blocks[worker] = number, drawn
        return self._neighbours.neighbour(worker, int(block[1][place]), self._num_workers)


class PeerReplica:
    """What one worker has. It is averaged, and makes its steps, in place.

    Args:
        weights, buffers: of the replica [n], [m].
        optimizer: of this worker alone.
        rate: (samples, updates) of the run -> learning rate of the next update.
        num_workers: W.
    """

    def __init__(
        self,
        weights: Tensor,
        buffers: Tensor,
        optimizer: Optimizer,
        rate: Callable[[int, int], float],
        num_workers: int,
    ) -> None:
        self.optimizer, self._rate, self._num_workers = optimizer, rate, num_workers
        # Samples and updates [2], of which the sum over all replicas is the run's.
        self.counts = torch.zeros(2, dtype=torch.float64)
        self.averaged = (weights, buffers, self.counts)
        self.weights, self.buffers = weights, buffers
        self.read_weights, self.read_buffers = weights.clone(), buffers.clone()  # at which the gradient is computed
        self.gradient, self._change = torch.zeros_like(weights), torch.zeros_like(buffers)  # since the reading

    def read(self) -> None:
        """The worker begins a gradient at the replica as it is."""
        self.read_weights.copy_(self.weights)
        self.read_buffers.copy_(self.buffers)

    def computed(self, gradient: Tensor, buffers: Tensor) -> None:
        """The worker has the gradient [n], and buffers [m] after it; copies are kept."""
        self.gradient.copy_(gradient)
        torch.sub(buffers, self.read_buffers, out=self._change)

    def take_statistics(self, num_averaged: int) -> None:
        """Right before the worker's own averaging, the change of its buffers; it was averaged so often since it read.

        Each averaging has halved the share of what was read. Were the change not, a variance might become negative.
        """
        self.buffers.add_(self._change, alpha=0.5**num_averaged)

    def average(self, other: Sequence[Tensor]) -> None:
        """The replica becomes the mean of itself and a peer's (its `averaged`), in the same bits as at the peer."""
        for own, theirs in zip(self.averaged, other, strict=True):
            own.add_(theirs.to(own.device)).mul_(0.5)

    def step(self, num_samples: int) -> None:
        """The optimizer's step with the gradient, which was of so many samples."""
        samples, updates = (round(self._num_workers * count) for count in self.counts.tolist())
        self.optimizer.step(self.weights, self.gradient, self._rate(samples, updates), out=self.weights)
        self.counts.add_(torch.tensor([num_samples, 1], dtype=torch.float64))

    def state_dict(self) -> dict[str, Tensor]:
        """All but weights, buffers and the optimizer's; its own tensors, which change."""
        read = {"read_weights": self.read_weights, "read_buffers": self.read_buffers}
        return {"counts": self.counts, "gradient": self.gradient, "change": self._change, **read}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a copy of what `state_dict` gave."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])


def average(one: PeerReplica, other: PeerReplica) -> None:
    """Both become their mean."""
    one.average(other.averaged)
    for mean, theirs in zip(one.averaged, other.averaged, strict=True):
        theirs.copy_(mean)
