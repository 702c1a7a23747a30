"""AdaSync (Dutta et al. 2021; adasync.txt, section 6 and appendix D): K grows as the loss falls, on any K-variant.

    every `interval` seconds:  F <- mean of the losses that workers reported since the last time
        K-sync:                                 K <- the positive root of K^2 + a K - a P, a = (F_0/F) K_0^2/(P - K_0)
        K-batch-sync, K-async, K-batch-async:   K <- K_0 sqrt(F_0/F)
        rounded to the nearest integer, within 1 .. P, never decreasing

The paper assumes that F is largest "at the beginning of training", and does not say how F_0 is estimated:
- `f0=interval`: the first F, which is also that of the first interval's updates. K stays at K_0 until the second F.
- `f0=start`: the mean of the losses at the initial weights that workers reported by the end of the first interval.

Departures: the end of an interval takes effect at the first push after it, for the pushes that follow. F is an estimate
from mini-batches, so its noise could suggest a smaller K; K never falls. Without losses (times alone) K stays at K_0.
A K-batch variant counts mini-batches, so `k_cap` may lift its bound above P.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from syncline.checks import check, one_of, ranged
from syncline.strategies.k_async import KAsync, KBatchAsync
from syncline.strategies.k_sync import KSync
from syncline.strategies.machine import Machine
from syncline.strategies.protocol import Command, Event, PushArrived, StrategyOptions

VARIANTS = ("k_sync", "k_batch_sync", "k_async", "k_batch_async")
FIRST_LOSSES = ("interval", "start")


@dataclass(frozen=True, slots=True)
class AdasyncOptions(StrategyOptions):
    name: str = "adasync"
    variant: str = one_of("k_async", VARIANTS)
    k: int = ranged(1, "in 1 .. 1,000,000")  # K_0, 1 .. P
    interval: float = ranged(60.0, "> 0")  # seconds of the driving clock between two changes of K
    # upper bound of K, for a K-batch variant only; None: the number of workers
    k_cap: int | None = ranged(None, "in 1 .. 1,000,000")
    f0: str = one_of("interval", FIRST_LOSSES)  # what F_0 is

    single_server: ClassVar[bool] = True
    follows_losses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        StrategyOptions.__post_init__(self)
        rule = f"strategy.k_cap must be null, or >= strategy.k = {self.k} on a K-batch variant"
        fits = self.k_cap is None or (self.k_cap >= self.k and "batch" in self.variant)
        check(fits, rule, f"{self.k_cap} on {self.variant}")

    @property
    def interrupts(self) -> bool:
        return self.variant in ("k_sync", "k_batch_sync")

    @property
    def staleness_bound(self) -> int | None:
        return 0 if self.interrupts else None

    @property
    def first_count(self) -> int | None:
        return self.k

    def check_cluster(self, num_workers: int, num_shards: int) -> None:
        StrategyOptions.check_cluster(self, num_workers, num_shards)
        if self.k > (self.k_cap or num_workers):
            raise ValueError(f"strategy.k must be <= cluster.workers = {num_workers}, got {self.k}")

    def start(self, num_workers: int) -> "Adasync":
        return Adasync(num_workers, self)


class Adasync(Machine):
    k: int
    first_loss: float | None  # F_0
    loss_sum: float  # since the last interval began
    loss_count: int
    start_sum: float  # at the initial weights, in the first interval
    start_count: int
    ends: float  # of the interval, seconds
    variant: KSync | KAsync | KBatchAsync

    def __init__(self, num_workers: int, options: AdasyncOptions) -> None:
        self.options = options
        self.num_workers = num_workers  # P of the formulas; workers that left may rejoin
        self.k = options.k
        self.first_loss, self.loss_sum, self.loss_count = None, 0.0, 0
        self.start_sum, self.start_count = 0.0, 0
        self.ends = options.interval
        if options.variant in ("k_sync", "k_batch_sync"):
            self.variant = KSync(num_workers, options.k, is_batch=options.variant == "k_batch_sync")
        else:
            self.variant = (KBatchAsync if options.variant == "k_batch_async" else KAsync)(num_workers, options.k)

    def handle(self, event: Event) -> list[Command]:
        commands = self.variant.handle(event)
        if not isinstance(event, PushArrived):
            return commands
        if event.at >= self.ends:
            commands += self._adapt()
            self.ends = (event.at // self.options.interval + 1) * self.options.interval
            if self.ends <= event.at:  # rounded down
                self.ends += self.options.interval
        self.loss_sum += event.loss
        self.loss_count += 1
        if event.version == 0 and self.first_loss is None:
            self.start_sum += event.loss
            self.start_count += 1
        return commands

    def _adapt(self) -> list[Command]:
        """Choose K at the end of an interval."""
        if self.loss_count == 0:
            return []
        loss = self.loss_sum / self.loss_count
        self.loss_sum, self.loss_count = 0.0, 0
        if self.first_loss is None:
            self.first_loss = loss if self.options.f0 == "interval" else self.start_sum / self.start_count
        self.k = max(self.k, self.k_for(self.first_loss, loss))
        return self.variant.members.want(self.k, f"F_0 {self.first_loss:.4g}, F {loss:.4g}")

    def k_for(self, first_loss: float, loss: float) -> int:
        """K for a loss F > 0 that was F_0 > 0 at the beginning; K_0 without losses."""
        options, num_workers = self.options, self.num_workers
        if not (0 < loss < math.inf and 0 < first_loss < math.inf):
            return options.k
        ratio = first_loss / loss
        if options.variant != "k_sync":
            k = options.k * math.sqrt(ratio)
        elif options.k >= num_workers:
            k = num_workers
        else:
            a = ratio * options.k**2 / (num_workers - options.k)
            # the positive root of K^2 + a K - a P, in the form that does not cancel
            k = 2 * num_workers / (1 + math.sqrt(1 + 4 * num_workers / a))
        return max(1, math.floor(min(k, options.k_cap or num_workers) + 0.5))
