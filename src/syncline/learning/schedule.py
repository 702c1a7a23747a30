"""Learning-rate schedules over epochs, and the two clocks that may count the epochs."""

from dataclasses import dataclass

LR_CLOCKS = ("samples", "server_updates")


@dataclass(frozen=True, slots=True)
class StepSchedule:
    """rate = base * factor^(number of `at_epochs` that are over)."""

    base: float  # > 0
    factor: float = 0.1  # > 0
    at_epochs: tuple[float, ...] = ()

    def rate(self, epoch: float) -> float:
        """The rate for an update made when `epoch` epochs (>= 0) are over."""
        return self.base * self.factor ** sum(epoch >= at for at in self.at_epochs)


@dataclass(frozen=True, slots=True)
class EpochClock:
    """How many epochs of the whole training set are over, as the learning rate sees it.

    `samples`: samples used in updates / samples of the set. `server_updates`: what MXNet's training script of 2018
    does, which counts server updates against the iterations of one worker's epoch: right for BSP, but asynchronous
    updates are P times as many, so the rate drops P times too early.
    """

    kind: str  # one of LR_CLOCKS
    num_samples: int
    num_workers: int
    batch_size: int  # of one worker

    def epoch(self, samples: int, updates: int) -> float:
        if self.kind == "server_updates":
            samples = updates * self.num_workers * self.batch_size
        return samples / self.num_samples
