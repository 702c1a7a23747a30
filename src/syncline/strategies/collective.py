"""What workers average among themselves, and when: a value of the options of a strategy without a server.

This file may hold: who averages with whom, what is averaged, and in which parts it is sent.
It may not hold: I/O, clocks, tensors, or anything of one particular algorithm.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import or_
from typing import NamedTuple

from syncline.checks import Checked, one_of, ranged

IMPLS = ("flat", "naive", "overlap")
"""Of an all-reduce: one for all tensors; one a tensor, blocking; one a bucket, during the backward pass."""


def all_workers(turn: int, num_workers: int) -> list[list[int]]:
    """One group of all."""
    return [list(range(num_workers))]


def in_turn(step: int, steps_an_epoch: Fraction) -> int:
    """One turn after the other."""
    return step


def one(num_workers: int) -> int:
    return 1


class Averaging(NamedTuple):
    members: Sequence[int]  # whose mean is made
    receivers: Sequence[int]  # those of them that get it


def num_shares(turn: Sequence[Averaging]) -> list[int]:
    """In how many means each worker's parameters are, its own among them: the equal shares of them that it sends."""
    shares = [0] * sum(len(each.receivers) for each in turn)
    for members, receivers in turn:
        for worker in members:
            shares[worker] += len(receivers)
    return shares


def is_regular(turn: Sequence[Averaging]) -> bool:
    """Each worker receives from as many as those send to from whom it receives, so that all push-sum weights stay 1."""
    shares = num_shares(turn)
    return all(shares[worker] == len(each.members) for each in turn for worker in each.members)


def steps_to_spread(turns: Sequence[Sequence[Averaging]], first: int, most: int) -> int | None:
    """Consecutive steps, from turn `first` on, that spread what one worker has to all; None: more than `most`."""
    num_workers = sum(len(each.receivers) for each in turns[0])
    reached = [1 << worker for worker in range(num_workers)]  # whose parameters each has, as bits
    for step in range(most + 1):
        if all(bits == (1 << num_workers) - 1 for bits in reached):
            return step
        before = list(reached)
        for members, receivers in turns[(first + step) % len(turns)]:
            joined = reduce(or_, (before[member] for member in members))
            for worker in receivers:
                reached[worker] = joined
    return None


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who averages with whom at each step of a run."""

    turns: list[list[Averaging]]  # of each turn; every worker is a receiver of one
    turn: Callable[[int], int]  # step -> its turn
    spread: int  # consecutive steps that spread what one worker has to all


@dataclass(frozen=True, slots=True)
class Collective(Checked):
    """What workers exchange at every step: an all-reduce within groups, or messages between peers.

    Args:
        groups: (turn, workers) -> the workers of each group; every worker is in exactly one.
        peers: in place of groups, of replicas. (turn, workers) -> from whom each worker receives weights, to average
            them with its own. They may send to more, or to fewer: push-sum weights keep the mean of all.
        turns: workers -> number of turns.
        turn: (step from 0, steps of all workers an epoch) -> its turn, modulo their number.
        spread: workers -> consecutive steps, from any on, that spread what one worker has to all.
        replicas: each worker steps weights of its own, which are averaged; else the gradients are.
        averages_first: replicas are averaged before the forward pass, not after the step.
        evaluates_mean: the mean of replicas is evaluated, not the first one.
        least_steps_an_epoch: of all workers.
        bucket_mb: of impl=overlap.

    Raises:
        ValueError: a value is out of range.
    """

    _where = "strategy"

    groups: Callable[[int, int], list[list[int]]] = all_workers
    peers: Callable[[int, int], list[list[int]]] | None = None
    turns: Callable[[int], int] = one
    turn: Callable[[int, Fraction], int] = in_turn
    spread: Callable[[int], int] = one
    replicas: bool = False
    averages_first: bool = False
    evaluates_mean: bool = True
    least_steps_an_epoch: int = 0
    impl: str = one_of("flat", IMPLS)
    bucket_mb: float = ranged(1.0, "> 0")

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.impl == "overlap" and self.averages_first:
            raise ValueError("strategy.impl=overlap needs strategy.average=after_step, got before_forward")
        if self.peers is not None and not (self.replicas and self.impl == "flat" and not self.averages_first):
            raise ValueError("peers need replicas, which they average after each step, with strategy.impl=flat")

    def of_turn(self, turn: int, num_workers: int) -> Iterator[Averaging]:
        """Who averages with whom."""
        if self.peers is None:
            for group in self.groups(turn, num_workers):
                yield Averaging(group, group)
        else:
            for worker, senders in enumerate(self.peers(turn, num_workers)):
                yield Averaging(sorted([worker, *senders]), [worker])

    def schedule(self, num_workers: int, steps_an_epoch: Fraction) -> Schedule:
        turns = self.all_turns(num_workers)
        return Schedule(turns, lambda step: self.turn(step, steps_an_epoch) % len(turns), self.spread(num_workers))

    def all_turns(self, num_workers: int) -> list[list[Averaging]]:
        return [list(self.of_turn(turn, num_workers)) for turn in range(self.turns(num_workers))]

    @property
    def exchange(self) -> str:
        """Its name in the event log."""
        return "all-reduce" if self.peers is None else "peers"

    @property
    def sends_tensors_singly(self) -> bool:
        """One message a tensor is sent, each blocking, rather than one of all tensors."""
        return self.impl == "naive"

    @property
    def bucket_bytes(self) -> int | None:
        """Bytes of the parts that are sent during the backward pass; None: all is sent after it."""
        return max(4, int(self.bucket_mb * 1e6)) if self.impl == "overlap" else None
