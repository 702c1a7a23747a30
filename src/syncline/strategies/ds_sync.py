"""Divide-and-Shuffle Synchronization (dssync.txt, section 3.1, Algorithm 1): replicas average in alternating groups.

    every worker, at step t:  its own gradient, its own optimizer's step, then the mean of parameters (and batch-norm
                              statistics) over its group: at even t the workers with the same rank // G, at odd t those
                              with the same rank % G

The W workers form a grid with G in each row: rows average at even steps, columns at odd ones, so two steps carry the
update of every worker to every other. Optimizer states are not shared.

Departures:
- Line 16's `x % GroupSize == Rank` is read as `x % GroupSize == Rank % GroupSize`: else most workers have no group.
- The grid may have any two or more rows and columns; the paper has W = G G.
- `average=before_forward`: a step begins with the averaging. The published code (neurips10899/divide-and-shuffle,
  e5e622c) does so for CIFAR and ImageNet (cifar10.py:258, imagenet.py:187); for DeepFM (:138) and SQuAD (:236) it
  averages after the optimizer's step, as Algorithm 1 does.
- `parity=epoch`: the first step of each epoch is an even one, as in the published code for CIFAR and DeepFM
  (cifar10.py:97, :210, :261); after an epoch of an odd number of steps the rows average twice in succession. With
  `continues`, as in Algorithm 1, steps are counted through the whole run. Epochs are those of the whole training set,
  so they have whole and different numbers of steps; the published loops end an epoch with a short batch.
- `impl=overlap` is an addition: parts of the weights are stepped and averaged as soon as the backward pass has their
  gradient. The weights after a step are the same.
- The paper does not say which replica is evaluated: here their mean (`evaluate=mean`), or the first one (`first`), as
  in the published code for ImageNet and SQuAD. For CIFAR each worker of that code tests its own (cifar10.py:213).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from syncline.checks import one_of, ranged
from syncline.strategies.collective import IMPLS, Collective
from syncline.strategies.protocol import StrategyOptions

AVERAGES = ("after_step", "before_forward")
PARITIES = ("continues", "epoch")
EVALUATED = ("mean", "first")


@dataclass(frozen=True, slots=True)
class DsSyncOptions(StrategyOptions):
    name: str = "ds_sync"
    group_size: int | None = ranged(None, ">= 2")  # G, a divisor of W; None: the largest that is not above sqrt(W)
    average: str = one_of("after_step", AVERAGES)
    impl: str = one_of("flat", IMPLS)  # of the averaging; overlap: the optimizer steps each bucket before
    bucket_mb: float = ranged(1.0, "> 0")  # of impl=overlap
    parity: str = one_of("continues", PARITIES)  # which steps are even
    evaluate: str = one_of("mean", EVALUATED)  # the mean of all replicas, or the replica of worker 0

    elastic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        StrategyOptions.__post_init__(self)
        _ = self.collective  # which checks what goes together

    @property
    def collective(self) -> Collective:
        return Collective(
            groups=self.groups,
            turn=self.turn,
            turns=lambda num_workers: 2,
            spread=lambda num_workers: self._spread,
            replicas=True,
            averages_first=self.average == "before_forward",
            evaluates_mean=self.evaluate == "mean",
            least_steps_an_epoch=0 if self.parity == "continues" else 2,  # else only rows would ever average
            impl=self.impl,
            bucket_mb=self.bucket_mb,
        )

    @property
    def lead_bound(self) -> int | None:
        return self._spread

    @property
    def _spread(self) -> int:
        return 2 if self.parity == "continues" else 3

    @property
    def staleness_bound(self) -> int | None:
        return 0

    def check_cluster(self, num_workers: int, num_shards: int) -> None:
        StrategyOptions.check_cluster(self, num_workers, num_shards)
        size = self.grid(num_workers)
        if size < 2 or num_workers % size or num_workers == size:
            asked = "" if self.group_size is None else f" with strategy.group_size={self.group_size}"
            raise ValueError(
                f"strategy=ds_sync needs a grid of workers, at least 2 x 2: cluster.workers must be 4, 6, 8, 9, ... "
                f"and a multiple of the group size, got {num_workers}{asked}"
            )

    def grid(self, num_workers: int) -> int:
        """G: the workers in a row of the grid, num_workers / G rows."""
        if self.group_size is not None:
            return self.group_size
        return next(size for size in range(math.isqrt(num_workers), 0, -1) if num_workers % size == 0)

    def turn(self, step: int, steps_an_epoch: Fraction) -> int:
        """0 at even steps, 1 at odd ones."""
        if self.parity == "epoch":
            step -= math.ceil(step // steps_an_epoch * steps_an_epoch)  # the first step that begins in the same epoch
        return step % 2

    def groups(self, turn: int, num_workers: int) -> list[list[int]]:
        """The rows of the grid at turn 0, its columns at turn 1."""
        size = self.grid(num_workers)
        if turn % 2 == 0:
            return [list(range(first, first + size)) for first in range(0, num_workers, size)]
        return [list(range(column, num_workers, size)) for column in range(size)]
