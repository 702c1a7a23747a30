"""A run in virtual time that is interrupted and resumed ends with the bits of an uninterrupted one.

So does one whose gradients several processes compute: the pieces are made so, and the whole in one process. The
checkpoint goes through a file, and all objects are built again: no state can survive in the old ones.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import simulations
from commands import without_wall_time
from fake_run import CASES
from torch import Tensor

from syncline.config import DigitsConfig, ResnetConfig, RunConfig, SgdConfig, compose
from syncline.config.compression import CompressConfig, RandkConfig, SparseConfig
from syncline.config.local_steps import LocalStepsConfig
from syncline.config.optimizers import AdamWConfig
from syncline.config.updates import DelayCompensatedConfig, GapAwareConfig
from syncline.records import events
from syncline.records.events import EventLog
from syncline.records.rows import left
from syncline.records.snapshots import read_state, write_state
from syncline.simulation import executors
from syncline.simulation import run as simulation_run
from syncline.simulation.run import RunState, SaveParameters, simulate
from syncline.strategies.ad_psgd import AdPsgdOptions
from syncline.strategies.adasync import VARIANTS as VARIANTS_OF_ADASYNC
from syncline.strategies.adasync import AdasyncOptions
from syncline.strategies.asp import AspOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.gossip import GossipOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.strategies.psp import PspOptions
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Exponential, Occasional
from syncline.timing.network import NetworkConfig

NUM_UPDATES = 12
AT_ONCE = 2  # workers in the pieces
JITTER = Exponential(1.0)
DIRECT = ClusterConfig(workers=4, gradient_s=[0.02, 0.03, 0.05], jitter=JITTER)
LEVEL = ClusterConfig(workers=4, gradient_s=[0.02])  # all are ready at the same moments
NETWORK = NetworkConfig(latency_s=0.004, bandwidth_gbps=0.01, jitter=Exponential(0.002))
REMOTE = replace(DIRECT, network=NETWORK, update_s=0.004)
DELAYS = ScenarioConfig(
    compute_delay=Exponential(0.01),
    push_delay=Occasional(0.3, Exponential(0.03)),
    pull_delay=Exponential(0.02),
    slow={1: 2.0},
    slow_shards={0: 0.003},
)


class Interrupted(Exception):
    """Raised after the checkpoint was saved."""


class InterruptingCheckpointer:
    """Saves and interrupts a run when it is asked for the `at`-th time whether a checkpoint is due; None: never."""

    def __init__(self, path: Path, log: EventLog, at: int | None) -> None:
        self.path, self.log, self.at, self.asked = path, log, at, 0

    def __enter__(self) -> "InterruptingCheckpointer":
        return self

    def __exit__(self, *about: object) -> None:
        pass

    @property
    def is_due(self) -> bool:
        self.asked += 1
        return self.asked == self.at

    def save(self, state: RunState) -> None:
        tensors, about = state
        write_state(self.path, tensors, {**about, "log": self.log.state_dict()})
        raise Interrupted


@dataclass
class Whole:
    """The results of a run."""

    summary: dict[str, Any]
    rows: list[dict[str, Any]]
    events: bytes
    asked: int
    parameters: dict[str, bytes]


def saver(parameters: dict[str, bytes]) -> SaveParameters:
    def save(name: str, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        parameters.update({f"{name}/{key}": tensor.numpy().tobytes() for key, tensor in tensors.items()})

    return save


def whole(config: RunConfig, folder: Path) -> Whole:
    rows: list[Mapping[str, Any]] = []
    log = EventLog(folder / "whole.arrow")
    counter = InterruptingCheckpointer(folder / "never", log, None)
    parameters = dict[str, bytes]()
    summary = simulate(config, rows.append, lambda progress: None, log, counter, save_parameters=saver(parameters))
    log.close()
    assert bool(parameters) == config.gradients
    return Whole(*plain(summary, rows), (folder / "whole.arrow").read_bytes(), counter.asked, parameters)


def in_pieces(config: RunConfig, folder: Path, lengths: list[int]) -> Whole:
    """Interrupted after these numbers of chances to save; each piece resumes from the file."""
    path, place = folder / "pieces.arrow", folder / "checkpoint" / "run.safetensors"
    rows: list[Mapping[str, Any]] = []
    state, asked, parameters = None, 0, dict[str, bytes]()
    for length in [*lengths, None]:
        log = EventLog(path, **(state[1]["log"] if state else {}))
        checkpointer = InterruptingCheckpointer(place, log, length)
        try:
            save = saver(parameters)
            summary = simulate(config, rows.append, lambda progress: None, log, checkpointer, state, save, AT_ONCE)
        except Interrupted:
            log.append(left(1e9, 0, 0, "after the checkpoint"))
            state = read_state(place)
            assert state[1]["observer"]["rows"] == json.loads(json.dumps(rows))
        else:
            break
        finally:
            asked += checkpointer.asked
            log.close()
    return Whole(*plain(summary, rows), path.read_bytes(), asked, parameters)


def plain(summary: dict[str, Any], rows: list[Mapping[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return without_wall_time([summary])[0], without_wall_time([dict(row) for row in rows])


def check(config: RunConfig, folder: Path, generator: random.Random, pieces: int = 3) -> None:
    expected = whole(config, folder)
    assert expected.asked > pieces
    interrupts = sorted(generator.sample(range(1, expected.asked), pieces - 1))
    lengths = [this - before for before, this in zip([0, *interrupts], interrupts, strict=False)]
    found = in_pieces(config, folder, lengths)
    assert found == expected


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches of events precede an interrupt, also in runs without gradients."""
    monkeypatch.setattr(events, "BATCH_ROWS", 100)
    monkeypatch.setattr(simulation_run, "CHECK_EVERY", 1)
    monkeypatch.setattr(executors, "TRIAL_S", 0.0)
    monkeypatch.setattr(executors, "WORTH_S", 0.0)


def config_of(strategy: StrategyOptions, cluster: ClusterConfig, **about: Any) -> RunConfig:
    standard = {"gradients": False, "max_updates": NUM_UPDATES, "eval_every_epochs": 0.25} | about
    return simulations.config_of(strategy, cluster=cluster, **standard)


SERVERS = [*CASES, PspOptions(c=2, b=60, tau1=0.01, tau2=0.01), PspOptions(c=3, b=50, tau2=0.02, tag="newest")]
KINDS: list[StrategyOptions] = [
    AspOptions(),
    BspOptions(),
    BackupOptions(backups=1),  # discards late gradients
    KBatchSyncOptions(k=3),  # interrupts and repeats; one server
    AdasyncOptions(variant="k_async", k=1, interval=0.03),  # follows the losses; one server
    PspOptions(c=2, b=60, tau1=0.01, tau2=0.01),  # timers, and blocks of several versions
]
every_kind = pytest.mark.parametrize("strategy", KINDS, ids=repr)


def shards_of(strategy: StrategyOptions) -> int:
    return 1 if strategy.single_server else 3


def remote(strategy: StrategyOptions, **about: Any) -> RunConfig:
    """Messages are in flight and late, and there are several shards where the strategy allows it."""
    cluster = replace(REMOTE, shards=shards_of(strategy), network=about.pop("network", NETWORK))
    return config_of(strategy, cluster, scenario=DELAYS, **about)


@pytest.mark.parametrize("strategy", SERVERS, ids=repr)
def test_without_gradients(strategy: StrategyOptions, tmp_path: Path) -> None:
    check(remote(strategy, max_updates=60), tmp_path, random.Random(repr(strategy)))


@every_kind
@pytest.mark.parametrize("cluster", [DIRECT, LEVEL], ids=["direct", "level"])
def test_without_gradients_and_messages(strategy: StrategyOptions, cluster: ClusterConfig, tmp_path: Path) -> None:
    check(config_of(strategy, cluster, max_updates=60), tmp_path, random.Random(f"{strategy} {cluster}"))


VARIANTS: dict[str, dict[str, Any]] = {
    "ordinary, with NICs that messages share": {"network": replace(NETWORK, bandwidth_gbps=0.001, sharing="fair")},
    "ordinary at first, then local steps of an optimizer with a state": {
        "local": LocalStepsConfig(steps=3, by_speed=True, after_epochs=0.2, optimizer=AdamWConfig()),
        "optimizer": SgdConfig(lr=0.7),
        "update": GapAwareConfig(),
    },
    "compensated by the weights that each was computed from": {"update": DelayCompensatedConfig()},
    "compressed, with what was left out before and replicas at the workers": {
        "compress": SparseConfig(density=0.02, pulls=True),
        "local": LocalStepsConfig(steps=2, keep=0.5, optimizer=SgdConfig(lr=0.05)),
    },
}


@every_kind
@pytest.mark.parametrize("pushes", VARIANTS)
def test_with_gradients(strategy: StrategyOptions, pushes: str, tmp_path: Path) -> None:
    check(remote(strategy, gradients=True, **VARIANTS[pushes]), tmp_path, random.Random(repr(strategy)))


DECIDING: list[StrategyOptions] = [
    DsspOptions(s_lower=1, r_max=3),
    *(AdasyncOptions(variant=variant, k=1, interval=0.03) for variant in VARIANTS_OF_ADASYNC),
]


@pytest.mark.parametrize("strategy", DECIDING, ids=repr)
def test_decisions_do_not_depend_on_when_a_gradient_was_computed(strategy: StrategyOptions, tmp_path: Path) -> None:
    """In the pieces most are computed ahead."""
    config = config_of(strategy, DIRECT, gradients=True, max_updates=60)
    when_due = whole(config, tmp_path)
    assert in_pieces(config, tmp_path, [when_due.asked // 2]) == when_due
    assert isinstance(strategy, DsspOptions) or len(when_due.summary["waits_for"]) > 1, "K changes"


COLLECTIVES: list[StrategyOptions] = [
    BspOptions(topology="allreduce"),
    DsSyncOptions(),
    DsSyncOptions(average="before_forward"),
    DsSyncOptions(parity="epoch"),
    GossipOptions(graph="exponential"),
    GossipOptions(graph="random"),
]
every_collective = pytest.mark.parametrize("strategy", COLLECTIVES, ids=repr)


@every_collective
@pytest.mark.parametrize("steps", [1, 3], ids=["ordinary", "local steps"])
def test_a_collective_without_gradients(strategy: StrategyOptions, steps: int, tmp_path: Path) -> None:
    """Over several blocks of steps."""
    check(collective(strategy, LocalStepsConfig(steps=steps), max_updates=150), tmp_path, random.Random(repr(strategy)))


@every_collective
def test_local_steps_of_a_collective(strategy: StrategyOptions, tmp_path: Path) -> None:
    """With the state of each worker's optimizer, and what compression has left out."""
    after = 0.0 if strategy.collective.least_steps_an_epoch else 1.0
    local = LocalStepsConfig(steps=3, after_epochs=after, optimizer=AdamWConfig())
    compress = CompressConfig() if strategy.collective.peers else RandkConfig(density=0.02)
    config = collective(strategy, local, gradients=True, compress=compress)
    check(config, tmp_path, random.Random(repr(strategy)))


@pytest.mark.parametrize("strategy", [kind for kind in KINDS if kind.elastic], ids=repr)
def test_workers_that_are_lost(strategy: StrategyOptions, tmp_path: Path) -> None:
    """Some are away when the run is interrupted, and what was under way from them or to them is lost."""
    scenario = replace(DELAYS, up=Exponential(0.15), down=Exponential(0.05))
    cluster = replace(REMOTE, shards=shards_of(strategy))
    num = 3 if isinstance(strategy, AspOptions | BspOptions | BackupOptions) else 1
    overlap = isinstance(strategy, AspOptions | BspOptions)
    local = LocalStepsConfig(steps=2, keep=0.5, fragments=num, overlap=overlap, optimizer=AdamWConfig())
    config = config_of(strategy, cluster, scenario=scenario, gradients=True, local=local, max_updates=30)
    check(config, tmp_path, random.Random(repr(strategy)))


def collective(strategy: StrategyOptions, local: LocalStepsConfig, **about: Any) -> RunConfig:
    scenario = ScenarioConfig(compute_delay=Exponential(0.01), slow={1: 2.0})
    cluster = replace(REMOTE, network=replace(NETWORK, jitter=None))
    return config_of(strategy, cluster, scenario=scenario, local=local, batch_size=4, **about)


@pytest.mark.parametrize("strategy", [*COLLECTIVES[:3], COLLECTIVES[-1]], ids=repr)
def test_a_collective_with_gradients(strategy: StrategyOptions, tmp_path: Path) -> None:
    """With the batch-norm statistics, momentum and push-sum weight of each replica, interrupted at every chance."""
    about = {"gradients": True, "model": ResnetConfig(depth=8, width=2), "max_updates": 4, "batch_size": 2}
    config = config_of(strategy, DIRECT, optimizer=SgdConfig(momentum=0.9), **about)
    expected = whole(config, tmp_path)
    assert in_pieces(config, tmp_path, [1] * (expected.asked - 1)) == expected


@pytest.mark.parametrize("cluster", [REMOTE, LEVEL], ids=["remote", "level"])
@pytest.mark.parametrize("gradients", [False, True], ids=["times", "gradients"])
def test_asynchronous_peers(gradients: bool, cluster: ClusterConfig, tmp_path: Path) -> None:
    """With exchanges that are queued or under way, local steps, and the state of each optimizer."""
    local = LocalStepsConfig(steps=2, after_epochs=0.1, optimizer=AdamWConfig())
    config = collective(AdPsgdOptions(), local, gradients=gradients, max_updates=60)
    check(replace(config, cluster=replace(cluster, network=config.cluster.network)), tmp_path, random.Random(1))


def test_asynchronous_peers_with_batch_norm(tmp_path: Path) -> None:
    """Interrupted at every chance."""
    about = {"gradients": True, "model": ResnetConfig(depth=8, width=2), "max_updates": 8, "batch_size": 2}
    config = config_of(AdPsgdOptions(), DIRECT, optimizer=SgdConfig(momentum=0.9), **about)
    expected = whole(config, tmp_path)
    assert in_pieces(config, tmp_path, [1] * (expected.asked - 1)) == expected


@pytest.mark.parametrize("strategy", [AspOptions(), KSyncOptions(k=2), *COLLECTIVES[:2]], ids=repr)
def test_one_order_that_all_workers_share(strategy: StrategyOptions, tmp_path: Path) -> None:
    """The cursor in the order is resumed, and so is the batch of each gradient that is under way."""
    dataset = DigitsConfig(train_size=200, sharing="shared")
    config = config_of(strategy, DIRECT, dataset=dataset, gradients=True)
    check(config, tmp_path, random.Random(repr(strategy)))


@pytest.mark.parametrize(
    "words",
    [
        "optimizer=sgd momentum=lr_inside optimizer.average_decay=0.99",
        "optimizer=nesterov optimizer.schedule.at_epochs=[1,2]",
        "optimizer=adam",
        "optimizer=adamw optimizer.average_decay=0.9 optimizer.clip_norm=1",
        "optimizer=rmsprop",
    ],
)
def test_every_optimizer(words: str, tmp_path: Path) -> None:
    """Each shard has the state of its block; the rate follows the epochs."""
    about = "model=softmax_regression strategy=ssp cluster.workers=3 cluster.shards=2 batch_size=8 max_updates=20"
    about += " epochs=null eval_every_epochs=0.5 dataset.train_size=200 dataset.test_size=50"
    check(compose([*about.split(), *words.split()])[0], tmp_path, random.Random(words))


@pytest.mark.parametrize(
    "words",
    [
        "model=resnet8 model.width=2 dataset.augment=true strategy=asp",  # batch-norm statistics, and random crops
        # a network that draws random numbers
        "model=draw_small model.glimpses=2 model.hidden_size=8 dataset=digits strategy=ssp optimizer.lr=1e-4",
        "model=char_lstm model.hidden_size=8 dataset=pydoc_text dataset.length=16 strategy=k_async",
    ],
)
def test_networks_with_state_or_randomness(words: str, tmp_path: Path) -> None:
    about = "cluster.workers=3 cluster.gradient_s=[0.02,0.05] batch_size=4 max_updates=9 epochs=null"
    about += " eval_every_epochs=100 dataset.train_size=50 dataset.test_size=10"
    check(compose([*words.split(), *about.split()])[0], tmp_path, random.Random(words))


@pytest.mark.parametrize("strategy", [BspOptions(), PspOptions(c=2, b=40, tau1=0.02)], ids=repr)
def test_a_run_that_is_interrupted_at_every_chance(strategy: StrategyOptions, tmp_path: Path) -> None:
    """Three shards: at an update of one, the others have pending gradients or a running timer."""
    config = config_of(strategy, replace(REMOTE, shards=3), scenario=DELAYS, max_updates=15)
    expected = whole(config, tmp_path)
    assert in_pieces(config, tmp_path, [1] * (expected.asked - 1)) == expected


def test_a_run_that_ends_saves_no_checkpoint(tmp_path: Path) -> None:
    """A checkpoint that is due at the end of the run is not saved."""
    config = config_of(AspOptions(), DIRECT)
    expected = whole(config, tmp_path)
    assert in_pieces(config, tmp_path, [expected.asked]) == expected
    assert not (tmp_path / "checkpoint").exists()
