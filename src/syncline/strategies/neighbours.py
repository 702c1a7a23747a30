"""Whom a worker may average with when it pleases: a value of the options of a strategy of asynchronous peers.

This file may hold: who may meet whom. It may not hold: I/O, clocks, tensors, random numbers (an engine chooses), or
anything of one particular algorithm.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Neighbours:
    """A graph of workers; whoever has a gradient chooses one of its neighbours, and both replicas become their mean.

    Whoever may choose a worker may be chosen by it, and the graph joins all workers.

    Args:
        degree: workers -> number of neighbours of each.
        neighbour: (worker, number from 0 to degree - 1, workers) -> this neighbour; each has one number.
    """

    degree: Callable[[int], int]
    neighbour: Callable[[int, int, int], int]
