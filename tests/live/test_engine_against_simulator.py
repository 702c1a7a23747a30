"""The shard's engine, fed with the order of pushes of a simulated run, against that run."""

from collections import Counter

import pytest
import torch
from engine_play import Rows

from syncline.config import DatasetConfig, LenetConfig, RunConfig, SgdConfig
from syncline.course import Limits
from syncline.learning.server import Gradient
from syncline.live.engine import Engine
from syncline.live.wire import Frame, Kind
from syncline.records.events import Row
from syncline.simulation.engine import Simulation
from syncline.simulation.run import build_learning
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Exponential, Normal


class Replay:
    """Live engines, one a shard, fed with the pushes of a simulated run; gradients are computed anew."""

    def __init__(self, config: RunConfig) -> None:
        self.learning = build_learning(config)
        self.rows = Rows()
        self.granted: dict[tuple[int, int], tuple[int, int]] = {}  # (worker, shard) -> (version, iteration)
        self.computed: dict[tuple[int, int], tuple[float, Gradient]] = {}  # (worker, iteration)
        self.engines = [
            Engine(
                number,
                config.strategy.start(config.cluster.workers),
                shard,
                config.batch_size,
                Limits(),  # a simulated shard goes on until the last of them is done
                config.strategy.elastic,
                _Post(self, number),
                self.rows,  # type: ignore[arg-type]
            )
            for number, shard in enumerate(self.learning.shards)
        ]
        for engine in self.engines:
            engine.begin(0.0, resumed=False)

    def push(self, row: Row) -> None:
        version, iteration = self.granted.pop((row.worker, row.shard))
        assert (version, iteration) == (row.version, row.value), "granted what the simulator granted"
        key = row.worker, iteration
        if key not in self.computed:
            self.computed[key] = self.learning.workers.compute(row.worker)
        loss, gradient = self.computed[key]
        frame = Frame(Kind.PUSH, row.worker, iteration, version, loss, started_at=row.at, computed_at=row.at)
        self.engines[row.shard].pushed(row.at, frame, gradient)


class _Post:
    def __init__(self, replay: Replay, shard: int) -> None:
        self._replay, self._shard = replay, shard

    def grant(self, worker: int, version: int, iteration: int) -> None:
        self._replay.granted[worker, self._shard] = version, iteration
        self._replay.learning.workers.receive(worker, self._shard)

    def release(self, gradient: Gradient) -> None:
        self._replay.learning.workers.release(gradient)


class NobodyLooks:
    def updated(self, simulation: Simulation) -> int:
        return 1 << 62


def with_own_numbers(rows: list[Row]) -> list[Row]:
    """The simulator numbers the pushes of all shards together, a live shard its own."""
    numbers = {-1: -1}
    seen = Counter[int]()
    for row in rows:
        if row.kind == "pushed":
            numbers[row.push] = seen[row.shard]
            seen[row.shard] += 1
    return [row._replace(push=numbers[row.push]) for row in rows]


@pytest.mark.parametrize(
    ("options", "num_shards"),
    [(BspOptions(), 1), (BspOptions(), 3), (SspOptions(staleness=1), 1), (SspOptions(staleness=1), 2)]
    + [(DsspOptions(s_lower=1, r_max=3, bound=bound), 1) for bound in ("paper", "hard", "catchup")],
    ids=str,
)
def test_fed_with_the_pushes_of_a_simulated_run_it_answers_the_same_and_ends_at_the_same_bits(options, num_shards):
    torch.set_num_threads(1)
    config = RunConfig(
        model=LenetConfig(),
        dataset=DatasetConfig(),
        optimizer=SgdConfig(lr=0.02, momentum=0.9, weight_decay=1e-3),
        strategy=options,
        cluster=ClusterConfig(workers=3, shards=num_shards, gradient_s=[1.0, 1.7, 2.9], jitter=Normal(1.0, 0.2)),
        scenario=ScenarioConfig(push_delay=Exponential(0.3), pull_delay=Exponential(0.3)),
        batch_size=16,
        max_updates=40,
        device="cpu",
    )
    learning, rows = build_learning(config), Rows()
    simulation = Simulation(
        strategies=[options.start(3) for _ in learning.shards],
        cluster=Cluster(config.cluster, config.scenario, config.seed),
        block_bytes=[0] * num_shards,
        batch_size=16,
        limits=Limits.of(config, learning.num_train),
        observer=NobodyLooks(),
        learning=(learning.shards, learning.workers),
        log=rows.append,
    )
    assert simulation.run() == "max_updates"
    told = with_own_numbers(rows.of("pushed", "applied", "granted", "held"))
    again = Replay(config)
    for row in told:
        if row.kind == "pushed":
            again.push(row)
    assert again.rows.of("pushed", "applied", "granted", "held") == told
    ours, theirs = [engine.totals for engine in again.engines], simulation.totals
    assert min(totals.updates for totals in ours) == theirs.updates == 40
    assert min(totals.samples for totals in ours) == theirs.samples
    assert sum((Counter(totals.staleness) for totals in ours), Counter()) == theirs.staleness
    assert (ours[0].max_lead, ours[0].used_by_worker) == (theirs.max_lead, theirs.used_by_worker)
    for one, other in zip(again.learning.shards, learning.shards, strict=True):
        assert torch.equal(one.current.weights, other.current.weights)
