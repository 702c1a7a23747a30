"""The contract of all strategies, checked for every row of the table; a new row is checked with its default options."""

import tomllib
from pathlib import Path

import pytest
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.checking.harness import Harness
from syncline.checking.strategy import (
    LEAVES,
    PUSHES,
    accepts,
    check_collective,
    check_that_nobody_starves,
    explore,
    explore_leaves,
)
from syncline.strategies import STRATEGIES
from syncline.strategies.adasync import VARIANTS, AdasyncOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.dssp import BOUNDS, DsspOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.protocol import Apply, Interrupt, StrategyOptions
from syncline.strategies.psp import PspOptions
from syncline.strategies.ssp import SspOptions

ROOT = Path(__file__).parents[2]

CASES: list[StrategyOptions] = [
    *(kind() for kind in STRATEGIES.values()),
    *(SspOptions(staleness=s) for s in (0, 1)),
    *(DsspOptions(s_lower=s, r_max=r, bound=bound) for s, r in ((0, 0), (0, 3), (1, 2)) for bound in BOUNDS),
    *(BackupOptions(backups=b, aggregate=aggregate) for b, aggregate in ((0, "mean"), (2, "sum"))),
    *(kind(k=k) for kind in (KSyncOptions, KBatchSyncOptions, KAsyncOptions, KBatchAsyncOptions) for k in (1, 3)),
    *(AdasyncOptions(variant=variant, interval=0.004) for variant in VARIANTS),
    *(AdasyncOptions(variant=variant, interval=0.004, f0="start") for variant in VARIANTS),
    *(AdasyncOptions(variant=variant, interval=0.01, k=3, k_cap=9) for variant in VARIANTS if "batch" in variant),
    PspOptions(c=1),
    PspOptions(c=2, tag="newest"),
    PspOptions(c=1, tau1=0.003, tag="newest"),
    PspOptions(c=2, tau1=0.005, tau2=0.002),
    BspOptions(topology="allreduce"),
    *(DsSyncOptions(group_size=size) for size in (2, 3)),
]
SERVERS = [options for options in CASES if options.has_server]
COLLECTIVES = [options for options in CASES if not options.has_server]


def sizes(options: StrategyOptions, most: int) -> st.SearchStrategy[int]:
    """Numbers of workers that the options can run on."""
    return st.sampled_from([number for number in range(1, most + 1) if accepts(options, number)])


def small(*choices: tuple[int, int]) -> list[object]:
    """Every server strategy with each number of workers that it accepts, and the number of events to explore."""
    return [
        pytest.param(options, number, depth, id=f"{options}-{number}-{depth}")
        for options in SERVERS
        for number, depth in choices
        if accepts(options, number)
    ]


@pytest.fixture(params=SERVERS, ids=repr)
def options(request: pytest.FixtureRequest) -> StrategyOptions:
    return request.param


def test_every_row_of_the_table_names_itself():
    assert {name: kind().name for name, kind in STRATEGIES.items()} == {name: name for name in STRATEGIES}


def test_the_import_contract_names_every_strategy():
    folder = ROOT / "src/syncline/strategies"
    shared = {"__init__", "protocol", "clocks", "members"}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (independent,) = [contract for contract in contracts if contract["type"] == "independence"]
    files = {path.stem for path in folder.glob("*.py")} - shared
    assert set(independent["modules"]) == {f"syncline.strategies.{name}" for name in files}


# an event: which of the workers that can do it, and how many milliseconds later
# "timer" lets the time pass to the next moment that a timer is set to
kinds = st.sampled_from(["push"] * 12 + ["leave", "join", "timer"])
one_step = st.tuples(kinds, st.integers(0, 99), st.integers(0, 9))
steps = st.integers(0, 40).flatmap(lambda size: st.lists(one_step, min_size=size, max_size=size))


@scaled(20)
@given(data=st.data(), history=steps)
def test_the_invariants_hold_in_any_order_of_pushes_timers_leaves_and_joins(options, data, history):
    num_workers = data.draw(sizes(options, 6))
    harness = Harness(options, num_workers)
    for kind, choice, after in history:
        harness.check_illegal_events_change_nothing()
        if kind == "push" and harness.running:
            worker = harness.running[choice % len(harness.running)]
            harness.push(worker, min(after / 1000, harness.due - harness.now), loss=choice / 10)
        elif kind == "timer" and harness.due < float("inf"):
            harness.wait()
        elif kind == "leave" and harness.counts:
            harness.leave(sorted(harness.counts)[choice % len(harness.counts)])
        elif kind == "join" and len(harness.counts) < num_workers:
            absent = [worker for worker in range(num_workers) if worker not in harness.counts]
            harness.join(absent[choice % len(absent)])


@scaled(25)
@given(
    data=st.data(),
    choices=st.lists(st.integers(0, 99), max_size=40),
    seconds=st.lists(st.floats(0.01, 3), min_size=5, max_size=5),
)
def test_no_worker_starves(options, data, choices, seconds):
    """From any state, if every computing worker finishes in its own time, every worker starts again and again."""
    num_workers = data.draw(sizes(options, 5))
    harness = Harness(options, num_workers)
    for number, choice in enumerate(choices):
        if harness.running:
            worker = harness.running[choice % len(harness.running)]
            after = min(seconds[number % 5], harness.due - harness.now)
            harness.push(worker, after, loss=1 / (number + 1))
        else:
            harness.wait()
    check_that_nobody_starves(harness, seconds)


@pytest.mark.parametrize(("options", "num_workers", "depth"), small(*PUSHES))
def test_every_interleaving_of_pushes_and_timers(options, num_workers, depth):
    assert explore(Harness(options, num_workers), depth) >= depth


@pytest.mark.parametrize(("options", "num_workers", "depth"), small(*LEAVES))
def test_every_interleaving_with_one_leave_and_one_return(options, num_workers, depth):
    assert explore_leaves(Harness(options, num_workers), depth) >= depth


@scaled(5)
@given(data=st.data(), history=steps)
def test_a_forked_harness_continues_as_the_original(options, data, history):
    """The exploration above forks at every event: a fork must have the whole state."""
    harness = Harness(options, data.draw(sizes(options, 4)))
    for _, choice, after in history[:12]:
        fork = harness.fork()
        if harness.running:
            worker = harness.running[choice % len(harness.running)]
            pause = min(after / 1000, harness.due - harness.now)
            assert fork.push(worker, pause) == harness.push(worker, pause)
        else:
            assert fork.wait() == harness.wait()
        assert (fork.granted, fork.due, fork.version) == (harness.granted, harness.due, harness.version)


def test_the_harness_detects_violations():
    """Each is a mistake of a strategy."""

    def answer(*commands, worker: int = 0) -> None:
        harness = Harness(KSyncOptions(k=2), 3)
        harness.strategy.handle = lambda event: list(commands)
        harness._from_saved_state = lambda: harness.strategy
        harness.push(worker)

    with pytest.raises(AssertionError, match="not computing"):
        answer(Interrupt(0))
    with pytest.raises(AssertionError, match="interrupted and not granted"):
        answer(Interrupt(1))
    with pytest.raises(AssertionError, match="never sent"):
        answer(Apply((7,)))
    with pytest.raises(AssertionError, match="neither granted nor held"):
        answer(Apply((0,)))


# Collectives.


@pytest.fixture(params=COLLECTIVES, ids=repr)
def collective(request: pytest.FixtureRequest) -> StrategyOptions:
    return request.param


def test_every_row_of_the_table_is_checked_by_one_contract_or_the_other():
    assert {options.name for options in SERVERS} | {options.name for options in COLLECTIVES} == set(STRATEGIES)


def numbers(options: StrategyOptions) -> list[int]:
    return [number for number in range(1, 41) if accepts(options, number)]


def test_the_groups_of_a_collective_partition_the_workers_and_spread_to_all_in_two_steps(collective):
    for num_workers in numbers(collective):
        assert check_collective(collective, num_workers) == 5


def test_a_collective_runs_on_some_number_of_workers_and_on_one_shard(collective):
    assert numbers(collective)
    with pytest.raises(ValueError, match=r"has no server: cluster\.shards must be 1, got 2"):
        collective.check_cluster(36, 2)


def test_a_collective_has_no_state_machine_unless_it_has_a_server_too():
    with pytest.raises(NotImplementedError, match="ds_sync has no server"):
        DsSyncOptions().start(4)
    with pytest.raises(NotImplementedError, match="asp has no collective"):
        STRATEGIES["asp"]().groups(0, 4)
