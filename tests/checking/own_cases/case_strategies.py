"""Strategies of the cases of test_own_cases.py."""

from dataclasses import dataclass
from itertools import count

from syncline.strategies.ds_sync import DsSyncOptions

calls = count()


@dataclass(frozen=True, slots=True)
class Gossip(DsSyncOptions):
    """Broken. Groups: other pairs whenever they are asked for, as random ones are."""

    def groups(self, turn, num_workers):
        shift = 1 + next(calls) % (num_workers - 1)
        return [[0, shift], [worker for worker in range(1, num_workers) if worker != shift]]


@dataclass(frozen=True, slots=True)
class Halves(DsSyncOptions):
    """Broken. Groups: a worker is in none of them."""

    def groups(self, turn, num_workers):
        return [[worker for worker in range(1, num_workers) if worker % 2 == parity] for parity in (0, 1)]
