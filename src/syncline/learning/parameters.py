"""The parameter server of every engine: versions of each shard's block, and the optimizer steps between them.

Shape legend: n elements of a shard's block, m float buffer elements (batch-norm statistics), P workers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from syncline.learning.optimizer import Optimizer


@dataclass(eq=False, slots=True)
class Version:
    """One immutable state of a shard's block, reference-counted by its readers."""

    weights: Tensor  # [n]
    buffers: Tensor  # [m]; empty on every shard but the first
    readers: int = 0


@dataclass(eq=False, slots=True)
class Gradient:
    """The content of a push: the gradient of all blocks, and the buffers after the worker's forward pass.

    Its memory is used again once every shard has released it.
    """

    flat: Tensor  # [sum of n]
    buffers: Tensor  # [m]
    pool: "list[Gradient]" = field(default_factory=list, repr=False)  # of gradients that are free
    readers: int = 1  # its pushes, one a shard, that are neither applied nor discarded yet
    versions: Tensor | None = None  # [S] int64, of the blocks it was computed on, with a pull rule

    def release(self) -> None:
        """One shard has no more use for it."""
        self.readers -= 1
        if self.readers == 0:
            self.pool.append(self)


@dataclass(slots=True)
class Parameters:
    """One block: its current version and its optimizer."""

    block: slice  # of the flat vector
    current: Version
    optimizer: Optimizer
    rate: Callable[[int, int], float]  # (samples, updates) -> learning rate
    num_workers: int  # P
    divide_by_workers: bool = False  # an update of d gradients divides their sum by P in place of d
    _free: list[Version] = field(default_factory=list)
    allocated: int = 1  # versions

    @property
    def evaluated(self) -> Tensor:
        """The weights to evaluate [n]: the current ones, or the optimizer's moving average of them."""
        return self.optimizer.evaluated(self.current.weights)

    def pin(self) -> Version:
        """The current version, which is not changed before `unpin`."""
        self.current.readers += 1
        return self.current

    def own_version(self, weights: Tensor) -> Version:
        """A pinned version of one reader's own: these weights, and the current buffers."""
        version = self._take()
        version.weights.copy_(weights)
        version.buffers.copy_(self.current.buffers)
        version.readers = 1
        return version

    def unpin(self, version: Version) -> None:
        version.readers -= 1
        if version.readers == 0 and version is not self.current:
            self._free.append(version)

    def apply(
        self, gradients: Sequence[Gradient], scale: float, samples: int, updates: int, is_sum: bool = False
    ) -> None:
        """One optimizer step on the mean of the gradients (or their sum), at the rate times `scale`.

        The buffers become the mean of those pushed; with a single push, these.

        Args:
            samples, updates: counts before this update, on which the rate depends.
        """
        old = self.current
        new = old if old.readers == 0 else self._take()
        # In place in the first gradient: nothing else reads this block of it, and each push is applied once.
        mean = gradients[0].flat[self.block]
        for other in gradients[1:]:
            mean.add_(other.flat[self.block])
        divisor = self.num_workers if self.divide_by_workers else len(gradients)
        if divisor > 1 and not is_sum:
            mean.div_(divisor)
        self.optimizer.step(old.weights, mean, self.rate(samples, updates) * scale, out=new.weights)
        if new.buffers.numel():
            if len(gradients) == 1:
                new.buffers.copy_(gradients[0].buffers)
            else:
                torch.mean(torch.stack([gradient.buffers for gradient in gradients]), dim=0, out=new.buffers)
        self.current = new

    def _take(self) -> Version:
        if self._free:
            return self._free.pop()
        self.allocated += 1
        return Version(torch.empty_like(self.current.weights), torch.empty_like(self.current.buffers))


def blocks(size: int, num_shards: int) -> list[slice]:
    """`num_shards` contiguous blocks of a vector of `size` elements, equal to within one element."""
    edges = [size * shard // num_shards for shard in range(num_shards + 1)]
    return [slice(begin, end) for begin, end in pairwise(edges)]
