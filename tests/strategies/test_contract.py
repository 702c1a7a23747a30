"""What every strategy owes, checked for all of the table; a new strategy is under it by its row alone."""

import pytest
from harness import Harness
from hypothesis import given
from hypothesis import strategies as st

from syncline.strategies import STRATEGIES
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import BOUNDS, DsspOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.strategies.ssp import SspOptions

CASES: list[StrategyOptions] = [
    *(kind() for kind in STRATEGIES.values()),
    *(SspOptions(staleness=s) for s in (0, 1)),
    *(DsspOptions(s_lower=s, r_max=r, bound=bound) for s, r in ((0, 0), (0, 3), (1, 2)) for bound in BOUNDS),
]


def case_name(options: StrategyOptions) -> str:
    return repr(options)


@pytest.fixture(params=CASES, ids=case_name)
def options(request: pytest.FixtureRequest) -> StrategyOptions:
    return request.param


def test_every_row_of_the_table_names_itself():
    assert {name: kind().name for name, kind in STRATEGIES.items()} == {name: name for name in STRATEGIES}


# an event: which of the workers that can do it, and how many milliseconds later
steps = st.lists(st.tuples(st.sampled_from(["push"] * 12 + ["leave", "join"]), st.integers(0, 99), st.integers(0, 9)))


@given(num_workers=st.integers(1, 6), history=steps)
def test_the_invariants_hold_in_any_order_of_pushes_leaves_and_joins(options, num_workers, history):
    harness = Harness(options, num_workers)
    for kind, choice, after in history:
        harness.check_illegal_events_change_nothing()
        if kind == "push" and harness.running:
            harness.push(harness.running[choice % len(harness.running)], after / 1000)
        elif kind == "leave" and harness.counts:
            harness.leave(sorted(harness.counts)[choice % len(harness.counts)])
        elif kind == "join" and len(harness.counts) < num_workers:
            absent = [worker for worker in range(num_workers) if worker not in harness.counts]
            harness.join(absent[choice % len(absent)])


@given(
    num_workers=st.integers(1, 5),
    choices=st.lists(st.integers(0, 99), max_size=40),
    seconds=st.lists(st.floats(0.01, 3), min_size=5, max_size=5),
)
def test_nobody_starves(options, num_workers, choices, seconds):
    """From any state, if everybody who computes finishes in its own time, everybody pushes again and again."""
    harness = Harness(options, num_workers)
    for choice in choices:
        harness.push(harness.running[choice % len(harness.running)], seconds[choice % 5])
    before = dict(harness.counts)
    ends = {worker: harness.now + seconds[worker] for worker in harness.running}
    for _ in range(3000):
        worker = min(ends, key=lambda w: ends[w])
        harness.push(worker, max(0.0, ends.pop(worker) - harness.now))
        ends |= {w: harness.now + seconds[w] for w in harness.running if w not in ends}
        if all(harness.counts[w] >= before[w] + 3 for w in before):
            return
    pytest.fail(f"starved: {harness.counts} after {before}")


@pytest.mark.parametrize(("num_workers", "depth"), [(1, 6), (2, 9), (3, 7)])
def test_every_interleaving_of_pushes(options, num_workers, depth):
    def explore(harness: Harness, left: int) -> None:
        for worker in harness.running if left else ():
            after = harness.fork()
            after.push(worker)
            explore(after, left - 1)

    explore(Harness(options, num_workers), depth)


@pytest.mark.parametrize("num_workers", [2, 3])
def test_every_interleaving_with_one_leave_and_one_return(options, num_workers):
    def explore(harness: Harness, left: int, gone: int | None, may_leave: bool) -> None:
        if left == 0:
            return
        moves = [("push", worker) for worker in harness.running]
        moves += [("leave", worker) for worker in harness.counts] if may_leave else []
        moves += [("join", gone)] if gone is not None else []
        for kind, worker in moves:
            after = harness.fork()
            getattr(after, kind)(worker)
            explore(
                after,
                left - 1,
                worker if kind == "leave" else gone if kind == "push" else None,
                may_leave and kind != "leave",
            )

    explore(Harness(options, num_workers), 5, None, True)


def test_bsp_refuses_a_push_of_another_version():
    harness = Harness(BspOptions(), 2)
    harness.granted[0] = 7
    with pytest.raises(Exception, match="version is 0"):
        harness.push(0)
