"""Which mini-batches a push is of, where a worker makes several local steps before each."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rounds:
    """A worker's rounds 0, 1, ...; each ends with its push of that number, and has consecutive mini-batches.

    With `single` rounds of one mini-batch before those of `steps` it is post-local SGD (Lin et al. 2020).
    """

    steps: int = 1  # H >= 1: mini-batches of a round
    single: int = 0  # >= 0: rounds before them that have one mini-batch each
    by_worker: tuple[int, ...] = ()  # of all workers' rounds: H of each where they differ

    def of(self, worker: int) -> "Rounds":
        """Those of one worker, of all workers' rounds."""
        return Rounds(self.by_worker[worker], self.single) if self.by_worker else self

    @property
    def differ(self) -> bool:
        """Not every push of every worker has `steps` mini-batches."""
        return self.single > 0 or bool(self.by_worker)

    def size(self, number: int) -> int:
        """Mini-batches of this round."""
        return self.steps if number >= self.single else 1

    def batches(self, number: int) -> range:
        """The mini-batches of this round, by the worker's own count from 0."""
        first = self.single + (number - self.single) * self.steps if number > self.single else number
        return range(first, first + self.size(number))

    def describe(self, number: int) -> str:
        """Why a gradient takes long, in the event log; empty for one mini-batch."""
        size = self.size(number)
        return "" if size == 1 else f"{size} local steps"


SINGLE = Rounds()
"""A push of each mini-batch."""
