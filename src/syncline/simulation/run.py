"""From a config to a finished run in virtual time: builds the parts, observes the run, sums it up."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from torch import Tensor

from syncline.assembly.compression import build_compression, build_compressor, build_gossip, build_pull_compressor
from syncline.assembly.device import configure_torch, pick_device
from syncline.assembly.local_steps import build_local_steps
from syncline.assembly.network import count_parameters, network_layout
from syncline.assembly.optimizers import build_optimizer, build_rate
from syncline.assembly.parameters import build_parameters, shard_blocks
from syncline.assembly.problem import Problem, build_problem
from syncline.config import OwnPart, RunConfig
from syncline.datasets.imagenet import PhotographSource
from syncline.datasets.sharding import SharedCursor
from syncline.learning.buckets import from_end
from syncline.learning.evaluate import Evaluator, are_finite, final_state
from syncline.learning.gradient import WorkerBatches
from syncline.learning.layout import blocks
from syncline.learning.local_steps import LocalSteps
from syncline.learning.parameters import Parameters
from syncline.learning.peer_replica import Choices
from syncline.monitor import OnEvaluation, OnProgress, RunMonitor, evaluation_row
from syncline.progress import Totals
from syncline.records.events import EventLog
from syncline.simulation.collective import CollectiveSimulation
from syncline.simulation.exchanges import ExchangeTimes, Part
from syncline.simulation.executors import Cores, Serial
from syncline.simulation.loop import PAUSED, Simulation
from syncline.simulation.peers import PeerReplicas, PeerSimulation
from syncline.simulation.replicas import Replicas
from syncline.simulation.worker_gradients import WorkerGradients
from syncline.strategies.collective import Averaging, Collective, num_shares
from syncline.timing.cluster import Cluster
from syncline.timing.network import Network

T = TypeVar("T")
AHEAD = 4  # rounds that each process has, where none are cancelled: it computes them while the run is evaluated
CHECK_EVERY = 1000  # gradients used between two calls of the observer, with times alone


@dataclass(frozen=True, slots=True)
class ServerTraining:
    """The tensors of a run."""

    problem: Problem
    shards: list[Parameters]
    executor: Serial
    worker_gradients: WorkerGradients
    evaluator: Evaluator

    def current(self) -> tuple[list[Tensor], Tensor, dict[str, float]]:
        """What is evaluated: weights in blocks, buffers, and what else its row holds."""
        return [shard.evaluated for shard in self.shards], self.shards[0].current.buffers, {}

    def final_states(self) -> list[dict[str, Tensor]]:
        """Of each shard."""
        return [final_state(shard.current.weights, shard.evaluated, shard.current.buffers) for shard in self.shards]

    def rate(self, samples: int, updates: int) -> float:
        """The learning rate of the next update."""
        return self.shards[0].rate(samples, updates)


SaveParameters = Callable[[str, Mapping[str, Tensor], Mapping[str, Any]], None]
"""Writes tensors, and what describes them, into the file of this name."""

Engine = Simulation | CollectiveSimulation | PeerSimulation

RunState = tuple[Mapping[str, Tensor], Mapping[str, Any]]
"""Tensors, and plain types that JSON can hold: with the config, all of a run under way."""


class Checkpointer(AbstractContextManager[Any], Protocol):
    """Saves checkpoints of a run; entered while the run is under way."""

    @property
    def is_due(self) -> bool:
        """A checkpoint is to be saved now."""
        ...

    def save(self, state: RunState) -> None:
        """Save a state, which the run changes after this returns. Whatever it raises ends the run."""
        ...


def simulate(
    config: RunConfig,
    on_evaluation: OnEvaluation,
    on_progress: OnProgress,
    log: EventLog | None = None,
    checkpointer: Checkpointer | None = None,
    state: RunState | None = None,
    save_parameters: SaveParameters | None = None,
    workers_at_once: int = 1,
) -> dict[str, Any]:
    """Run `config` to its end.

    Args:
        log: receives the events.
        checkpointer: asked at every call of the observer whether a checkpoint is due.
        state: what a checkpointer of the same run saved, to resume from; the log is as it was then.
        save_parameters: receives the parameters at the end, a file for each shard or replica; None to save none.
        workers_at_once: processes that compute gradients; the result is the same in every bit.

    Returns:
        The summary, as summary.json holds it.

    Raises:
        ConfigError: the parts do not fit each other.
        DataMissingError: the data set is not there.
    """
    monitor = RunMonitor(config, on_evaluation, on_progress, 0.0 if state is None else state[1]["observer"]["wall_s"])
    configure_torch(config)
    learning: ServerTraining | Replicas | None = None
    if config.gradients:
        build = build_server_training if config.strategy.has_server else build_replicas
        learning = build(config, workers_at_once)
    sizes = _sizes(config, learning)
    observer = RunObserver(config, monitor, learning, sizes[0], checkpointer)
    simulation = _build(config, monitor, observer, sizes, log)
    executor = None if learning is None else learning.executor
    if state is None:
        observer.begin(simulation.totals)
    else:
        tensors, about = state
        simulation.load_state_dict(tensors, about["engine"])
        observer.load_state_dict(about["observer"])
    with checkpointer or nullcontext(), closing(executor) if executor is not None else nullcontext():
        while (ended_by := simulation.run()) == PAUSED:
            assert checkpointer is not None
            tensors, engine = simulation.state_dict()
            checkpointer.save((tensors, {"engine": engine, "observer": observer.state_dict()}))
        ended_by = observer.end(simulation.totals, ended_by)
    names = []
    if save_parameters is not None and learning is not None:
        totals = simulation.totals
        about = totals.snapshot(learning.rate(totals.samples, totals.updates))
        for number, tensors in enumerate(learning.final_states()):
            names.append(f"parameters-{number}.safetensors")
            save_parameters(names[-1], tensors, about)
    summary = monitor.summary("simulation", simulation.totals, ended_by, simulation.time_use)
    if executor is not None:
        summary["computed_in_vain"] = executor.in_vain
    return summary | {"parameters": names} if names else summary


def _build(
    config: RunConfig, monitor: RunMonitor, observer: "RunObserver", sizes: tuple[int, int], log: EventLog | None
) -> Engine:
    """The loop of the run, which the observer watches; `sizes` as of `_sizes`."""
    cluster, strategy, learning = config.cluster, config.strategy, observer.learning
    num_parameters, num_tensors = sizes
    size_bytes = 4 * num_parameters if cluster.message_bytes is None else cluster.message_bytes
    times = Cluster(cluster, config.scenario, config.seed)
    shared: dict[str, Any] = {
        "cluster": times,
        "batch_size": config.batch_size,
        "rounds": config.rounds(monitor.num_train),
        "limits": monitor.limits,
        "observer": observer,
        "log": None if log is None else log.append,
    }
    if strategy.has_server:
        assert learning is None or isinstance(learning, ServerTraining)
        return _with_server(config, learning, size_bytes, shared)
    shared["learning"] = learning
    if strategy.neighbours is not None:
        return PeerSimulation(
            choices=Choices(strategy.neighbours, cluster.workers, config.seed),
            exchange_s=lambda pair: times.network.peers_s(pair, size_bytes) + cluster.update_s,
            **shared,
        )
    collective = strategy.collective
    assert collective is not None
    num_messages = cluster.message_tensors or num_tensors if collective.sends_tensors_singly else 1
    parts = partial(_exchanged, config, collective, times.network, size_bytes, num_messages)
    schedule = collective.schedule(cluster.workers, config.steps_an_epoch(monitor.num_train))
    return CollectiveSimulation(
        exchanges=[ExchangeTimes(groups, parts(groups), cluster.update_s) for groups in schedule.turns],
        schedule=schedule,
        exchange=collective.exchange,
        averages_first=collective.averages_first,
        **shared,
    )


def _with_server(
    config: RunConfig, learning: ServerTraining | None, size_bytes: int, shared: Mapping[str, Any]
) -> Simulation:
    cluster, compression = config.cluster, build_compression(config)
    block_bytes = [block.stop - block.start for block in _byte_blocks(config, size_bytes, learning)]
    compressed = None if compression is None else [compression.size(num // 4) for num in block_bytes]
    rules = (config.strategy.pull_rule(cluster.shards) for _ in range(cluster.workers))
    return Simulation(
        strategies=[config.strategy.start(cluster.workers) for _ in range(cluster.shards)],
        block_bytes=block_bytes,
        push_bytes=compressed,
        pull_bytes=compressed if config.compresses_pulls else None,
        rules=[rule for rule in rules if rule is not None],
        overlap=config.local.overlap,
        learning=None if learning is None else (learning.shards, learning.worker_gradients),
        first_count=config.strategy.first_count,
        **shared,
    )


def _exchanged(
    config: RunConfig,
    collective: Collective,
    network: Network,
    size_bytes: int,
    num_messages: int,
    groups: Sequence[Averaging],
) -> list[Part]:
    """What the members of a collective exchange in a turn.

    Args:
        size_bytes: of what each holds.
        num_messages: all-reduces one after another.
        groups: of the turn.
    """
    if collective.peers is not None:
        shares = num_shares(groups)
        return [Part(lambda members: network.peers_s(members, size_bytes, max(shares[each] for each in members) - 1))]
    if (compression := build_compression(config)) is not None:  # sums of all are not sparse: each is sent to all
        sent = compression.size(size_bytes // 4)
        return [Part(lambda members: network.all_gather_s(members, sent))]
    bucket_bytes = collective.bucket_bytes
    if bucket_bytes is None:
        return [Part(lambda members: network.all_reduce_s(members, size_bytes, num_messages))]
    parts = []
    for place in from_end(size_bytes, bucket_bytes):
        exchange_s = partial(network.all_reduce_s, size_bytes=place.stop - place.start, num_messages=1)
        parts.append(Part(exchange_s, config.cluster.ready_after((size_bytes - place.start) / size_bytes)))
    return parts


def _byte_blocks(config: RunConfig, size_bytes: int, learning: ServerTraining | None) -> list[slice]:
    """What the shards have of a message of so many bytes."""
    if not isinstance(config.optimizer, OwnPart) or config.cluster.shards == 1:
        return blocks(size_bytes, config.cluster.shards)
    layout = network_layout(config) if learning is None else learning.problem.flat.layout
    places = shard_blocks(config, layout)
    return [slice(size_bytes * p.start // layout.size, size_bytes * p.stop // layout.size) for p in places]


def build_replicas(config: RunConfig, workers_at_once: int = 1) -> Replicas:
    """As `build_server_training`, without a server; `PeerReplicas` for asynchronous peers.

    Raises:
        ConfigError, DataMissingError: as `simulate`.
    """
    problem = build_problem(config, pick_device(config), in_graphs=True)
    collective = config.strategy.collective
    num_optimizers = config.cluster.workers if config.strategy.has_replicas else 1
    workers, weights = range(config.cluster.workers), problem.flat.weights
    local, batches = [build_local_steps(config, problem, worker) for worker in workers], problem.batches_of_all(config)
    kind = Replicas if config.strategy.neighbours is None else PeerReplicas
    return kind(
        problem=problem,
        executor=_executor(config, problem, local, batches, workers_at_once),
        local=local,
        compressors=_made(build_compressor(config, worker, problem.flat.layout) for worker in workers),
        gossip=_made(build_gossip(config, worker, weights) for worker in workers),
        turns=[] if collective is None else collective.all_turns(config.cluster.workers),
        optimizers=[build_optimizer(config, problem.flat.layout) for _ in range(num_optimizers)],
        rate=build_rate(config, problem.num_train),
        averages_first=collective is not None and collective.averages_first,
        evaluates_mean=collective is None or collective.evaluates_mean,
    )


def build_server_training(config: RunConfig, workers_at_once: int = 1) -> ServerTraining:
    """Model, data, shards and workers of a run, on its device; the same seed gives the same bits.

    Raises:
        ConfigError, DataMissingError: as `simulate`.
    """
    problem = build_problem(config, pick_device(config), in_graphs=True)
    flat, num_train = problem.flat, problem.num_train
    numbers = range(config.cluster.shards)
    shards = [build_parameters(config, number, flat, num_train, is_whole=True) for number in numbers]
    cursor = SharedCursor(config.cluster.workers) if config.dataset.sharing == "shared" else None
    workers = range(config.cluster.workers)
    local = [build_local_steps(config, problem, worker) for worker in workers]
    compressors = _made(build_compressor(config, worker, flat.layout) for worker in workers)
    pulls = [
        [build_pull_compressor(config, worker, shard) for shard in range(config.cluster.shards)]
        for worker in (workers if config.compresses_pulls else ())
    ]
    batches = problem.batches_of_all(config)
    executor = _executor(config, problem, local, batches, workers_at_once)
    strategy = config.strategy
    waits = not strategy.interrupts and strategy.pull_rule(config.cluster.shards) is None
    is_awaited = waits and not config.local.overlap
    worker_gradients = WorkerGradients(shards, executor, local, batches, cursor, compressors, pulls, is_awaited)
    return ServerTraining(problem, shards, executor, worker_gradients, problem.evaluator())


def _executor(
    config: RunConfig,
    problem: Problem,
    local: Sequence[LocalSteps],
    batches: Sequence[WorkerBatches],
    workers_at_once: int,
) -> Serial:
    """Of several processes, where they can be forks of this one."""
    workers, strategy = config.cluster.workers, config.strategy
    processes = min(workers, workers_at_once)
    has_others = problem.flat.weights.is_cuda or isinstance(problem.source, PhotographSource)  # devices, processes
    if processes == 1 or config.threads > 1 or has_others or sys.platform != "linux":
        return Serial(local, batches)
    return Cores(local, batches, processes, processes if strategy.interrupts else min(workers, AHEAD * processes))


def _made(parts: Iterable[T | None]) -> list[T]:
    """All of them or none."""
    return [part for part in parts if part is not None]


def _sizes(config: RunConfig, learning: ServerTraining | Replicas | None) -> tuple[int, int]:
    """Parameters of the model and their tensors; (0, 1) where nothing is learned and no time depends on them."""
    if learning is not None:
        return learning.problem.flat.layout.size, len(learning.problem.flat.trained)
    cluster, collective = config.cluster, config.strategy.collective
    has_bandwidth = not (cluster.network.bandwidth_gbps is None and cluster.network.between_gbps is None)
    counts_bytes = has_bandwidth and cluster.message_bytes is None
    sends_tensors = collective is not None and collective.sends_tensors_singly
    one_by_one = sends_tensors and cluster.message_tensors is None
    if not counts_bytes and not (one_by_one and cluster.network.latency_s):
        return 0, 1
    return count_parameters(config)


class RunObserver:
    """Called by a simulation between updates: evaluates, reports, ends it at the target, pauses it for checkpoints.

    Args:
        learning: None if nothing is learned.
        num_parameters: of the model; 0 where no time depends on it and nothing is learned.
    """

    def __init__(
        self,
        config: RunConfig,
        monitor: RunMonitor,
        learning: ServerTraining | Replicas | None,
        num_parameters: int,
        checkpointer: Checkpointer | None,
    ) -> None:
        num_train = config.dataset.num_train if learning is None else learning.problem.num_train
        monitor.describe(num_train, num_parameters, {} if learning is None else learning.problem.best_possible)
        self.learning = learning
        self._monitor, self._checkpointer = monitor, checkpointer
        self._batch_size = config.batch_size
        self._eval_every = config.eval_every_epochs * num_train  # samples
        self._num_evaluations = 0

    def state_dict(self) -> dict[str, Any]:
        """Plain types; `wall_s`: spent so far."""
        monitor = self._monitor
        return {"rows": monitor.curve.rows, "evaluations": self._num_evaluations, "wall_s": monitor.wall_s}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state_dict` gave."""
        self._monitor.restore(state["rows"])
        self._num_evaluations = state["evaluations"]

    def begin(self, totals: Totals) -> None:
        """The untrained network is the first point of every curve."""
        if self.learning is not None:
            self.evaluate(totals)

    def updated(self, totals: Totals) -> tuple[int, str | None]:
        if self._monitor.is_report_due:
            self.report(totals)
        reason = PAUSED if self._checkpointer is not None and self._checkpointer.is_due else None
        if self.learning is not None:
            if totals.samples >= self._num_evaluations * self._eval_every and not self.evaluate(totals):
                reason = "diverged"
            elif self._monitor.has_reached_target:
                reason = "target"
            return totals.updates + 1, reason
        # With times alone, a thousand gradients lie between two calls, however many an update takes.
        return totals.updates + max(1, CHECK_EVERY * totals.updates * self._batch_size // totals.samples), reason

    def end(self, totals: Totals, ended_by: str) -> str:
        """Evaluate the last state, unless it was evaluated just now or has diverged. Returns why the run ended."""
        self.report(totals)
        if self.learning is None or ended_by == "diverged":
            return ended_by
        rows = self._monitor.curve.rows
        is_new = not rows or rows[-1]["updates"] < totals.updates
        weights, _, about = self.learning.current()
        is_finite = are_finite(weights) and math.isfinite(about.get("divergence", 0.0))  # that of all replicas
        is_sound = is_finite and (not is_new or self.evaluate(totals))
        return ended_by if is_sound else "diverged"

    def evaluate(self, totals: Totals) -> bool:
        """Add a point to the curve. Returns False if the run has diverged."""
        assert self.learning is not None
        weights, buffers, about = self.learning.current()
        row = evaluation_row(
            totals.time_s,
            totals.updates,
            totals.samples,
            self._monitor.num_train,
            self.learning.evaluator(weights, buffers),
            train_loss=totals.loss if totals.loss_count else None,
            learning_rate=self.learning.rate(totals.samples, totals.updates),
            **about,
            waits_for=totals.count,
            wall_s=self._monitor.wall_s,
        )
        if not self._monitor.add(row):
            return False
        totals.loss_sum, totals.loss_count = 0.0, 0
        self._num_evaluations = int(totals.samples // self._eval_every) + 1
        return True

    def report(self, totals: Totals, fraction: float | None = None) -> None:
        """Report the progress; `fraction`: see RunMonitor."""
        self._monitor.report(
            time_s=totals.time_s,
            updates=totals.updates,
            samples=totals.samples,
            loss=totals.loss,
            count=totals.count,
            fraction=fraction,
        )
