"""From a config to a finished run in virtual time: builds the parts, watches the course, sums it up."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from syncline.assembly import (
    build_learner,
    build_optimizer,
    build_rate,
    build_shard,
    count_parameters,
    pick_device,
)
from syncline.config import RunConfig
from syncline.learning.evaluate import Evaluator, are_finite, final_state
from syncline.learning.server import Shard, blocks
from syncline.progress import REPORT_EVERY_S, Curve, Limits, Progress, Totals, evaluation_row, is_finite, summary
from syncline.records.events import EventLog
from syncline.simulation.collective import Collective, Exchange, Replicas
from syncline.simulation.engine import PAUSED, Simulation
from syncline.simulation.worker import Workers
from syncline.timing.cluster import Cluster

LOOK_EVERY = 1000  # gradients used between two looks at a run in which nothing is learned


@dataclass(frozen=True, slots=True)
class Learning:
    """The tensors of a run."""

    shards: list[Shard]
    workers: Workers
    evaluator: Evaluator
    num_parameters: int
    num_train: int  # samples
    best_possible: Mapping[str, float]  # metrics that nothing can surpass on them

    def current(self) -> tuple[list[Tensor], Tensor, dict[str, float]]:
        """What is to be evaluated, weights in blocks and buffers, and what else is told of it."""
        return [shard.evaluated for shard in self.shards], self.shards[0].current.buffers, {}

    def final_states(self) -> list[dict[str, Tensor]]:
        """Of each shard."""
        return [final_state(shard.current.weights, shard.evaluated, shard.current.buffers) for shard in self.shards]

    def rate(self, samples: int, updates: int) -> float:
        """The learning rate of the next update."""
        return self.shards[0].rate(samples, updates)


Save = Callable[[str, Mapping[str, Tensor], Mapping[str, Any]], None]
"""Puts tensors, and what is told of them, into the file of this name."""

State = tuple[Mapping[str, Tensor], Mapping[str, Any]]
"""Tensors, and plain types that JSON can hold: all that a config does not tell of a run under way."""


class Checkpointer(AbstractContextManager[Any], Protocol):
    """Keeps states of a run under way; entered while there is one."""

    @property
    def is_due(self) -> bool:
        """A state is to be kept now."""
        ...

    def keep(self, state: State) -> None:
        """Take a state, which changes when this returns. Whatever it raises ends the run."""
        ...


def simulate(
    config: RunConfig,
    on_evaluation: Callable[[Mapping[str, Any]], None],
    on_progress: Callable[[Progress], None],
    log: EventLog | None = None,
    keeper: Checkpointer | None = None,
    state: State | None = None,
    save: Save | None = None,
) -> dict[str, Any]:
    """Run `config` to its end.

    Args:
        on_evaluation: given each row of metrics.jsonl.
        on_progress: called every `REPORT_EVERY_S` or so.
        log: takes the events.
        keeper: asked at every look whether the run is to be kept as it is then.
        state: what a keeper of the same run was given, to go on from; the log stands where it stood then.
        save: takes the parameters at the end, a file for each shard or replica; None to leave none.

    Returns:
        The summary, as summary.json holds it.

    Raises:
        ConfigError: the parts do not fit each other.
        DataMissingError: the data set is not there.
    """
    begun = time.perf_counter()
    torch.set_num_threads(config.threads)
    if state is not None:
        begun -= state[1]["course"]["wall_s"]
    build = _build_simulation if config.strategy.has_server else _build_collective
    simulation, course, num_parameters = build(config, on_evaluation, on_progress, log, begun)
    if state is None:
        course.begin(simulation.totals)
    else:
        tensors, about = state
        simulation.load_state_dict(tensors, about["engine"])
        course.load_state_dict(about["course"])
    course.keeper = keeper
    with keeper or nullcontext():
        while (ended_by := simulation.run()) == PAUSED:
            assert keeper is not None
            tensors, engine = simulation.state_dict()
            keeper.keep((tensors, {"engine": engine, "course": course.state_dict()}))
        ended_by = course.end(simulation.totals, ended_by)
    names = []
    if save is not None and course.learning is not None:
        totals = simulation.totals
        about = totals.snapshot(course.learning.rate(totals.samples, totals.updates))
        for number, tensors in enumerate(course.learning.final_states()):
            names.append(f"parameters-{number}.safetensors")
            save(names[-1], tensors, about)
    made = summary(
        config,
        "simulation",
        simulation.totals,
        ended_by,
        course.curve,
        simulation.time_use,
        num_train=course.num_train,
        num_parameters=num_parameters,
        best_possible={} if course.learning is None else course.learning.best_possible,
        wall_s=time.perf_counter() - begun,
    )
    return made | {"parameters": names} if names else made


def _build_simulation(
    config: RunConfig,
    on_evaluation: Callable[[Mapping[str, Any]], None],
    on_progress: Callable[[Progress], None],
    log: EventLog | None,
    begun: float,
) -> tuple[Simulation, "_Course", int]:
    """With its course and the number of its parameters."""
    learning = build_learning(config) if config.gradients else None
    size = learning.num_parameters if learning is not None else _sizes(config)[0]
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
        rules=[
            rule
            for _ in range(config.cluster.workers)
            if (rule := config.strategy.pull_rule(config.cluster.shards)) is not None
        ],
        learning=None if learning is None else (learning.shards, learning.workers),
        log=None if log is None else log.append,
    )
    simulation.totals.begin(config.strategy.first_count)
    return simulation, course, size


def _build_collective(
    config: RunConfig,
    on_evaluation: Callable[[Mapping[str, Any]], None],
    on_progress: Callable[[Progress], None],
    log: EventLog | None,
    begun: float,
) -> tuple[Collective, "_Course", int]:
    """As `_build_simulation`, without a server."""
    learning = build_replicas(config) if config.gradients else None
    size, tensors = _sizes(config) if learning is None else (learning.num_parameters, learning.num_tensors)
    num_train = learning.num_train if learning is not None else config.dataset.num_train
    course = _Course(config, learning, num_train, on_evaluation, on_progress, begun)
    cluster, strategy = config.cluster, config.strategy
    message_bytes = 4 * size if cluster.message_bytes is None else cluster.message_bytes
    num_messages = cluster.message_tensors or tensors if strategy.sends_tensors_singly else 1
    times = Cluster(cluster, config.scenario, config.seed)
    even, odd = (
        Exchange(strategy.groups(step, cluster.workers), times.network, message_bytes, num_messages) for step in (0, 1)
    )
    simulation = Collective(
        cluster=times,
        exchanges=(even, odd),
        averages_first=strategy.averages_first,
        batch_size=config.batch_size,
        limits=course.limits,
        observer=course,
        learning=learning,
        log=None if log is None else log.append,
    )
    return simulation, course, size


def build_replicas(config: RunConfig) -> Replicas:
    """As `build_learning`, for a collective.

    Raises:
        ConfigError, DataMissingError: as `simulate`.
    """
    learner = build_learner(config, pick_device(config))
    workers = range(config.cluster.workers)
    return Replicas(
        gradient=learner.gradient,
        batches=[learner.batches(config, worker) for worker in workers],
        optimizers=[build_optimizer(config) for _ in (workers if config.strategy.replicas else range(1))],
        rate=build_rate(config, learner.num_train),
        averages_first=config.strategy.averages_first,
        evaluator=learner.evaluator(),
        num_train=learner.num_train,
        best_possible=learner.best_possible,
    )


def build_learning(config: RunConfig) -> Learning:
    """Model, data, shards and workers of a run, on its device; the same seed gives the same bits.

    Raises:
        ConfigError, DataMissingError: as `simulate`.
    """
    learner = build_learner(config, pick_device(config))
    flat, num_train = learner.flat, learner.num_train
    shards = [build_shard(config, number, flat, num_train, is_whole=True) for number in range(config.cluster.shards)]
    batches = [learner.batches(config, worker) for worker in range(config.cluster.workers)]
    workers = Workers(shards, learner.gradient, batches)
    return Learning(shards, workers, learner.evaluator(), flat.weights.numel(), num_train, learner.best_possible)


def _sizes(config: RunConfig) -> tuple[int, int]:
    """Parameters, and the tensors they lie in, for messages where nothing is learned; 0 where no time depends on it."""
    cluster, strategy = config.cluster, config.strategy
    counts_bytes = cluster.network.bandwidth_gbps is not None and cluster.message_bytes is None
    one_by_one = not strategy.has_server and strategy.sends_tensors_singly and cluster.message_tensors is None
    if not counts_bytes and not (one_by_one and cluster.network.latency_s):
        return 0, 1
    return count_parameters(config)


class _Course:
    """Watches a run: evaluates when it is time, reports progress, ends it at its target, pauses it to be kept."""

    keeper: Checkpointer | None = None

    def __init__(
        self,
        config: RunConfig,
        learning: Learning | Replicas | None,
        num_train: int,
        on_evaluation: Callable[[Mapping[str, Any]], None],
        on_progress: Callable[[Progress], None],
        begun: float,
    ) -> None:
        self.limits = Limits.of(config, num_train)
        self.curve = Curve(config)
        self.learning = learning
        self.num_train = num_train
        self._on_evaluation = on_evaluation
        self._on_progress = on_progress
        self._begun = begun
        self._next_report = begun
        self._eval_every = config.eval_every_epochs * num_train
        self._evaluations = 0
        self._batch_size = config.batch_size

    def state_dict(self) -> dict[str, Any]:
        """Plain types; `wall_s`: spent so far."""
        wall_s = time.perf_counter() - self._begun
        return {"rows": self.curve.rows, "evaluations": self._evaluations, "wall_s": wall_s}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave; its rows were told before."""
        for row in state["rows"]:
            self.curve.add(row)
        self._evaluations = state["evaluations"]

    def begin(self, totals: Totals) -> None:
        """The untrained network is the first point of every curve."""
        if self.learning is not None:
            self._evaluate(totals)

    def updated(self, simulation: Simulation | Collective) -> int:
        totals = simulation.totals
        if time.perf_counter() >= self._next_report:
            self._report(totals)
        if self.learning is not None:
            if totals.samples >= self._evaluations * self._eval_every and not self._evaluate(totals):
                simulation.stop("diverged")
            elif self.curve.reached_s is not None:
                simulation.stop("target")
        if self.keeper is not None and self.keeper.is_due:
            simulation.pause()
        if self.learning is not None:
            return totals.updates + 1
        # Where only time is simulated, a thousand gradients lie between two looks, however many an update takes.
        return totals.updates + max(1, LOOK_EVERY * totals.updates * self._batch_size // totals.samples)

    def end(self, totals: Totals, ended_by: str) -> str:
        """The last state is evaluated, unless it was just now, or is worthless. Returns why the run ended."""
        self._report(totals)
        if self.learning is None or ended_by == "diverged":
            return ended_by
        is_new = self.curve.rows[-1]["updates"] < totals.updates
        is_sound = are_finite(self.learning.current()[0]) and (not is_new or self._evaluate(totals))
        return ended_by if is_sound else "diverged"

    def _evaluate(self, totals: Totals) -> bool:
        """Add a point to the curve. False, and nothing is told, if the state is worthless."""
        assert self.learning is not None
        weights, buffers, about = self.learning.current()
        metrics = self.learning.evaluator(weights, buffers)
        if not is_finite(metrics):
            return False
        row = evaluation_row(
            totals.time_s,
            totals.updates,
            totals.samples,
            self.num_train,
            metrics,
            train_loss=totals.loss if totals.loss_count else None,
            learning_rate=self.learning.rate(totals.samples, totals.updates),
            **about,
            waits_for=totals.count,
            wall_s=time.perf_counter() - self._begun,
        )
        totals.loss_sum, totals.loss_count = 0.0, 0
        self._evaluations = int(totals.samples // self._eval_every) + 1
        self.curve.add(row)
        self._on_evaluation(row)
        return True

    def _report(self, totals: Totals) -> None:
        now = time.perf_counter()
        self._next_report = now + REPORT_EVERY_S
        self._on_progress(
            Progress(
                updates=totals.updates,
                samples=totals.samples,
                epoch=totals.samples / self.num_train,
                time_s=totals.time_s,
                loss=totals.loss,
                metric=self.curve.metric,
                value=self.curve.value,
                fraction=self.limits.fraction(totals),
                wall_s=now - self._begun,
                count=totals.count,
            )
        )
