"""Strategies of the cases of test_own_cases.py."""

from dataclasses import dataclass
from itertools import count

from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.gossip import GossipOptions

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


@dataclass(frozen=True, slots=True)
class OwnPeer(GossipOptions):
    """Broken. Peers: a worker is its own."""

    def peers(self, turn, num_workers):
        return [[worker, (worker + 1) % num_workers] for worker in range(num_workers)]
