"""Follows a run, the same for every engine: its curve, its target, its divergence, its progress, its summary."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from syncline.config import LiveConfig, OwnTaskConfig, RunConfig
from syncline.metrics import LOSSES
from syncline.progress import REPORT_EVERY_S, Limits, Progress, Totals
from syncline.records.time_use import TimeUse
from syncline.timing.cluster import mean_gradient_s

OnEvaluation = Callable[[Mapping[str, Any]], None]
"""Receives each row of metrics.jsonl."""

OnProgress = Callable[[Progress], None]
"""Receives a report of the progress, every `REPORT_EVERY_S` or so."""


class Curve:
    """The evaluations of a run so far, and when it reached its target."""

    def __init__(self, config: RunConfig) -> None:
        self.rows: list[dict[str, Any]] = []  # of metrics.jsonl
        self.reached_s: float | None = None  # time at which the target was reached
        self.metric = config.target.metric or config.metrics[0]  # by which the run is judged
        self._target = config.target.value
        self._metrics, self._is_lower_better = config.metrics, config.task.is_lower_better

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        value, wanted = row[self.metric], self._target
        if wanted is not None and self.reached_s is None:
            reached = value <= wanted if self._is_lower_better(self.metric) else value >= wanted
            self.reached_s = row["time_s"] if reached else None

    @property
    def value(self) -> float:
        """The metric by which the run is judged, at the last evaluation; nan before the first."""
        return self.rows[-1][self.metric] if self.rows else math.nan

    def best(self) -> dict[str, dict[str, Any]]:
        """The best value of each metric, and the first point of the curve that has it."""
        best = {}
        for metric in self._metrics if self.rows else ():
            pick = min if self._is_lower_better(metric) else max
            row = pick(self.rows, key=lambda row: row[metric])
            best[metric] = {"value": row[metric], **{key: row[key] for key in ("time_s", "epoch", "updates")}}
        return best


def evaluation_row(
    time_s: float, updates: int, samples: int, num_train: int, metrics: Mapping[str, float], **about: Any
) -> dict[str, Any]:
    """A line of metrics.jsonl.

    Args:
        time_s: of the driving clock, when the state evaluated was made; at the end by `max_time_s` that limit.
        metrics: of the test set.
        about: train_loss, learning_rate, waits_for, wall_s; divergence where there are replicas.
    """
    return {"time_s": time_s, "epoch": samples / num_train, "updates": updates, "samples": samples, **metrics, **about}


class RunMonitor:
    """What is known of one run while an engine makes it.

    Args:
        wall_s: wall seconds spent before, where a run is resumed.
    """

    def __init__(
        self, config: RunConfig, on_evaluation: OnEvaluation, on_progress: OnProgress, wall_s: float = 0.0
    ) -> None:
        self.curve = Curve(config)
        self.has_diverged = False  # a loss on the test set, or a metric of the user's own, was not a finite number
        self.num_parameters = 0  # known once `describe` was called
        self.best_possible: Mapping[str, float] = {}  # metrics that nothing can surpass on these data; likewise
        self._num_train: int | None = None
        self._config, self._on_evaluation, self._on_progress = config, on_evaluation, on_progress
        self._begun = time.perf_counter() - wall_s
        self._next_report_s = 0.0

    def describe(self, num_train: int, num_parameters: int, best_possible: Mapping[str, float]) -> None:
        """Take what is known once data and model are there; see the attributes of these names."""
        self._num_train, self.num_parameters, self.best_possible = num_train, num_parameters, best_possible

    @property
    def num_train(self) -> int:
        """Training samples. Raises ConfigError if only the data can tell, and `describe` was not called yet."""
        return self._config.dataset.num_train if self._num_train is None else self._num_train

    @num_train.setter
    def num_train(self, num: int) -> None:
        self._num_train = num

    @property
    def limits(self) -> Limits:
        return Limits.of(self._config, self.num_train)

    @property
    def wall_s(self) -> float:
        return time.perf_counter() - self._begun

    @property
    def has_reached_target(self) -> bool:
        return self.curve.reached_s is not None

    def add(self, row: dict[str, Any]) -> bool:
        """Add an evaluation to the curve. Returns False, and adds nothing, if the run has diverged."""
        finite = self._config.metrics if isinstance(self._config.task, OwnTaskConfig) else LOSSES
        if not all(math.isfinite(row[metric]) for metric in finite if metric in row):
            self.has_diverged = True
            return False
        self.curve.add(row)
        self._on_evaluation(row)
        return True

    def restore(self, rows: Iterable[dict[str, Any]]) -> None:
        """Go back to this curve; `on_evaluation` received its rows before."""
        self.curve, self.has_diverged = Curve(self._config), False
        for row in rows:
            self.curve.add(row)

    @property
    def is_report_due(self) -> bool:
        return self.wall_s >= self._next_report_s

    def report(
        self,
        *,
        time_s: float,
        updates: int,
        samples: int,
        loss: float,
        count: int | None,
        fraction: float | None = None,
    ) -> None:
        """Report the progress.

        Args:
            time_s, updates, samples, loss, count: see `Progress`.
            fraction: of the run that is done, 0 .. 1; None: it follows from the limits.
        """
        wall_s = self.wall_s
        self._next_report_s = wall_s + REPORT_EVERY_S
        if fraction is None:
            fraction = self.limits.fraction(time_s=time_s, updates=updates, samples=samples)
        epoch, curve = samples / self.num_train, self.curve
        progress = Progress(updates, samples, epoch, time_s, loss, curve.metric, curve.value, fraction, wall_s, count)
        self._on_progress(progress)

    def summary(self, engine: str, totals: Totals, ended_by: str, time_use: TimeUse | None) -> dict[str, Any]:
        """What summary.json holds; `time_use`: None where it is not known."""
        is_own = isinstance(self._config.task, OwnTaskConfig)
        config, curve, last = self._config, self.curve, self.curve.rows[-1] if self.curve.rows else None
        return {
            "identity": config.identity,
            "status": "diverged" if ended_by == "diverged" else "finished",
            "ended_by": ended_by,
            "strategy": config.strategy.name,
            "engine": engine,
            "time_kind": config.runner.time_kind,
            **totals.summary(),
            "epochs": totals.samples / self.num_train,
            "lead_bound": config.strategy.lead_bound,
            "lead_note": config.strategy.lead_note(totals.max_lead),
            **({} if time_use is None else time_use.summary(totals.time_s, totals.busy_by_worker)),
            "goodput": goodput(config, totals, self.num_train),
            "metric": curve.metric,
            **({"lower_is_better": config.task.is_lower_better(curve.metric)} if is_own else {}),
            "final": None if last is None else {metric: last[metric] for metric in config.metrics},
            "best": curve.best() or None,
            "best_possible": dict(self.best_possible) or None,
            "target": {"metric": curve.metric, "value": config.target.value, "time_s": curve.reached_s},
            **({"divergence": last["divergence"]} if last is not None and "divergence" in last else {}),
            "seed": config.seed,
            "num_parameters": self.num_parameters,
            "wall_s": self.wall_s,
        }


def goodput(config: RunConfig, totals: Totals, num_train: int) -> float | None:
    """What the gradients that were used take by the cluster's means, over the seconds of all workers.

    1: all workers compute all the time, and nothing is lost, cancelled or discarded. None: real processes do not keep
    the cluster's seconds.
    """
    if isinstance(config.runner, LiveConfig) and config.runner.pace != "absolute":
        return None
    rounds, needed_s = config.rounds(num_train), 0.0
    for worker, used in enumerate(totals.used_by_worker):
        mini_batches = rounds.of(worker).batches(used).start
        needed_s += mini_batches * mean_gradient_s(config.cluster, config.scenario, worker)
    return needed_s / (totals.num_workers * totals.time_s) if totals.time_s else 0.0
