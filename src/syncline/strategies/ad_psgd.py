"""AD-PSGD: every worker averages its replica with that of one peer after each gradient, and waits for nobody else.

    every worker i, on its own:  1  read x_i, and compute a gradient g_i there; meanwhile others may average into x_i
                                 2  choose a neighbour j at random, and set x_i and x_j both to (x_i + x_j) / 2 at once
                                 3  x_i <- the step of its own optimizer with g_i, which may be stale

    graph      neighbours of worker i, of W workers
    complete   all others
    ring       i - 1 and i + 1

An update is one worker's step. The staleness of a gradient is the number of averagings of x_i, its own among them, from
the reading to the step: 1 or more. Averaging keeps the mean of all replicas.

Source: Lian, Zhang, Zhang and Liu 2018, "Asynchronous decentralized parallel stochastic gradient descent", algorithm 1.

Departures:
- The paper divides the workers into an active and a passive set, of which a bipartite graph lets only active ones
  choose, so that no two wait for each other. Here all choose, on any graph: of two replicas that of the worker with the
  lower number is taken first, and no circle of workers can wait.
- The paper's matrices average several replicas at once; as in its experiments, two are averaged.
- Batch-norm statistics, and the samples and updates by which the learning rate goes, are averaged as weights are: W
  times a worker's mean count is what it knows of the run's. The gradient's statistics count as if they had been there
  when x_i was read.
- The mean of all replicas is evaluated.
"""

from dataclasses import dataclass
from typing import ClassVar

from syncline.checks import one_of
from syncline.strategies.neighbours import Neighbours
from syncline.strategies.protocol import StrategyOptions

GRAPHS = ("complete", "ring")


@dataclass(frozen=True, slots=True)
class AdPsgdOptions(StrategyOptions):
    name: str = "ad_psgd"
    graph: str = one_of("complete", GRAPHS)

    elastic: ClassVar[bool] = False

    @property
    def neighbours(self) -> Neighbours:
        return Neighbours(self.degree, self.neighbour)

    def degree(self, num_workers: int) -> int:
        """Neighbours of each worker."""
        return num_workers - 1 if self.graph == "complete" else min(2, num_workers - 1)

    def neighbour(self, worker: int, number: int, num_workers: int) -> int:
        """Of the complete graph the next, the one after it, ...; of the ring the next and the one before."""
        distance = 1 + number if self.graph == "complete" else 1 - 2 * number
        return (worker + distance) % num_workers
