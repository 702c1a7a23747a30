"""Strategies of the cases of test_own_cases.py."""

import random
from dataclasses import dataclass

from syncline.strategies.ds_sync import DsSyncOptions


@dataclass(frozen=True, slots=True)
class Gossip(DsSyncOptions):
    """Broken. Groups: random pairs, other ones whenever they are asked for."""

    def groups(self, turn, num_workers):
        workers = random.sample(range(num_workers), num_workers)
        return [sorted(workers[begin : begin + 2]) for begin in range(0, num_workers, 2)]


@dataclass(frozen=True, slots=True)
class Halves(DsSyncOptions):
    """Broken. Groups: a worker is in none of them."""

    def groups(self, turn, num_workers):
        return [[worker for worker in range(1, num_workers) if worker % 2 == parity] for parity in (0, 1)]
