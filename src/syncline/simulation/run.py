"""From a config to a finished run in virtual time: builds the parts, watches the course, sums it up."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from syncline.config import METRICS, ConfigError, RunConfig
from syncline.datasets import load
from syncline.datasets.images import ImageDataset
from syncline.datasets.sharding import WorkerShare
from syncline.learning.evaluate import LOWER_IS_BETTER, Evaluator
from syncline.learning.flat import FlatModule
from syncline.learning.optimizer import Sgd
from syncline.learning.schedule import EpochClock, StepSchedule
from syncline.learning.task import Batches, GradientFunction
from syncline.models import build
from syncline.records.events import EventLog
from syncline.simulation.engine import Limits, Simulation, Totals
from syncline.simulation.server import Shard, Version, blocks
from syncline.simulation.worker import Workers
from syncline.timing.cluster import Cluster

REPORT_EVERY_S = 0.2  # wall seconds between two looks at the progress


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come; what the live line shows."""

    updates: int
    samples: int
    epoch: float
    time_s: float  # virtual
    loss: float  # mean over the pushes since the last evaluation; nan before the first
    accuracy: float  # of the last evaluation; nan before the first
    fraction: float  # of the run that is done, 0 .. 1
    wall_s: float


@dataclass(frozen=True, slots=True)
class Learning:
    """The tensors of a run."""

    shards: list[Shard]
    workers: Workers
    evaluator: Evaluator
    num_parameters: int
    num_train: int  # images


def simulate(
    config: RunConfig,
    on_evaluation: Callable[[Mapping[str, Any]], None],
    on_progress: Callable[[Progress], None],
    log: EventLog | None = None,
) -> dict[str, Any]:
    """Run `config` to its end.

    Args:
        on_evaluation: given each row of metrics.jsonl.
        on_progress: called every `REPORT_EVERY_S` or so.
        log: takes the events.

    Returns:
        The summary, as summary.json holds it.

    Raises:
        ConfigError: the parts do not fit each other.
        DataMissingError: the data set is not there.
    """
    begun = time.perf_counter()
    torch.set_num_threads(config.threads)
    learning = build_learning(config) if config.gradients else None
    size = learning.num_parameters if learning is not None else _num_parameters(config)
    message_bytes = 4 * size if config.cluster.message_bytes is None else config.cluster.message_bytes
    shards = range(config.cluster.shards)
    num_train = learning.num_train if learning is not None else config.dataset.num_train
    course = _Course(config, learning, num_train, on_evaluation, on_progress, begun)
    simulation = Simulation(
        strategies=[config.strategy.start(config.cluster.workers) for _ in shards],
        cluster=Cluster(config.cluster, config.scenario, config.seed),
        block_bytes=[block.stop - block.start for block in blocks(message_bytes, config.cluster.shards)],
        batch_size=config.batch_size,
        limits=course.limits,
        observer=course,
        learning=None if learning is None else (learning.shards, learning.workers),
        log=None if log is None else log.append,
    )
    course.begin(simulation.totals)
    ended_by = simulation.run()
    course.end(simulation.totals, ended_by)
    return _summary(config, simulation.totals, ended_by, course, size, time.perf_counter() - begun)


def build_learning(config: RunConfig) -> Learning:
    """Model, data, shards and workers of a run, on its device; the same seed gives the same bits.

    Raises:
        ConfigError, DataMissingError: as `simulate`.
    """
    device = torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")
    if config.device == "cuda" and device.type == "cpu":
        raise ConfigError("device=cuda, but torch sees no CUDA device; use device=auto or device=cpu")
    options = asdict(config.dataset)
    augment = options.pop("augment")
    dataset = load(**options)
    flat = FlatModule(_build_model(config, dataset).to(device))
    num_workers = config.cluster.workers
    schedule = StepSchedule(
        config.optimizer.lr, config.optimizer.schedule.factor, tuple(config.optimizer.schedule.at_epochs)
    )
    clock = EpochClock(config.lr_clock, len(dataset.train_labels), num_workers, config.batch_size)
    shards = [
        Shard(
            block=block,
            current=Version(
                flat.weights[block].clone(), flat.buffers.clone() if number == 0 else flat.buffers.new_empty(0)
            ),
            optimizer=Sgd(config.optimizer.momentum, config.optimizer.weight_decay, config.momentum),
            rate=lambda samples, updates: schedule.rate(clock.epoch(samples, updates)),
            num_workers=num_workers,
            divide_by_workers=config.async_gradient == "mean_over_workers",
        )
        for number, block in enumerate(blocks(flat.weights.numel(), config.cluster.shards))
    ]
    shares = [
        WorkerShare(len(dataset.train_labels), num_workers, worker, config.batch_size, config.seed)
        for worker in range(num_workers)
    ]
    workers = Workers(shards, GradientFunction(flat), Batches(dataset, device, augment), shares, config.seed)
    return Learning(shards, workers, Evaluator(dataset, flat, device), flat.weights.numel(), len(dataset.train_labels))


def _build_model(config: RunConfig, dataset: ImageDataset) -> torch.nn.Module:
    _, channels, size, _ = dataset.train_images.shape
    torch.manual_seed(config.seed)
    try:
        return build(**asdict(config.model), in_channels=channels, image_size=size, num_classes=dataset.num_classes)
    except ValueError as error:
        raise ConfigError(f"model={config.model.name} with dataset={config.dataset.name}: {error}") from None


def _num_parameters(config: RunConfig) -> int:
    """For the size of messages where nothing is learned; not needed where messages take no time."""
    if config.cluster.network.bandwidth_gbps is None or config.cluster.message_bytes is not None:
        return 0
    channels, size, classes = config.dataset.shape
    with torch.device("meta"):
        model = build(**asdict(config.model), in_channels=channels, image_size=size, num_classes=classes)
    return sum(parameter.numel() for parameter in model.parameters())


class _Course:
    """Watches a run: evaluates when it is time, reports progress, ends it at its target."""

    def __init__(
        self,
        config: RunConfig,
        learning: Learning | None,
        num_train: int,
        on_evaluation: Callable[[Mapping[str, Any]], None],
        on_progress: Callable[[Progress], None],
        begun: float,
    ) -> None:
        self.limits = Limits(
            samples=math.inf if config.epochs is None else config.epochs * num_train,
            updates=config.max_updates or math.inf,
            time_s=config.max_time_s or math.inf,
        )
        self.rows: list[dict[str, Any]] = []  # evaluations so far
        self.reached_s: float | None = None  # virtual time at which the target was reached
        self._target = config.target
        self._learning = learning
        self.num_train = num_train
        self._on_evaluation = on_evaluation
        self._on_progress = on_progress
        self._begun = begun
        self._next_report = begun
        self._eval_every = config.eval_every_epochs * num_train
        self._evaluations = 0

    def begin(self, totals: Totals) -> None:
        """The untrained network is the first point of every curve."""
        if self._learning is not None:
            self._evaluate(totals)

    def updated(self, simulation: Simulation) -> int:
        totals = simulation.totals
        if time.perf_counter() >= self._next_report:
            self._report(totals)
        if self._learning is None:
            return totals.updates + 1000
        if totals.samples >= self._evaluations * self._eval_every:
            self._evaluate(totals)
        if self.reached_s is not None:
            simulation.stop("target")
        return totals.updates + 1

    def end(self, totals: Totals, ended_by: str) -> None:
        """The last state is evaluated, unless it was just now, or is worthless."""
        self._report(totals)
        if self._learning is not None and ended_by != "diverged" and self.rows[-1]["updates"] < totals.updates:
            self._evaluate(totals)

    def _evaluate(self, totals: Totals) -> None:
        assert self._learning is not None
        shards = self._learning.shards
        metrics = self._learning.evaluator([shard.current.weights for shard in shards], shards[0].current.buffers)
        row = {
            "time_s": totals.time_s,
            "epoch": totals.samples / self.num_train,
            "updates": totals.updates,
            "samples": totals.samples,
            **asdict(metrics),
            "train_loss": totals.loss_sum / totals.loss_count if totals.loss_count else None,
            "learning_rate": shards[0].rate(totals.samples, totals.updates),
            "wall_s": time.perf_counter() - self._begun,
        }
        totals.loss_sum, totals.loss_count = 0.0, 0
        self._evaluations = int(totals.samples // self._eval_every) + 1
        self.rows.append(row)
        self._on_evaluation(row)
        value, wanted = row[self._target.metric], self._target.value
        if wanted is not None and self.reached_s is None:
            reached = value <= wanted if self._target.metric in LOWER_IS_BETTER else value >= wanted
            self.reached_s = totals.time_s if reached else None

    def _report(self, totals: Totals) -> None:
        now = time.perf_counter()
        self._next_report = now + REPORT_EVERY_S
        limits = self.limits
        done = max(totals.samples / limits.samples, totals.updates / limits.updates, totals.time_s / limits.time_s)
        self._on_progress(
            Progress(
                updates=totals.updates,
                samples=totals.samples,
                epoch=totals.samples / self.num_train,
                time_s=totals.time_s,
                loss=totals.loss_sum / totals.loss_count if totals.loss_count else math.nan,
                accuracy=self.rows[-1]["accuracy"] if self.rows else math.nan,
                fraction=min(done, 1.0),
                wall_s=now - self._begun,
            )
        )


def _summary(
    config: RunConfig, totals: Totals, ended_by: str, course: _Course, size: int, wall_s: float
) -> dict[str, Any]:
    rows = course.rows
    best = {}
    for metric in METRICS if rows else ():
        pick = min if metric in LOWER_IS_BETTER else max
        row = pick(rows, key=lambda row: row[metric])
        best[metric] = {"value": row[metric], "time_s": row["time_s"], "epoch": row["epoch"], "updates": row["updates"]}
    return {
        "identity": config.identity,
        "status": "diverged" if ended_by == "diverged" else "finished",
        "ended_by": ended_by,
        "strategy": config.strategy.name,
        "engine": "simulation",
        "time_kind": config.runner.time_kind,
        "time_s": totals.time_s,
        "updates": totals.updates,
        "gradients_used": sum(totals.used_by_worker),
        "gradients_discarded": sum(totals.discarded_by_worker),
        "samples": totals.samples,
        "epochs": totals.samples / course.num_train,
        "max_lead": totals.max_lead,
        "mean_staleness": totals.mean_staleness,
        "staleness": {str(stale): count for stale, count in sorted(totals.staleness.items())},
        "used_by_worker": totals.used_by_worker,
        "discarded_by_worker": totals.discarded_by_worker,
        "busy_by_worker": [busy / totals.time_s if totals.time_s else 0.0 for busy in totals.busy_s_by_worker],
        "final": {metric: rows[-1][metric] for metric in METRICS} if rows else None,
        "best": best or None,
        "target": {**asdict(config.target), "time_s": course.reached_s},
        "seed": config.seed,
        "num_parameters": size,
        "wall_s": wall_s,
    }
