"""Gossip: replicas average with the few peers that a graph names, and wait for nobody else.

    every worker i, at step t, with parameters x_i, push-sum weight w_i (at first 1) and z_i = x_i / w_i:
        1  compute a gradient at z_i, and make the step of its own optimizer on x_i
        2  send x_i / d_i and w_i / d_i to its peers at step t, d_i - 1 in number, and keep as much
        3  x_i and w_i are the sums of what it has kept and received; the mean of all x_i is as before

    graph         peers of worker i at step t, of W workers                                 steps that join all workers
    ring          i - 1 and i + 1                                                           floor(W / 2)
    exponential   receives from i - 2^(t mod T), sends to i + 2^(t mod T); T = ceil(log2 W)  T
    pairs         the opponent of round t of a tournament in which everybody meets          W - 1, or W if that is odd
    random        sends to one drawn at random; receives from none, one or several          counted, e.g. 10 for W = 8

On the first three a worker sends to as many as it receives from: all w_i stay 1, and step 3 is a plain mean. The draws
of `random` are the same in every run, and begin again after 64 steps; who receives from none for some steps has a small
w_i, by which its step of z_i is divided. Batch-norm statistics are averaged as z_i are.

Sources: Lian et al. 2017, "Can decentralized algorithms outperform centralized algorithms?", algorithm 1 (D-PSGD, on a
ring); Assran et al. 2019, "Stochastic gradient push for distributed deep learning", algorithm 1 and appendix A (SGP,
exponential with one peer); Kempe, Dobra and Gehrke 2003, "Gossip-based computation of aggregate information", protocol
Push-Sum (random).

Departures: D-PSGD adds the gradient to the mean of the weights that it was computed at, as they were before the step;
here, as in SGP, the step is averaged too. The mean of all x_i is evaluated; SGP's and D-PSGD's measure likewise. A step
of the optimizer, weight decay included, is computed at z_i.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from syncline.checks import one_of
from syncline.strategies.collective import Collective, steps_to_spread
from syncline.strategies.protocol import StrategyOptions

GRAPHS = ("ring", "exponential", "pairs", "random")
MANY_TURNS = ("pairs", "random")
MOST_WORKERS = 1000  # with many turns, of which each worker has a part
RANDOM_TURNS = 64


@dataclass(frozen=True, slots=True)
class GossipOptions(StrategyOptions):
    name: str = "gossip"
    graph: str = one_of("ring", GRAPHS)

    elastic: ClassVar[bool] = False

    @property
    def collective(self) -> Collective:
        return Collective(peers=self.peers, turns=self.turns, spread=self.spread, replicas=True)

    @property
    def staleness_bound(self) -> int | None:
        return 0

    def check_cluster(self, num_workers: int, num_shards: int) -> None:
        StrategyOptions.check_cluster(self, num_workers, num_shards)
        if self.graph in MANY_TURNS and num_workers > MOST_WORKERS:
            most = f"cluster.workers must be <= {MOST_WORKERS:,} with strategy.graph={self.graph}"
            raise ValueError(f"{most}, got {num_workers}")

    def turns(self, num_workers: int) -> int:
        """Graphs that follow each other."""
        match self.graph:
            case "ring":
                return 1
            case "exponential":
                return (num_workers - 1).bit_length()
            case "pairs":
                return num_workers - 1 + num_workers % 2
        return RANDOM_TURNS

    def spread(self, num_workers: int) -> int:
        if self.graph == "random":
            return _spread_of_random(num_workers)
        return num_workers // 2 if self.graph == "ring" else self.turns(num_workers)

    def peers(self, turn: int, num_workers: int) -> list[list[int]]:
        """From whom each worker receives."""
        workers = range(num_workers)
        if self.graph == "ring":
            return [sorted({(worker - 1) % num_workers, (worker + 1) % num_workers}) for worker in workers]
        if self.graph == "exponential":
            return [[(worker - 2**turn) % num_workers] for worker in workers]
        if self.graph == "random":
            senders: list[list[int]] = [[] for _ in workers]
            for worker in workers:
                senders[_drawn(worker, turn, num_workers)].append(worker)
            return senders
        return [_opponent(worker, turn, num_workers) for worker in workers]


def _opponent(worker: int, turn: int, num_workers: int) -> list[int]:
    """Of a round of a tournament: of all but the last player those meet whose numbers make the same sum.

    The last one, where their number is even, meets whoever is left; else that one rests.
    """
    rounds = num_workers - 1 + num_workers % 2
    last = num_workers - 1 if num_workers % 2 == 0 else None
    alone = turn * (rounds + 1) // 2 % rounds  # twice its number is the sum
    if worker == last:
        return [alone]
    if worker == alone:
        return [] if last is None else [last]
    return [(turn - worker) % rounds]


def _drawn(worker: int, turn: int, num_workers: int) -> int:
    """To whom it sends in a turn of `random`: any other, all as likely."""
    digest = hashlib.sha256(f"{turn} {worker}".encode()).digest()
    return (worker + 1 + int.from_bytes(digest) % (num_workers - 1)) % num_workers


@cache
def _spread_of_random(num_workers: int) -> int:
    collective = GossipOptions(graph="random").collective
    turns = collective.all_turns(num_workers)
    found = [steps_to_spread(turns, first, num_workers * len(turns)) for first in range(len(turns))]
    return max(steps for steps in found if steps is not None)
