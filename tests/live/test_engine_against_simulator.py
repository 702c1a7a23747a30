"""The shard's engine, fed with the order of pushes of a simulated run, against that run."""

import math
from collections import Counter

import pytest
import torch
from engine_play import Rows

from benchmarks.simulator import NullObserver
from syncline.config import DigitsConfig, ModelConfig, RunConfig, SgdConfig
from syncline.learning.server import Gradient, Version
from syncline.live.engine import Engine
from syncline.progress import Limits, of_all_shards
from syncline.records.events import Row
from syncline.server.report import PushReport
from syncline.simulation.engine import Simulation
from syncline.simulation.run import build_learning
from syncline.strategies.adasync import VARIANTS, AdasyncOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.psp import PspOptions
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Exponential, Normal

ANSWERS = ("applied", "discarded", "granted", "held", "repeated", "interrupted", "waits_for")
ON_ITS_WAY = "on its way"


class Replay:
    """Live engines, one a shard, fed with the pushes of a simulated run; gradients are computed anew."""

    def __init__(self, config: RunConfig) -> None:
        self.learning = build_learning(config)
        self.rows = Rows()
        self.granted: dict[tuple[int, int], int] = {}  # (worker, shard) -> version
        self.sent: dict[tuple[int, int, int], Version] = {}  # (worker, shard, version), where a rule chooses
        self.pulled: dict[tuple[int, int], list[int]] = {}  # (worker, iteration) -> versions that it chose
        self.computed: dict[tuple[int, int], tuple[float, Gradient]] = {}  # (worker, iteration)
        self.to_tell: Counter[int] = Counter()  # worker -> gradients broken off since its last push
        self.dropped: set[int] = set()  # gradients that are not ours to release
        self.rules = config.strategy.pull_rule(config.cluster.shards) is not None
        if self.rules:
            for shard in self.learning.shards:
                shard.extra_versions = math.inf
        self.engines = [
            Engine(
                number,
                config.strategy.start(config.cluster.workers),
                shard,
                config.batch_size,
                Limits(),  # a simulated shard goes on until the last of them is done
                config.strategy.elastic,
                self.rules,
                _Post(self, number),
                self.rows,  # type: ignore[arg-type]
                config.strategy.first_count,
            )
            for number, shard in enumerate(self.learning.shards)
        ]
        for engine in self.engines:
            engine.begin(0.0, resumed=False)

    def feed(self, row: Row) -> None:
        """Let the engines meet what the simulator met."""
        if row.kind == "pushed":
            self.push(row)
        elif row.kind == "timer":
            assert self.engines[row.shard].wakes_at == row.at
            self.engines[row.shard].timer(row.at)
        elif row.kind == "pulled":
            self.pulled[row.worker, int(row.value)] = [int(version) for version in row.because.split()]
        elif row.kind == "dropped" and row.because == ON_ITS_WAY:
            iteration = self.engines[0].iteration(row.worker)
            about = self.frame(row, iteration, row.version, row.version)
            gradient = Gradient(torch.zeros(1), torch.zeros(1))
            self.dropped.add(id(gradient))
            self.engines[0].pushed(row.at, about, gradient)
        elif row.kind == "dropped":
            self.to_tell[row.worker] += 1

    def push(self, row: Row) -> None:
        key = row.worker, int(row.value)
        versions = self.pulled.get(key)
        workers = self.learning.learners
        if key not in self.computed:
            for shard, version in enumerate(versions or ()):
                if (row.worker, shard, version) in self.sent:  # else it has it already
                    workers.take(row.worker, shard, self.sent.pop((row.worker, shard, version)))
            workers.seek(*key)
            self.computed[key] = workers.compute(row.worker)
        version = row.version if versions is None else versions[row.shard]
        if versions is None:
            assert self.granted.pop((row.worker, row.shard)) == row.version, "granted what the simulator granted"
        loss, gradient = self.computed[key]
        self.engines[row.shard].pushed(row.at, self.frame(row, key[1], version, row.version, loss), gradient)

    def frame(self, row: Row, iteration: int, version: int, tag: int, loss: float = 0.0) -> PushReport:
        cut = self.to_tell.pop(row.worker, 0)
        return PushReport(
            row.worker, iteration, version, tag, loss, cancelled=cut, started_at=row.at, computed_at=row.at
        )


class _Post:
    def __init__(self, replay: Replay, shard: int) -> None:
        self._replay, self._shard = replay, shard

    def grant(self, worker: int, version: int, iteration: int, is_busy: bool) -> None:
        replay, shard = self._replay, self._shard
        if replay.rules:
            replay.sent[worker, shard, version] = replay.learning.learners.pin(shard)
            return
        assert is_busy == ((worker, shard) in replay.granted)
        replay.granted[worker, shard] = version
        replay.learning.learners.receive(worker, shard)

    def repeat(self, worker: int, version: int, iteration: int) -> None:
        assert (worker, self._shard) not in self._replay.granted
        self._replay.granted[worker, self._shard] = version

    def warn(self, words: str) -> None:
        raise AssertionError("nobody leaves")

    def release(self, gradient: Gradient) -> None:
        if id(gradient) in self._replay.dropped:
            self._replay.dropped.remove(id(gradient))
        else:
            self._replay.learning.learners.release(gradient)


def with_own_numbers(rows: list[Row]) -> list[Row]:
    """The simulator numbers the pushes of all shards together, a live shard its own."""
    numbers = {-1: -1}
    seen = Counter[int]()
    for row in rows:
        if row.kind == "pushed":
            numbers[row.push] = seen[row.shard]
            seen[row.shard] += 1
    return [row._replace(push=numbers[row.push]) for row in rows]


CASES = [
    (BspOptions(), 1),
    (BspOptions(), 3),
    (SspOptions(staleness=1), 1),
    (SspOptions(staleness=1), 2),
    *((DsspOptions(s_lower=1, r_max=3, bound=bound), 1) for bound in ("paper", "hard", "catchup")),
    (BackupOptions(backups=1), 1),
    (BackupOptions(backups=2, aggregate="sum"), 2),
    (KSyncOptions(k=1), 1),
    (KSyncOptions(k=2), 1),
    (KBatchSyncOptions(k=2), 1),
    (KBatchSyncOptions(k=5), 1),
    (KAsyncOptions(k=2), 1),
    (KBatchAsyncOptions(k=4), 1),
    *((AdasyncOptions(variant=variant, k=1, interval=2.0), 1) for variant in VARIANTS),
    (PspOptions(), 1),
    (PspOptions(c=2), 1),
    (PspOptions(c=1, tag="newest"), 1),
    (PspOptions(c=2, tau1=0.5, tag="newest"), 1),
    (PspOptions(c=2, b=60.0), 3),
    (PspOptions(c=1, b=30.0, tau1=0.3, tau2=0.2, tag="newest"), 3),
]
# What is interrupted where messages take no time has never been computed.
AT_ONCE = [KSyncOptions(k=2), KBatchSyncOptions(k=5), PspOptions(c=1, tag="newest"), PspOptions(c=2, tau1=0.5)]


@pytest.mark.parametrize(
    ("options", "num_shards", "sends_at_once"),
    [(*case, False) for case in CASES] + [(options, 1, True) for options in AT_ONCE],
    ids=str,
)
def test_fed_with_the_pushes_of_a_simulated_run_it_answers_the_same_and_ends_at_the_same_bits(
    options, num_shards, sends_at_once
):
    torch.set_num_threads(1)
    adapts = isinstance(options, AdasyncOptions)  # which wants a loss that falls
    delays = ScenarioConfig(push_delay=Exponential(0.3), pull_delay=Exponential(0.3))
    config = RunConfig(
        model=ModelConfig(),
        dataset=DigitsConfig(),
        optimizer=SgdConfig(lr=0.1 if adapts else 0.02, momentum=0.9, weight_decay=1e-3),
        strategy=options,
        cluster=ClusterConfig(workers=3, shards=num_shards, gradient_s=[1.0, 1.7, 2.9], jitter=Normal(1.0, 0.2)),
        scenario=ScenarioConfig() if sends_at_once else delays,
        batch_size=16,
        max_updates=80 if adapts else 40,
        device="cpu",
    )
    learning, rows = build_learning(config), Rows()
    simulation = Simulation(
        strategies=[options.start(3) for _ in learning.shards],
        cluster=Cluster(config.cluster, config.scenario, config.seed),
        block_bytes=[0] * num_shards,
        batch_size=16,
        limits=Limits.of(config, learning.num_train),
        observer=NullObserver(),
        rules=[rule for _ in range(3) if (rule := options.pull_rule(num_shards)) is not None],
        learning=(learning.shards, learning.learners),
        log=rows.append,
        first_count=options.first_count,
    )
    assert simulation.run() == "max_updates"
    if options.interrupts and not sends_at_once:
        assert any(row.because == ON_ITS_WAY for row in rows), "or the case shows little"
    rows[:] = with_own_numbers(rows)
    again = Replay(config)
    for row in rows:
        again.feed(row)
    told = ("pushed", "timer", *ANSWERS)
    assert again.rows.of(*told) == rows.of(*told)
    ours, theirs = [engine.totals for engine in again.engines], simulation.totals
    assert min(totals.updates for totals in ours) == theirs.updates == config.max_updates
    assert min(totals.samples for totals in ours) == theirs.samples
    assert of_all_shards(ours).staleness == theirs.staleness
    assert (ours[0].max_lead, ours[0].used_by_worker) == (theirs.max_lead, theirs.used_by_worker)
    assert ours[0].discarded_by_worker == theirs.discarded_by_worker
    interrupted = [count + again.to_tell[worker] for worker, count in enumerate(ours[0].interrupted_by_worker)]
    assert (interrupted, ours[0].wasted_by_worker) == (theirs.interrupted_by_worker, theirs.wasted_by_worker)
    assert ours[0].waits_for == theirs.waits_for
    if adapts and options.interrupts:
        assert theirs.waits_for[-1][2] > 1, "or the case shows little"
    for one, other in zip(again.learning.shards, learning.shards, strict=True):
        assert torch.equal(one.current.weights, other.current.weights)
