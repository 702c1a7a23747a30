"""How far a run is, in the same terms for every engine: its limits, its totals, and the reports of its progress."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import zip_longest
from typing import Any

from syncline.config import RunConfig

REPORT_EVERY_S = 0.2  # wall seconds between two reports of the progress


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run ends: as soon as one of them is reached."""

    samples: float = math.inf  # used in updates
    updates: float = math.inf
    time_s: float = math.inf  # of the driving clock

    @classmethod
    def of(cls, config: RunConfig, num_train: int) -> "Limits":
        return cls(
            samples=math.inf if config.epochs is None else config.epochs * num_train,
            updates=config.max_updates or math.inf,
            time_s=config.max_time_s or math.inf,
        )

    def reached(self, samples: float, updates: float) -> str | None:
        """Which of the two ends the run, if one does."""
        if samples >= self.samples:
            return "epochs"
        return "max_updates" if updates >= self.updates else None

    def fraction(self, *, time_s: float, updates: int, samples: int) -> float:
        """The fraction of the run that is done, 0 .. 1."""
        return min(max(samples / self.samples, updates / self.updates, time_s / self.time_s), 1.0)


@dataclass(slots=True)
class Totals:
    """What a run has done so far. Of several shards the one furthest behind gives its updates and samples."""

    num_workers: int
    time_s: float = 0.0  # of the driving clock
    updates: int = 0
    samples: int = 0  # used in updates
    max_lead: int = 0  # most pushes that any worker was ever ahead of the slowest, at the first shard
    # [s]: gradients used s versions after their pull. A list: with 10,000 workers a dict would not fit the caches.
    staleness: list[int] = field(default_factory=list)
    used_by_worker: list[int] = field(default_factory=list)  # gradients at the first shard; known at the end, or added
    discarded_by_worker: list[int] = field(default_factory=list)  # likewise, at any time
    interrupted_by_worker: list[int] = field(default_factory=list)  # gradients cancelled, at any time
    wasted_by_worker: list[int] = field(default_factory=list)  # those of them that were computed to the end
    busy_s_by_worker: list[float] = field(default_factory=list)  # computing, injected delays included; at the end
    waits_for: list[tuple[float, int, int]] = field(default_factory=list)  # time_s, updates, gradients an update takes
    loss_sum: float = 0.0  # over the pushes that arrived since a reader last set it to 0
    loss_count: int = 0

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.name.endswith("_by_worker") and not getattr(self, each.name):
                setattr(self, each.name, [0] * self.num_workers)

    def begin(self, first_count: int | None) -> None:
        """The run begins with updates of `first_count` gradients each; None where the strategy does not say."""
        if first_count is not None:
            self.waits_for.append((0.0, 0, first_count))

    def add(self, worker: int, at: float, num_samples: int, staleness: int) -> None:
        """An update with one gradient of this worker."""
        self.time_s, self.updates, self.samples = max(self.time_s, at), self.updates + 1, self.samples + num_samples
        self.used_by_worker[worker] += 1
        self.staleness += [0] * (staleness + 1 - len(self.staleness))
        self.staleness[staleness] += 1

    @property
    def loss(self) -> float:
        """Mean over the pushes since the last reader; nan before the first."""
        return self.loss_sum / self.loss_count if self.loss_count else math.nan

    @property
    def count(self) -> int | None:
        """Gradients that an update waits for; None where the strategy does not say."""
        return self.waits_for[-1][2] if self.waits_for else None

    @property
    def mean_staleness(self) -> float:
        num_used = sum(self.staleness)
        return sum(stale * count for stale, count in enumerate(self.staleness)) / num_used if num_used else 0.0

    @property
    def busy_by_worker(self) -> list[float]:
        """The fraction of the time that each worker computed."""
        return [busy_s / self.time_s if self.time_s else 0.0 for busy_s in self.busy_s_by_worker]

    def summary(self) -> dict[str, Any]:
        """Their part of summary.json."""
        return {
            "time_s": self.time_s,
            "updates": self.updates,
            "seconds_per_update": self.time_s / self.updates if self.updates else None,
            "gradients_used": sum(self.used_by_worker),
            "gradients_discarded": sum(self.discarded_by_worker),
            "gradients_interrupted": sum(self.interrupted_by_worker),
            "gradients_wasted": sum(self.wasted_by_worker),
            "samples": self.samples,
            "max_lead": self.max_lead,
            "mean_staleness": self.mean_staleness,
            "staleness": {str(stale): count for stale, count in enumerate(self.staleness) if count},
            "used_by_worker": self.used_by_worker,
            "discarded_by_worker": self.discarded_by_worker,
            "interrupted_by_worker": self.interrupted_by_worker,
            "waits_for": self.waits_for,
            "busy_by_worker": self.busy_by_worker,
        }

    def state_dict(self) -> dict[str, Any]:
        """Plain types that JSON can hold."""
        return asdict(self)

    def snapshot(self, rate: float) -> dict[str, Any]:
        """What describes a state that is to be evaluated; resets the mean loss. `rate`: of the next update."""
        loss = self.loss if self.loss_count else None
        self.loss_sum, self.loss_count = 0.0, 0
        about = {"time_s": self.time_s, "updates": self.updates, "samples": self.samples}
        return about | {"train_loss": loss, "learning_rate": rate, "waits_for": self.count}

    @classmethod
    def of_shards(cls, parts: Sequence["Totals"]) -> "Totals":
        """The totals of a run from those of its shards.

        A gradient counts once, at the first shard. The shard furthest behind tells how far the run is. Staleness counts
        each block of a gradient.
        """
        whole = cls.from_state(parts[0].state_dict())
        whole.staleness = [sum(counts) for counts in zip_longest(*(part.staleness for part in parts), fillvalue=0)]
        whole.time_s = max(part.time_s for part in parts)
        whole.updates = min(part.updates for part in parts)
        whole.samples = min(part.samples for part in parts)
        return whole

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Totals":
        """The inverse of `state_dict`."""
        waits_for = [tuple(change) for change in state["waits_for"]]
        return cls(**{**state, "waits_for": waits_for})


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; what the live line shows."""

    updates: int
    samples: int
    epoch: float
    time_s: float  # of the driving clock
    loss: float  # mean over the pushes since the last evaluation; nan before the first
    metric: str  # by which the run is judged
    value: float  # of the metric at the last evaluation; nan before the first
    fraction: float  # of the run that is done, 0 .. 1
    wall_s: float
    count: int | None = None  # gradients that an update waits for; None where the strategy does not say
