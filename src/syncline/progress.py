"""The course of a run, the same for every engine: when it ends, how far it is, its curve, its summary."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from syncline.config import RunConfig
from syncline.metrics import LOSSES, LOWER_IS_BETTER
from syncline.records.time_use import TimeUse

REPORT_EVERY_S = 0.2  # wall seconds between two looks at the progress


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

    def fraction(self, totals: "Totals") -> float:
        """Of the run that is done, 0 .. 1."""
        done = max(totals.samples / self.samples, totals.updates / self.updates, totals.time_s / self.time_s)
        return min(done, 1.0)


@dataclass(slots=True)
class Totals:
    """What a run has done so far. Of several shards the one furthest behind gives its updates and samples."""

    num_workers: int
    time_s: float = 0.0  # of the driving clock
    updates: int = 0
    samples: int = 0  # used in updates
    max_lead: int = 0  # most pushes that any worker was ever ahead of the slowest, at the first shard
    staleness: dict[int, int] = field(default_factory=dict)  # versions between pull and use -> gradients; at the end
    used_by_worker: list[int] = field(default_factory=list)  # gradients at the first shard; known at the end
    discarded_by_worker: list[int] = field(default_factory=list)  # likewise, at any time
    interrupted_by_worker: list[int] = field(default_factory=list)  # gradients broken off, at any time
    wasted_by_worker: list[int] = field(default_factory=list)  # of these, computed to the end all the same
    busy_s_by_worker: list[float] = field(default_factory=list)  # computing, injected delays included; at the end
    waits_for: list[tuple[float, int, int]] = field(default_factory=list)  # time_s, updates, gradients an update takes
    loss_sum: float = 0.0  # over the pushes that arrived since a reader last set it to 0
    loss_count: int = 0

    def __post_init__(self) -> None:
        for key in (
            "used_by_worker",
            "discarded_by_worker",
            "interrupted_by_worker",
            "wasted_by_worker",
            "busy_s_by_worker",
        ):
            if not getattr(self, key):
                setattr(self, key, [0] * self.num_workers)

    def begin(self, first_count: int | None) -> None:
        """The run begins with updates that wait for so many gradients, if the strategy tells."""
        if first_count is not None:
            self.waits_for.append((0.0, 0, first_count))

    @property
    def loss(self) -> float:
        """Mean over the pushes since the last reader; nan before the first."""
        return self.loss_sum / self.loss_count if self.loss_count else math.nan

    @property
    def count(self) -> int | None:
        """Gradients that an update waits for, where the strategy tells."""
        return self.waits_for[-1][2] if self.waits_for else None

    @property
    def mean_staleness(self) -> float:
        count = sum(self.staleness.values())
        return sum(stale * times for stale, times in self.staleness.items()) / count if count else 0.0

    def state_dict(self) -> dict[str, Any]:
        """Plain types that JSON can hold."""
        return asdict(self) | {"staleness": list(self.staleness.items())}

    def snapshot(self, rate: float) -> dict[str, Any]:
        """What is told of a state that is to be evaluated; the mean loss begins anew. `rate`: of the next update."""
        loss = self.loss if self.loss_count else None
        self.loss_sum, self.loss_count = 0.0, 0
        about = {"time_s": self.time_s, "updates": self.updates, "samples": self.samples}
        return about | {"train_loss": loss, "learning_rate": rate, "waits_for": self.count}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Totals":
        """What `state_dict` gave; its staleness comes back as it was."""
        waits_for = [tuple(change) for change in state["waits_for"]]
        return cls(**{**state, "staleness": dict(state["staleness"]), "waits_for": waits_for})


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come; what the live line shows."""

    updates: int
    samples: int
    epoch: float
    time_s: float  # of the driving clock
    loss: float  # mean over the pushes since the last evaluation; nan before the first
    metric: str  # that the run is judged by
    value: float  # of the metric at the last evaluation; nan before the first
    fraction: float  # of the run that is done, 0 .. 1
    wall_s: float
    count: int | None = None  # gradients that an update waits for, where the strategy tells


class Curve:
    """The evaluations of a run so far, and when its target was reached."""

    def __init__(self, config: RunConfig) -> None:
        self.rows: list[dict[str, Any]] = []  # of metrics.jsonl
        self.reached_s: float | None = None  # time at which the target was reached
        self.metric = config.target.metric or config.metrics[0]  # that the run is judged by
        self._target = config.target.value
        self._metrics = config.metrics

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        value, wanted = row[self.metric], self._target
        if wanted is not None and self.reached_s is None:
            reached = value <= wanted if self.metric in LOWER_IS_BETTER else value >= wanted
            self.reached_s = row["time_s"] if reached else None

    @property
    def value(self) -> float:
        """Of the metric that the run is judged by, at the last evaluation; nan before the first."""
        return self.rows[-1][self.metric] if self.rows else math.nan

    def best(self) -> dict[str, dict[str, Any]]:
        """For each metric its best value, and where on the curve it first was."""
        best = {}
        for metric in self._metrics if self.rows else ():
            pick = min if metric in LOWER_IS_BETTER else max
            row = pick(self.rows, key=lambda row: row[metric])
            best[metric] = {"value": row[metric], **{key: row[key] for key in ("time_s", "epoch", "updates")}}
        return best


def is_finite(metrics: Mapping[str, Any]) -> bool:
    """The loss on the test set is a finite number."""
    return all(math.isfinite(metrics[metric]) for metric in LOSSES if metric in metrics)


def evaluation_row(
    time_s: float, updates: int, samples: int, num_train: int, metrics: Mapping[str, float], **about: Any
) -> dict[str, Any]:
    """A line of metrics.jsonl.

    Args:
        time_s: of the driving clock, when the state evaluated was made.
        metrics: of the test set.
        about: train_loss, learning_rate, waits_for, wall_s; divergence where there are replicas.
    """
    return {"time_s": time_s, "epoch": samples / num_train, "updates": updates, "samples": samples, **metrics, **about}


def summary(
    config: RunConfig,
    engine: str,
    totals: Totals,
    ended_by: str,
    curve: Curve,
    time_use: TimeUse | None,
    *,
    num_train: int,
    num_parameters: int,
    best_possible: Mapping[str, float],
    wall_s: float,
) -> dict[str, Any]:
    """What summary.json holds.

    Args:
        time_use: None: not known.
        best_possible: metrics that nothing can surpass on these data, where they are known.
    """
    rows: Sequence[Mapping[str, Any]] = curve.rows
    busy = [busy_s / totals.time_s if totals.time_s else 0.0 for busy_s in totals.busy_s_by_worker]
    return {
        "identity": config.identity,
        "status": "diverged" if ended_by == "diverged" else "finished",
        "ended_by": ended_by,
        "strategy": config.strategy.name,
        "engine": engine,
        "time_kind": config.runner.time_kind,
        "time_s": totals.time_s,
        "updates": totals.updates,
        "seconds_per_update": totals.time_s / totals.updates if totals.updates else None,
        "gradients_used": sum(totals.used_by_worker),
        "gradients_discarded": sum(totals.discarded_by_worker),
        "gradients_interrupted": sum(totals.interrupted_by_worker),
        "gradients_wasted": sum(totals.wasted_by_worker),
        "samples": totals.samples,
        "epochs": totals.samples / num_train,
        "max_lead": totals.max_lead,
        "lead_bound": config.strategy.lead_bound,
        "lead_note": config.strategy.lead_note(totals.max_lead),
        "mean_staleness": totals.mean_staleness,
        "staleness": {str(stale): count for stale, count in sorted(totals.staleness.items())},
        "used_by_worker": totals.used_by_worker,
        "discarded_by_worker": totals.discarded_by_worker,
        "interrupted_by_worker": totals.interrupted_by_worker,
        "waits_for": totals.waits_for,
        "busy_by_worker": busy,
        **({} if time_use is None else time_use.summary(totals.time_s, busy)),
        "metric": curve.metric,
        "final": {metric: rows[-1][metric] for metric in config.metrics} if rows else None,
        "best": curve.best() or None,
        "best_possible": dict(best_possible) or None,
        "target": {"metric": curve.metric, "value": config.target.value, "time_s": curve.reached_s},
        **({"divergence": rows[-1]["divergence"]} if rows and "divergence" in rows[-1] else {}),
        "seed": config.seed,
        "num_parameters": num_parameters,
        "wall_s": wall_s,
    }
