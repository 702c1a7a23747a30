"""The live engine, given the pushes of a simulated run in their order, against that run."""

from collections import Counter
from collections.abc import Iterable

import pytest
import torch
from log_checks import Rows

from benchmarks.simulator import NullObserver
from syncline.config import DigitsConfig, ModelConfig, RunConfig, SgdConfig
from syncline.learning.parameters import Gradient, Version
from syncline.live.shard.elastic import ElasticShard
from syncline.progress import Limits, Totals
from syncline.records.rows import Row
from syncline.server.report import PushReport
from syncline.simulation.loop import Simulation
from syncline.simulation.run import build_server_training
from syncline.strategies.adasync import AdasyncOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.k_async import KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.protocol import Command, Grant, Repeat
from syncline.strategies.psp import PspOptions
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Exponential, Normal

ANSWERS = ("applied", "discarded", "granted", "held", "repeated", "interrupted", "waits_for")


class LiveReplay:
    """Live engines, one a shard, given the events of a simulated run; gradients are computed again."""

    def __init__(self, config: RunConfig) -> None:
        self.learning = build_server_training(config)
        self.rows = Rows()
        self.granted: dict[tuple[int, int], int] = {}  # (worker, shard) -> version
        self.sent: dict[tuple[int, int, int], Version] = {}  # (worker, shard, version), with a pull rule
        self.pulled: dict[tuple[int, int], list[int]] = {}  # (worker, iteration) -> the versions it was computed at
        self.computed: dict[tuple[int, int], tuple[float, Gradient]] = {}  # (worker, iteration)
        self.to_report: Counter[int] = Counter()  # worker -> gradients cancelled since its last push
        self.rules = config.strategy.pull_rule(config.cluster.shards) is not None
        self.engines = [
            ElasticShard(
                number,
                config.strategy,
                shard,
                config.batch_size,
                Limits(),  # a simulated shard continues until the last one has ended
                self.rows,  # type: ignore[arg-type]
            )
            for number, shard in enumerate(self.learning.shards)
        ]
        for engine in self.engines:
            for worker in engine.begin(0.0, resumed=False):
                self.grant(worker, engine, is_busy=False)

    def replay(self, row: Row) -> None:
        """Give the engines the event of this row."""
        if row.kind == "pushed":
            self.push(row)
        elif row.kind == "timer":
            assert self.engines[row.shard].wakes_at == row.at
            self.carry_out(self.engines[row.shard], self.engines[row.shard].fire_timer(row.at))
        elif row.kind == "pulled":
            self.pulled[row.worker, int(row.value)] = row.versions
        elif row.kind == "stale":
            iteration = self.engines[0].iterations[row.worker]
            report = self.report(row, iteration, row.version, row.version)
            gradient = Gradient(torch.zeros(1), torch.zeros(1))  # stands in for one that was never computed
            self.carry_out(self.engines[0], self.engines[0].pushed(row.at, report, gradient))
        elif row.kind == "dropped":
            self.to_report[row.worker] += 1

    def push(self, row: Row) -> None:
        key = row.worker, int(row.value)
        versions = self.pulled.get(key)
        workers = self.learning.worker_gradients
        if key not in self.computed:
            for shard, version in enumerate(versions or ()):
                if (row.worker, shard, version) in self.sent:  # otherwise the worker has it already
                    workers.take(row.worker, shard, self.sent.pop((row.worker, shard, version)))
            workers.seek(*key)
            workers.begin(row.worker)
            self.computed[key] = workers.compute(row.worker)
        version = row.version if versions is None else versions[row.shard]
        if versions is None:
            assert self.granted.pop((row.worker, row.shard)) == row.version, "granted what the simulator granted"
        loss, gradient = self.computed[key]
        engine, report = self.engines[row.shard], self.report(row, key[1], version, row.version, loss)
        self.carry_out(engine, engine.pushed(row.at, report, gradient))

    def carry_out(self, engine: ElasticShard, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Grant():
                    self.grant(command.worker, engine, engine.granted(command.worker)[0])
                case Repeat():
                    engine.repeated(command.worker)
                    assert (command.worker, engine.number) not in self.granted
                    self.granted[command.worker, engine.number] = engine.totals.updates
        engine.check_progress(0.0)

    def grant(self, worker: int, engine: ElasticShard, is_busy: bool) -> None:
        shard, version, worker_gradients = engine.number, engine.version, self.learning.worker_gradients
        if self.rules:
            self.sent[worker, shard, version] = worker_gradients.pin(shard, worker)
            return
        assert is_busy == ((worker, shard) in self.granted)
        self.granted[worker, shard] = version
        worker_gradients.receive(worker, shard)

    def report(self, row: Row, iteration: int, version: int, tag: int, loss: float = 0.0) -> PushReport:
        cancelled = self.to_report.pop(row.worker, 0)
        return PushReport(
            row.worker, iteration, version, tag, loss, cancelled=cancelled, started_at=row.at, computed_at=row.at
        )


def numbered_by_shard(rows: list[Row]) -> list[Row]:
    """The simulator numbers the pushes of all shards together, a live shard its own alone."""
    numbers = {-1: -1}
    seen = Counter[int]()
    for row in rows:
        if row.kind == "pushed":
            numbers[row.push] = seen[row.shard]
            seen[row.shard] += 1
    return [row._replace(push=numbers[row.push]) for row in rows]


DELAYED = ScenarioConfig(push_delay=Exponential(0.3), pull_delay=Exponential(0.3))
INSTANT = ScenarioConfig()  # where messages take no time: an interrupted gradient has never been computed
# One of each kind of answer, with one shard or several.
CASES = [
    (BspOptions(), 3, DELAYED),
    (SspOptions(staleness=1), 2, DELAYED),
    (DsspOptions(s_lower=1, r_max=3, bound="paper"), 1, DELAYED),
    (BackupOptions(backups=2, aggregate="sum"), 2, DELAYED),
    (KSyncOptions(k=2), 1, DELAYED),
    (KSyncOptions(k=2), 1, INSTANT),
    (KBatchSyncOptions(k=5), 1, DELAYED),
    (KBatchSyncOptions(k=5), 1, INSTANT),
    (KBatchAsyncOptions(k=4), 1, DELAYED),
    (AdasyncOptions(variant="k_batch_sync", k=1, interval=2.0), 1, DELAYED),
    (PspOptions(), 1, DELAYED),
    (PspOptions(c=2, tau1=0.5), 1, INSTANT),
    (PspOptions(c=1, b=30.0, tau1=0.3, tau2=0.2, tag="newest"), 3, DELAYED),
]


@pytest.mark.parametrize(("options", "num_shards", "scenario"), CASES, ids=str)
def test_given_the_pushes_of_a_simulated_run_it_answers_the_same_and_ends_at_the_same_bits(
    options, num_shards, scenario
):
    torch.set_num_threads(1)
    adapts = isinstance(options, AdasyncOptions)  # which needs a loss that falls
    config = RunConfig(
        model=ModelConfig(name="softmax_regression"),
        dataset=DigitsConfig(),
        optimizer=SgdConfig(lr=0.02, momentum=0.9, weight_decay=1e-3),
        strategy=options,
        cluster=ClusterConfig(workers=3, shards=num_shards, gradient_s=[1.0, 1.7, 2.9], jitter=Normal(1.0, 0.2)),
        scenario=scenario,
        batch_size=8,
        max_updates=60 if adapts else 25,
        device="cpu",
    )
    learning, rows = build_server_training(config), Rows()
    simulation = Simulation(
        strategies=[options.start(3) for _ in learning.shards],
        cluster=Cluster(config.cluster, config.scenario, config.seed),
        block_bytes=[0] * num_shards,
        batch_size=config.batch_size,
        limits=Limits.of(config, learning.num_train),
        observer=NullObserver(),
        rules=[rule for _ in range(3) if (rule := options.pull_rule(num_shards)) is not None],
        learning=(learning.shards, learning.worker_gradients),
        log=rows.append,
        first_count=options.first_count,
    )
    assert simulation.run() == "max_updates"
    if options.interrupts and scenario == DELAYED:
        assert any(row.kind == "stale" for row in rows), "or the case tests little"
    rows[:] = numbered_by_shard(rows)
    again = LiveReplay(config)
    for row in rows:
        again.replay(row)
    kinds = ("pushed", "timer", *ANSWERS)
    assert again.rows.of(*kinds) == rows.of(*kinds)
    ours, theirs = [engine.totals for engine in again.engines], simulation.totals
    assert min(totals.updates for totals in ours) == theirs.updates == config.max_updates
    assert min(totals.samples for totals in ours) == theirs.samples
    assert Totals.of_shards(ours).staleness == theirs.staleness
    assert (ours[0].max_lead, ours[0].used_by_worker) == (theirs.max_lead, theirs.used_by_worker)
    assert ours[0].discarded_by_worker == theirs.discarded_by_worker
    interrupted = [count + again.to_report[worker] for worker, count in enumerate(ours[0].interrupted_by_worker)]
    assert (interrupted, ours[0].wasted_by_worker) == (theirs.interrupted_by_worker, theirs.wasted_by_worker)
    assert ours[0].waits_for == theirs.waits_for
    if adapts and options.interrupts:
        assert theirs.waits_for[-1][2] > 1, "or the case tests little"
    for one, other in zip(again.learning.shards, learning.shards, strict=True):
        assert torch.equal(one.current.weights, other.current.weights)
