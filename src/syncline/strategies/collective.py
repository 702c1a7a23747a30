"""What workers average among themselves, and when: a value of the options of a strategy without a server.

This file may hold: who averages with whom, what is averaged, and in which parts it is sent.
It may not hold: I/O, clocks, tensors, or anything of one particular algorithm.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

IMPLS = ("flat", "naive", "overlap")
"""Of an all-reduce: one for all tensors; one a tensor, blocking; one a bucket, during the backward pass."""


def all_workers(turn: int, num_workers: int) -> list[list[int]]:
    """One group of all."""
    return [list(range(num_workers))]


def alternating(step: int, steps_an_epoch: Fraction) -> int:
    """Even and odd steps in turn."""
    return step % 2


@dataclass(frozen=True, slots=True)
class Collective:
    """An all-reduce within each group of workers at every step.

    Args:
        groups: (turn, workers) -> the workers of each group; every worker is in exactly one. Both turns together
            connect all workers.
        turn: (step from 0, steps of all workers an epoch) -> which groups average: 0 or 1.
        replicas: each worker steps weights of its own, which are averaged; else the gradients are.
        averages_first: replicas are averaged before the forward pass, not after the step.
        evaluates_mean: the mean of replicas is evaluated, not the first one.
        least_steps_an_epoch: of all workers.
        impl: one of IMPLS.
        bucket_mb: of impl=overlap, > 0.

    Raises:
        ValueError: a value is out of range.
    """

    groups: Callable[[int, int], list[list[int]]] = all_workers
    turn: Callable[[int, Fraction], int] = alternating
    replicas: bool = False
    averages_first: bool = False
    evaluates_mean: bool = True
    least_steps_an_epoch: int = 0
    impl: str = "flat"
    bucket_mb: float = 1.0

    def __post_init__(self) -> None:
        if self.impl not in IMPLS:
            raise ValueError(f"strategy.impl must be one of {', '.join(IMPLS)}, got {self.impl!r}")
        if not 0 < self.bucket_mb < math.inf:
            raise ValueError(f"strategy.bucket_mb must be > 0, got {self.bucket_mb}")
        if self.impl == "overlap" and self.averages_first:
            raise ValueError("strategy.impl=overlap needs strategy.average=after_step, got before_forward")

    @property
    def sends_tensors_singly(self) -> bool:
        """One message a tensor is sent, each blocking, rather than one of all tensors."""
        return self.impl == "naive"

    @property
    def bucket_bytes(self) -> int | None:
        """Bytes of the parts that are sent during the backward pass; None: all is sent after it."""
        return max(4, int(self.bucket_mb * 1e6)) if self.impl == "overlap" else None
