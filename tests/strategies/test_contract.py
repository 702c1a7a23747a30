"""The contract of all strategies, checked for every row of the table; a new row is checked with its default options."""

import random
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from examples import scaled
from scipy.stats import chisquare

from syncline.checking import strategy
from syncline.checking.harness import Harness
from syncline.checking.strategy import LARGEST, accepts, check_collective, check_neighbours, check_strategy
from syncline.strategies import STRATEGIES
from syncline.strategies.ad_psgd import AdPsgdOptions
from syncline.strategies.adasync import VARIANTS, AdasyncOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.collective import Collective
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.dssp import BOUNDS, DsspOptions
from syncline.strategies.gossip import GRAPHS, GossipOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.mindflayer import MindflayerOptions
from syncline.strategies.neighbours import Neighbours
from syncline.strategies.protocol import Apply, Grant, Interrupt, StrategyOptions
from syncline.strategies.psp import PspOptions
from syncline.strategies.rennala import RennalaOptions
from syncline.strategies.ringmaster import RingmasterOptions
from syncline.strategies.ssp import SspOptions
from syncline.strategies.sync_switch import SyncSwitchOptions

ROOT = Path(__file__).parents[2]

CASES: list[StrategyOptions] = [
    *(kind() for kind in STRATEGIES.values()),
    *(SspOptions(staleness=s) for s in (0, 1)),
    *(DsspOptions(s_lower=0, r_max=3, bound=bound) for bound in BOUNDS),
    DsspOptions(s_lower=0, r_max=0),
    DsspOptions(s_lower=1, r_max=2, bound="hard"),
    *(BackupOptions(backups=b, aggregate=aggregate) for b, aggregate in ((0, "mean"), (2, "sum"))),
    *(kind(k=k) for kind in (KSyncOptions, KBatchSyncOptions, KAsyncOptions, KBatchAsyncOptions) for k in (1, 3)),
    *(AdasyncOptions(variant=variant, interval=0.004) for variant in VARIANTS),
    *(AdasyncOptions(variant=variant, interval=0.004, f0="start") for variant in ("k_sync", "k_batch_async")),
    *(AdasyncOptions(variant=variant, interval=0.01, k=3, k_cap=9) for variant in VARIANTS if "batch" in variant),
    PspOptions(c=1),
    PspOptions(c=2, tag="newest"),
    PspOptions(c=1, tau1=0.003, tag="newest"),
    PspOptions(c=2, tau1=0.005, tau2=0.002),
    RingmasterOptions(r=1),
    *(RingmasterOptions(r=r, stops=True) for r in (1, 3)),
    *(MindflayerOptions(within=within) for within in (0.003, 1.0)),
    RennalaOptions(k=1),
    *(SyncSwitchOptions(after=after) for after in (0, 2)),
    BspOptions(topology="allreduce"),
    *(DsSyncOptions(group_size=size) for size in (2, 3)),
    *(GossipOptions(graph=graph) for graph in GRAPHS),
    AdPsgdOptions(graph="ring"),
]


def test_the_import_contract_names_every_strategy():
    folder = ROOT / "src/syncline/strategies"
    shared = {"__init__", "protocol", "clocks", "collective", "machine", "members", "neighbours"}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (independent,) = [contract for contract in contracts if contract["type"] == "independence"]
    files = {path.stem for path in folder.glob("*.py")} - shared
    assert set(independent["modules"]) == {f"syncline.strategies.{name}" for name in files}


@pytest.mark.parametrize("options", CASES, ids=repr)
def test_every_case_keeps_the_contract(options, monkeypatch):
    """As `syncline check` tries it; of options that are no defaults every interleaving of one event less."""
    monkeypatch.setattr(strategy, "NUM_RANDOM", scaled(15).max_examples)
    if options != STRATEGIES[options.name]():
        for table in ("PUSHES", "LEAVES"):
            monkeypatch.setattr(strategy, table, [(number, depth - 1) for number, depth in getattr(strategy, table)])
    checked = check_strategy(options)
    assert checked.num_events >= len(checked.sizes)


@pytest.mark.parametrize("options", [options for options in CASES if options.has_server], ids=repr)
def test_a_forked_harness_continues_as_the_original(options):
    """The exploration of `check_strategy` forks at every event, so a fork must have the whole state."""
    chance = random.Random(0)
    harness = Harness(options, max(number for number in range(1, LARGEST + 1) if accepts(options, number)))
    for _ in range(30):
        fork = harness.fork()
        if harness.running:
            worker, pause = chance.choice(harness.running), min(chance.randrange(10) / 1000, harness.due - harness.now)
            assert fork.push(worker, pause) == harness.push(worker, pause)
        else:
            assert fork.wait() == harness.wait()
        assert (fork.granted, fork.due, fork.version) == (harness.granted, harness.due, harness.version)
        assert fork.strategy.state_dict() == harness.strategy.state_dict()


def test_the_harness_detects_violations():
    """Each is a mistake of a strategy; tests/checking/test_check.py has others."""

    def answer(*commands, worker: int = 0) -> None:
        harness = Harness(KSyncOptions(k=2), 3)
        harness.strategy.handle = lambda event: list(commands)
        harness._from_saved_state = lambda: harness.strategy
        harness.push(worker)

    with pytest.raises(AssertionError, match="not computing"):
        answer(Interrupt(0))
    with pytest.raises(AssertionError, match="interrupted and not granted"):
        answer(Apply((0,)), Interrupt(1))
    with pytest.raises(AssertionError, match="interrupted at the current version"):
        answer(Interrupt(1), Grant(1))


# Collectives.


def test_whoever_is_paired_meets_each_other_worker_once():
    for num_workers in range(2, 20):
        options = GossipOptions(graph="pairs")
        met = [options.peers(turn, num_workers) for turn in range(options.turns(num_workers))]
        for worker in range(num_workers):
            opponents = [other for turn in met for other in turn[worker]]
            assert sorted(opponents) == [other for other in range(num_workers) if other != worker]
            assert all(turn[other] == [worker] for turn in met for other in turn[worker])


@dataclass(frozen=True)
class RingOptions(StrategyOptions):
    """Pairs of neighbours, and in odd turns the other pairs; not `closed`, the last worker is never in one."""

    name: str = "ring"
    closed: bool = True
    spread: int = 4

    @property
    def collective(self) -> Collective:
        def groups(turn: int, num_workers: int) -> list[list[int]]:
            if not self.closed:
                return [list(range(num_workers - 1)), [num_workers - 1]]
            places = [(place + turn % 2) % num_workers for place in range(num_workers)]
            return [sorted(pair) for pair in zip(places[::2], places[1::2], strict=True)]

        return Collective(groups=groups, replicas=True, turns=lambda num: 2, spread=lambda num: self.spread)


def test_parameters_may_take_more_than_two_steps_to_spread_but_must_reach_all():
    assert check_collective(RingOptions(), 8) == 2
    with pytest.raises(AssertionError, match="3 consecutive steps must spread every worker's parameters to all"):
        check_collective(RingOptions(spread=3), 8)
    with pytest.raises(AssertionError, match="4 consecutive steps must spread"):
        check_collective(RingOptions(closed=False), 8)


def test_peers_may_send_to_more_than_they_receive_from_but_must_spread_their_parameters():
    @dataclass(frozen=True)
    class Star(GossipOptions):
        back: bool = True  # in every other turn all send to the first worker

        @property
        def collective(self) -> Collective:
            def peers(turn: int, num: int) -> list[list[int]]:
                return [[*range(1, num)], *[[]] * (num - 1)] if turn and self.back else [[], *[[0]] * (num - 1)]

            return Collective(peers=peers, turns=lambda num: 2, spread=lambda num: 3, replicas=True)

    assert check_collective(Star(), 4) == 2
    with pytest.raises(AssertionError, match="3 consecutive steps must spread every worker's parameters to all"):
        check_collective(Star(back=False), 4)


def test_on_a_random_graph_each_sends_to_one_other_and_all_are_as_likely():
    options, num_workers = GossipOptions(graph="random"), 4
    sent = Counter[tuple[int, int]]()
    for turn in range(options.turns(num_workers)):
        senders = options.peers(turn, num_workers)
        assert sorted(worker for found in senders for worker in found) == list(range(num_workers))
        sent.update((worker, receiver) for receiver, found in enumerate(senders) for worker in found)
    assert all(worker != receiver for worker, receiver in sent)
    assert len(sent) == 12
    assert chisquare(list(sent.values())).pvalue > 0.01


def test_the_spread_of_a_random_graph_is_the_least():
    class OneLess(GossipOptions):
        def spread(self, num_workers: int) -> int:
            return GossipOptions.spread(self, num_workers) - 1

    for num_workers in (2, 3, 8):
        check_collective(GossipOptions(graph="random"), num_workers)
        with pytest.raises(AssertionError, match="consecutive steps must spread"):
            check_collective(OneLess(graph="random"), num_workers)


def test_a_collective_has_no_state_machine():
    with pytest.raises(NotImplementedError, match="ds_sync has no server"):
        DsSyncOptions().start(4)


# Asynchronous peers.


@pytest.mark.parametrize(
    ("neighbour", "rule"),
    [
        (lambda worker, number, num: worker, "must have 1 different neighbours among the others"),
        (lambda worker, number, num: (worker + 1) % num, "must have it as a neighbour, too"),
        (lambda worker, number, num: worker ^ 1, "the graph must join all"),
    ],
    ids=["itself", "one way", "pairs"],
)
def test_peers_must_be_a_graph_that_joins_all(neighbour, rule):
    with pytest.raises(AssertionError, match=rule):
        check_neighbours(Neighbours(lambda num: 1, neighbour), 4)


def test_peers_have_no_state_machine():
    with pytest.raises(NotImplementedError, match="ad_psgd has no server"):
        AdPsgdOptions().start(4)
