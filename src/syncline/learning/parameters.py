"""The parameter server of every engine: versions of each shard's block, and the optimizer steps between them.

Shape legend: n elements of a shard's block, m float buffer elements (batch-norm statistics), P workers.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from syncline.learning.optimizer import Optimizer
from syncline.learning.update import AppliedPush, UpdateRule


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
    rule: UpdateRule = field(default_factory=UpdateRule)
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
        self, pushes: Sequence[AppliedPush], scale: float, samples: int, updates: int, is_sum: bool = False
    ) -> None:
        """One optimizer step on the mean of the gradients (or their sum), as the rule has them, at the rate x `scale`.

        The buffers become the mean of those pushed; with a single push, these.

        Args:
            pushes: whose gradients are changed.
            samples, updates: counts before this update, on which the rate depends.
        """
        old, rate = self.current, self.rate(samples, updates) * scale
        self.rule(old.weights, pushes, rate)
        new = old if old.readers == 0 else self._take()
        # In place in the first gradient: nothing else reads this block of it, and each push is applied once.
        mean = pushes[0].gradient
        for other in pushes[1:]:
            mean.add_(other.gradient)
        divisor = self.num_workers if self.divide_by_workers else len(pushes)
        if divisor > 1 and not is_sum:
            mean.div_(divisor)
        self.optimizer.step(old.weights, mean, rate, out=new.weights)
        if new.buffers.numel():
            if len(pushes) == 1:
                new.buffers.copy_(pushes[0].buffers)
            else:
                torch.mean(torch.stack([push.buffers for push in pushes]), dim=0, out=new.buffers)
        self.current = new

    def _take(self) -> Version:
        if self._free:
            return self._free.pop()
        self.allocated += 1
        return Version(torch.empty_like(self.current.weights), torch.empty_like(self.current.buffers))


class SentVersions:
    """The versions of a block that workers may have computed from: pinned until no push of them is to come, or pending.

    A worker's pushes are of versions that it was sent, none older than that of the push before.

    Args:
        num_workers: P.
    """

    def __init__(self, parameters: Parameters, num_workers: int) -> None:
        self._parameters = parameters
        self._versions: list[dict[int, Version]] = [{} for _ in range(num_workers)]  # by worker and number
        self.oldest = [0] * num_workers  # by worker, that a push to come may be of

    def send(self, worker: int, number: int) -> None:
        """The worker is sent the current version, which has this number."""
        self.oldest[worker] = min(self.oldest[worker], number)
        if number not in self._versions[worker]:
            self._versions[worker][number] = self._parameters.pin()

    def weights(self, worker: int, number: int) -> Tensor:
        """Those [n] of a version that the worker was sent."""
        return self._versions[worker][number].weights

    def keep(self, worker: int, pending: Collection[int], oldest: int | None = None) -> None:
        """Unpin what is not used any more.

        Args:
            pending: versions of the worker's pushes that are not used yet.
            oldest: that further pushes may be of; None: the same as before.
        """
        versions = self._versions[worker]
        self.oldest[worker] = oldest = self.oldest[worker] if oldest is None else oldest
        for number in [number for number in versions if number < oldest and number not in pending]:
            self._parameters.unpin(versions.pop(number))

    def all(self) -> list[tuple[int, int, Version]]:
        """Each worker, number and version."""
        return [(worker, number, each) for worker, own in enumerate(self._versions) for number, each in own.items()]

    def load(self, oldest: Sequence[int], kept: Iterable[tuple[int, int, Version]]) -> None:
        """Continue from `oldest` and what `all` gave, each pinned once for this."""
        self.oldest = list(oldest)
        for worker, number, version in kept:
            self._versions[worker][number] = version
