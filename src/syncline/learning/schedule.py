"""Learning-rate schedules over epochs, and the two clocks that count epochs.

The rate is a pure function of the epochs before an update, so a resumed run needs no state of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from syncline.rounds import SINGLE, Rounds

LR_CLOCKS = ("samples", "server_updates")
SCHEDULES = ("step", "linear", "cosine", "exponential")


class Schedule(Protocol):
    @property
    def base(self) -> float:
        """The rate that all factors multiply, > 0."""

    def rate(self, epoch: float) -> float:
        """The rate for an update after `epoch` epochs (>= 0)."""


@dataclass(frozen=True, slots=True)
class StepSchedule:
    """rate = base * factor^(number of past `at_epochs`)."""

    base: float  # > 0
    factor: float = 0.1  # > 0
    at_epochs: tuple[float, ...] = ()

    def rate(self, epoch: float) -> float:
        return self.base * _power(self.factor, sum(epoch >= at for at in self.at_epochs))


@dataclass(frozen=True, slots=True)
class LinearSchedule:
    """Linear from base at `begin_epoch` to base * final_factor at `end_epoch`; constant before and after.

    Sources: as BERT is fine-tuned, final_factor = 0 (transformers' get_linear_schedule_with_warmup); with a late begin
    WSD, warm-up, stable, decay (Hu et al. 2024, MiniCPM, section 4).
    """

    base: float  # > 0
    end_epoch: float  # > begin_epoch
    final_factor: float = 0.0  # >= 0
    begin_epoch: float = 0.0  # >= 0

    def rate(self, epoch: float) -> float:
        left = min(max((self.end_epoch - epoch) / (self.end_epoch - self.begin_epoch), 0.0), 1.0)
        return self.base * (self.final_factor + (1 - self.final_factor) * self.factor(left))

    def factor(self, left: float) -> float:
        """How much of the way down is left, in [0, 1], where so much of its time is."""
        return left


@dataclass(frozen=True, slots=True)
class CosineSchedule(LinearSchedule):
    """The same along half a period of a cosine.

    Source: Loshchilov and Hutter (2017), equation 5, without restarts (torch's CosineAnnealingLR).
    """

    def factor(self, left: float) -> float:
        return (1 - math.cos(math.pi * left)) / 2


@dataclass(frozen=True, slots=True)
class ExponentialSchedule:
    """rate = base * factor^((epoch - begin_epoch) / every_epochs), with a staircase the exponent rounded down.

    Source: TensorFlow's exponential_decay, as Inception was trained.
    """

    base: float  # > 0
    factor: float  # > 0
    every_epochs: float  # > 0
    staircase: bool = True
    begin_epoch: float = 0.0  # >= 0; constant before

    def rate(self, epoch: float) -> float:
        exponent = max(epoch - self.begin_epoch, 0.0) / self.every_epochs
        return self.base * _power(self.factor, math.floor(exponent) if self.staircase else exponent)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A linear rise from base * start to base during the first `epochs`, then another schedule.

    The rate of an update is that of the time before it, so with start = 0 the first update only changes the optimizer's
    state, as in transformers' get_linear_schedule_with_warmup.

    Source: Goyal et al. (2017), section 2.2, where k workers start with the rate of one: start = 1 / k.
    """

    then: Schedule
    epochs: float  # > 0
    start: float = 0.0  # in [0, 1]

    @property
    def base(self) -> float:
        return self.then.base

    def rate(self, epoch: float) -> float:
        if epoch >= self.epochs:
            return self.then.rate(epoch)
        return self.base * (self.start + (1 - self.start) * epoch / self.epochs)


def _power(factor: float, exponent: float) -> float:
    """Infinity on overflow: such a run diverges."""
    try:
        return math.pow(factor, exponent)
    except OverflowError:
        return math.inf


def build_schedule(
    base: float,
    kind: str = "step",
    factor: float = 0.1,
    at_epochs: Sequence[float] = (),
    every_epochs: float = 1.0,
    staircase: bool = True,
    end_epoch: float | None = None,
    final_factor: float = 0.0,
    from_epoch: float | None = None,
    warmup_epochs: float = 0.0,
    warmup_from: float = 0.0,
) -> Schedule:
    """A schedule of this kind after an optional warm-up.

    Steps are at epochs of the whole run; another decay begins at the end of the warm-up, or at `from_epoch`.

    Args:
        base: rate at the end of the warm-up, > 0.
        kind: one of SCHEDULES.
        factor: of step and exponential, > 0.
        at_epochs: of step, ascending, none within the warm-up.
        every_epochs, staircase: of exponential.
        end_epoch, final_factor, from_epoch: of linear and cosine, which require end_epoch.
        warmup_epochs, warmup_from: see WarmUp; 0 epochs: none.
    """
    then: Schedule
    if kind == "step":
        then = StepSchedule(base, factor, tuple(at_epochs))
    elif kind in ("linear", "cosine"):
        assert end_epoch is not None
        decay = LinearSchedule if kind == "linear" else CosineSchedule
        then = decay(base, end_epoch, final_factor, warmup_epochs if from_epoch is None else from_epoch)
    else:
        assert kind == "exponential"
        then = ExponentialSchedule(base, factor, every_epochs, staircase, begin_epoch=warmup_epochs)
    return WarmUp(then, warmup_epochs, warmup_from) if warmup_epochs else then


@dataclass(frozen=True, slots=True)
class EpochClock:
    """The number of past epochs of the whole training set, for the learning rate.

    `samples`: samples used in updates / samples of the set. `server_updates`: as in MXNet's training script of 2018,
    server updates / iterations of one worker's epoch: correct for BSP, but asynchronous updates are P times as many,
    so the rate drops P times too early.
    """

    kind: str  # one of LR_CLOCKS
    num_samples: int
    num_workers: int
    batch_size: int  # of one worker
    rounds: Rounds = SINGLE  # the mini-batches of its pushes

    def epoch(self, samples: int, updates: int) -> float:
        if self.kind == "server_updates":
            samples = self.rounds.batches(updates).start * self.num_workers * self.batch_size
        return samples / self.num_samples
