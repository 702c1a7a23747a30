"""Gossip: replicas average with the few peers that a graph names, and wait for nobody else.

    every worker, at step t:  its own gradient, its own optimizer's step, then the mean of its parameters and those that
                              its peers at step t have sent it; of batch-norm statistics likewise

    graph         peers of worker i at step t, of W workers                                 steps that join all workers
    ring          i - 1 and i + 1                                                           floor(W / 2)
    exponential   receives from i - 2^(t mod T), sends to i + 2^(t mod T); T = ceil(log2 W)  T
    pairs         the opponent of round t of a tournament in which everybody meets          W - 1, or W if that is odd

On each graph a worker sends to as many as it receives from, and all means have equal weights: the mean of all replicas
stays, and the push-sum weights of SGP are all 1.

Sources: Lian et al. 2017, "Can decentralized algorithms outperform centralized algorithms?", algorithm 1 (D-PSGD, on a
ring); Assran et al. 2019, "Stochastic gradient push for distributed deep learning", algorithm 1 and appendix A (SGP,
exponential with one peer).

Departures: D-PSGD adds the gradient to the mean of the weights that it was computed at, as they were before the step;
here, as in SGP, the step is averaged too. The mean of all replicas is evaluated; SGP's and D-PSGD's measure likewise.
"""

from dataclasses import dataclass
from typing import ClassVar

from syncline.checks import one_of
from syncline.strategies.collective import Collective
from syncline.strategies.protocol import StrategyOptions

GRAPHS = ("ring", "exponential", "pairs")
MOST_IN_PAIRS = 1000  # workers, whose tournament has as many rounds


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
        if self.graph == "pairs" and num_workers > MOST_IN_PAIRS:
            most = f"cluster.workers must be <= {MOST_IN_PAIRS:,} with strategy.graph=pairs"
            raise ValueError(f"{most}, got {num_workers}")

    def turns(self, num_workers: int) -> int:
        """Graphs that follow each other."""
        if self.graph == "ring":
            return 1
        return (num_workers - 1).bit_length() if self.graph == "exponential" else num_workers - 1 + num_workers % 2

    def spread(self, num_workers: int) -> int:
        return num_workers // 2 if self.graph == "ring" else self.turns(num_workers)

    def peers(self, turn: int, num_workers: int) -> list[list[int]]:
        """From whom each worker receives."""
        workers = range(num_workers)
        if self.graph == "ring":
            return [sorted({(worker - 1) % num_workers, (worker + 1) % num_workers}) for worker in workers]
        if self.graph == "exponential":
            return [[(worker - 2**turn) % num_workers] for worker in workers]
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
