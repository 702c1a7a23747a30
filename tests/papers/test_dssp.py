"""Dynamic Stale Synchronous Parallel (dssp.txt), statement by statement: sections I to III, IV's reduction, Table I."""

import pytest
from answers import granted
from hypothesis import given
from hypothesis import strategies as st
from simulations import run

from syncline.checking.harness import Harness
from syncline.progress import Totals
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import BOUNDS, Dssp, DsspOptions
from syncline.strategies.protocol import Apply, Command, Hold, PushArrived, StrategyOptions
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import ClusterConfig

MIXED = ClusterConfig(workers=2, gradient_s=[0.051, 0.158], jitter={"name": "normal", "mean": 1.0, "std": 0.03})


def is_granted(commands: list[Command], worker: int) -> bool:
    return worker in granted(commands)


def simulate(options: StrategyOptions, cluster: ClusterConfig, gradients: int, seed: int = 0) -> Totals:
    """A run without gradients, until this number of them is used."""
    return run(options, cluster, seed=seed, samples=gradients)


# --- I. Introduction: the three paradigms ---


@given(st.lists(st.integers(0, 3), min_size=4, max_size=40))
def test_bsp_every_worker_starts_an_iteration_on_the_same_version(choices):
    """I-A.1: "every worker starts a new iteration based on the same version of the global weights"."""
    harness = Harness(BspOptions(), 4)
    for choice in choices:
        harness.push(harness.running[choice % len(harness.running)])
        assert set(harness.granted.values()) == {harness.version}


def test_bsp_sends_the_weights_only_after_all_have_pushed():
    """I-A.1: "Once the parameter server receives gradients from all workers and updates ... it sends"."""
    harness = Harness(BspOptions(), 3)
    assert granted(harness.push(1)) == []
    assert granted(harness.push(0)) == []
    last = harness.push(2)
    assert last[0] == Apply((0, 1, 2), because="all 3 have pushed"), "one update of all, before any grant"
    assert granted(last) == [1, 0, 2]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_asp_no_worker_ever_waits(choices):
    """I-A.2: "no synchronization is required ... simply run independently"."""
    harness = Harness(AspOptions(), 4)
    for choice in choices:
        assert granted(harness.push(choice)) == [choice]


def test_asp_workers_start_at_different_versions():
    """I-A.2: "each worker may obtain a different version of the global weight"."""
    harness = Harness(AspOptions(), 3)
    for worker in (0, 1, 0):
        harness.push(worker)
    assert harness.granted == {0: 3, 1: 2, 2: 0}


@pytest.mark.parametrize("seed", range(3))
def test_asp_needs_the_least_time_for_a_given_number_of_epochs(seed):
    """I-A.2: "ASP has the least training time for a given number of epochs"."""
    times = {
        options.name: simulate(options, MIXED, 1000, seed).time_s
        for options in (AspOptions(), BspOptions(), SspOptions(), DsspOptions())
    }
    assert min(times, key=lambda name: times[name]) == "asp"


@given(st.integers(0, 5), st.lists(st.integers(0, 99), max_size=100))
def test_ssp_bounds_the_difference_in_iterations(staleness, choices):
    """I-A.3: "the difference in the number of iterations among workers is no larger than s" among those that continue.

    A worker granted at a difference of s may push once more, and then waits at s + 1.
    """
    harness = Harness(SspOptions(staleness=staleness), 3)
    for choice in choices:
        harness.push(harness.running[choice % len(harness.running)])
        slowest = min(harness.counts.values())
        assert all(harness.counts[worker] - slowest <= staleness for worker in harness.running)
        assert all(harness.counts[w] - slowest == staleness + 1 for w in harness.counts if w not in harness.running)


def test_ssp_forces_only_the_fastest_worker_to_wait():
    """I-A.3: "only forces the fastest worker(s) to wait ... and allows the rest continue their iterations"."""
    harness = Harness(SspOptions(staleness=1), 3)
    assert is_granted(harness.push(0), 0)
    assert not is_granted(harness.push(0), 0)
    assert is_granted(harness.push(1), 1)
    assert harness.running == [1, 2]
    assert set(granted(harness.push(2))) == {0, 2}, "the slowest caught up"


def test_each_worker_has_a_threshold_of_its_own_that_changes_over_time():
    """I-B: "allows the threshold to change over time and also allows different workers to have" their own."""
    harness = Harness(DsspOptions(s_lower=0, r_max=8), 3)
    ends_at, leads = {0: 1.0, 1: 1.7, 2: 7.0}, {0: set(), 1: set(), 2: set()}
    seconds = dict(ends_at)
    for _ in range(120):
        worker = min(ends_at, key=lambda w: ends_at[w])
        commands = harness.push(worker, ends_at.pop(worker) - harness.now)
        if not is_granted(commands, worker):
            leads[worker].add(harness.counts[worker] - min(harness.counts.values()))
        ends_at |= {w: harness.now + seconds[w] for w in harness.running if w not in ends_at}
    assert len(leads[0]) > 1, "worker 0 was stopped at different leads"
    assert leads[0] != leads[1]


# --- III. The method. Algorithm 1, the server ---


def test_the_server_counts_and_applies_every_push_at_once():
    """Algorithm 1, lines 1 and 2."""
    harness = Harness(DsspOptions(), 2)
    for number, worker in enumerate((0, 0, 1, 0)):
        assert harness.push(worker)[0] == Apply((number,))
    assert harness.strategy.clocks.counts == {0: 3, 1: 1}


@given(st.integers(0, 6), st.integers(0, 6))
def test_a_worker_within_s_lower_continues(s_lower, r_max):
    """Lines 7 to 9: "if the number of push requests of worker p is no more than s_L iterations away"."""
    harness = Harness(DsspOptions(s_lower=s_lower, r_max=r_max), 2)
    for _ in range(s_lower):
        assert is_granted(harness.push(0), 0)


def test_beyond_s_lower_without_two_pushes_of_both_there_is_no_interval_and_the_worker_waits():
    """Algorithm 2, lines 4 and 5 need the two latest push times of both workers."""
    harness = Harness(DsspOptions(s_lower=2, r_max=9), 2)
    harness.push(1)
    for _ in range(3):
        assert is_granted(harness.push(0), 0)
    assert isinstance(harness.push(0)[1], Hold)


def warmed_up(options: DsspOptions, own: float, others: float, leads: int) -> Dssp:
    """Two workers with constant intervals; the last push of worker 0 leads by `leads`.

    Worker 1 pushed at 0 and at `others`; worker 0's last push falls at `others` + 0.1.
    """
    machine = options.start(2)
    assert isinstance(machine, Dssp)
    number = 0

    def push(worker: int, at: float) -> list[Command]:
        nonlocal number
        number += 1
        return machine.handle(PushArrived(at, number, worker, 0, 0.0))

    push(1, 0.0)
    push(1, others)
    for step in range(leads + 2):
        machine.held.clear()  # only the controller is tested
        machine.extra.clear()
        push(0, others + 0.1 - (leads + 1 - step) * own)
    machine.held.clear()
    machine.extra.clear()
    return machine


def test_figure_2_three_extra_iterations_give_the_least_waiting():
    """Figure 2: "r* = 3 if r is in [0, 4]": worker 1 may run 3 more iterations and stop at the green line."""
    machine = warmed_up(DsspOptions(s_lower=1, r_max=4), own=1.0, others=3.2, leads=1)
    # predicted pushes: of p at 3.3 + r, of the slowest at 6.4 + 3.2 k; r = 3 gives 6.3, a wait of 0.1
    assert machine.controller(0, now=3.3) == 3


def reference_controller(now, last, own, slowest_last, others, r_max):
    """Algorithm 2, lines 6 to 8, literally: all pairs of predicted pushes."""
    own_pushes = [max(now, last + r * own) for r in range(r_max + 1)]
    others_pushes = [max(now, slowest_last + others + k * others) for k in range(r_max + 1)]
    waits = [min(abs(t - m) for t in others_pushes) for m in own_pushes]
    return waits.index(min(waits))


grid = st.integers(0, 40).map(lambda n: n / 8)  # binary fractions: sums are exact, so ties are real ties


@given(own=grid, others=grid, gap=grid, slowest_gap=grid, r_max=st.integers(0, 14))
def test_the_controller_is_algorithm_2(own, others, gap, slowest_gap, r_max):
    """Algorithm 2, all lines, against its literal transcription; ties go to the smallest r.

    III-A: "an integer r* in R, where R = [0, r_max]".
    """
    machine = Dssp(2, DsspOptions(s_lower=0, r_max=r_max))
    now = 10.0
    machine.clocks.tick(0)
    machine.last_push = {0: now - gap, 1: now - slowest_gap}
    machine.push_before = {0: now - gap - own, 1: now - slowest_gap - others}
    expected = reference_controller(now, now - gap, own, now - slowest_gap, others, r_max)
    assert 0 <= machine.controller(0, now) == expected <= r_max


@pytest.mark.parametrize("bound", BOUNDS)
def test_exactly_r_star_extra_iterations_are_run(bound):
    """Lines 3 to 5 and 11 to 15: r* more iterations, each spending one, then the worker is examined again."""
    harness = Harness(DsspOptions(s_lower=1, r_max=4, bound=bound), 2)
    harness.push(1, 1.0)
    harness.push(0, 0.0)
    harness.push(0, 1.0)
    harness.push(1, 2.2)
    extra = []
    harness.push(0, 0.1)  # at 3.3: ahead by one
    for _ in range(5):  # at 4.3 it leads by 2 > s_L; Figure 2's numbers from here: r* = 2 at 4.3 with pushes due at 6.4
        commands = harness.push(0, 1.0)
        assert granted(commands) in ([], [0]), "line 17 is the else-branch: else there were two OKs"
        extra.append(is_granted(commands, 0))
        if not extra[-1]:
            break
    assert extra == [True, True, False], "granted at 4.3 and 5.3, stopped at 6.3, just before the slowest's push at 6.4"


def test_r_star_zero_means_wait():
    """III-C: "If 0 is returned ... the worker should wait for the slowest worker at the current iteration"."""
    harness = Harness(DsspOptions(s_lower=0, r_max=3), 2)
    harness.push(1, 1.0)
    harness.push(0, 0.0)
    harness.push(1, 1.0)
    harness.push(0, 0.0)  # 2.0, level; the next push of the slowest is predicted at 3.0
    commands = harness.push(0, 0.98)  # at 2.98: stopping costs a wait of 0.02 s, one more iteration 0.04 s
    assert "r* = 0" in commands[1].because
    assert not is_granted(commands, 0)


def test_only_a_fastest_worker_asks_the_controller():
    """Line 11 and footnote 1: "the reason we call the procedure only for the current fastest worker"."""
    harness = Harness(DsspOptions(s_lower=0, r_max=9), 3)
    for worker, after in ((2, 0.0), (0, 0.1), (1, 0.1), (2, 5.0), (0, 0.0), (0, 1.0), (0, 1.0), (1, 0.5)):
        harness.push(worker, after)
        harness.granted.setdefault(worker, harness.version)
        harness.strategy.held.clear()
    harness.strategy.extra.clear()
    commands = harness.push(1, 0.1)
    assert harness.strategy.clocks.lead(1) > 0
    assert not harness.strategy.clocks.is_fastest(1)
    assert commands[1].because.endswith("not asked")


def test_a_worker_that_is_no_longer_fastest_keeps_its_extra_iterations():
    """III-C: "even if worker p is not the fastest worker in that iteration, as long as its r_p > 0"."""
    machine = Dssp(3, DsspOptions(s_lower=0, r_max=5))
    for worker in (0, 0, 1, 1, 1, 1, 1):
        machine.clocks.tick(worker)
    machine.extra[0] = 2
    commands = machine.handle(PushArrived(1.0, 0, 0, 0, 0.0))
    assert not machine.clocks.is_fastest(0)
    assert machine.clocks.lead(0) == 3, "beyond s_L = 0"
    assert granted(commands) == [0]
    assert machine.extra[0] == 1


def test_a_held_worker_is_examined_again_at_the_slowest_workers_push():
    """Line 17: "Wait until the slowest worker sends the next push request(s)"; with three readings of what follows."""
    outcome = {}
    for bound in BOUNDS:
        machine = Dssp(2, DsspOptions(s_lower=0, r_max=4, bound=bound))
        for _ in range(9):
            machine.clocks.tick(0)
        machine.clocks.tick(1)
        machine.held[0] = 9
        machine.last_push, machine.push_before = {0: 9.0, 1: 8.0}, {0: 8.0, 1: 5.0}
        outcome[bound] = is_granted(machine.handle(PushArrived(11.0, 0, 1, 0, 0.0)), 0)
    # Worker 0 leads by 7. `paper` asks the controller (its own push would coincide with one of the slowest at 14 s);
    # `hard` may not go beyond s_U + 1 = 5; `catchup` waits until the lead is 0.
    assert outcome == {"paper": True, "hard": False, "catchup": False}


@pytest.mark.parametrize("bound", BOUNDS)
@given(choices=st.lists(st.integers(0, 99), max_size=120), s_lower=st.integers(0, 4))
def test_without_a_range_dssp_is_ssp(bound, choices, s_lower):
    """IV, proof of Theorem 2: "our DSSP can be deducted to SSP": with r_max = 0 the grants are SSP's."""
    dssp = Harness(DsspOptions(s_lower=s_lower, r_max=0, bound=bound), 3)
    ssp = Harness(SspOptions(staleness=s_lower), 3)
    for choice in choices:
        worker = dssp.running[choice % len(dssp.running)]
        assert granted(dssp.push(worker)) == granted(ssp.push(worker))


# --- V-D. Table I: the mixed cluster ---

PUSHES = 7_812  # a tenth of Table I's 200 epochs of 50,000 images in gradients of 128


@pytest.fixture(scope="module")
def mixed_cluster() -> dict[str, Totals]:
    cases = {
        "bsp": BspOptions(),
        "asp": AspOptions(),
        "ssp": SspOptions(staleness=3),
        **{bound: DsspOptions(s_lower=3, r_max=12, bound=bound) for bound in BOUNDS},
    }
    return {name: simulate(options, MIXED, PUSHES) for name, options in cases.items()}


@pytest.mark.parametrize(("name", "seconds"), [("bsp", 617.2), ("asp", 301.3), ("ssp", 617.2)])
def test_table_1_times(mixed_cluster, name, seconds):
    """Table I gives 6159 s for BSP and 2993 s for ASP to epoch 200."""
    assert mixed_cluster[name].time_s == pytest.approx(seconds, rel=0.015)


def test_table_1_dssp_takes_asps_time_only_where_the_upper_bound_is_not_enforced(mixed_cluster):
    """Table I: DSSP 3016 s, within 1 % of ASP's 2993 s. With a bound that is enforced the fast worker must wait."""
    assert mixed_cluster["paper"].time_s == pytest.approx(mixed_cluster["asp"].time_s, rel=0.015)
    assert mixed_cluster["hard"].time_s == pytest.approx(mixed_cluster["ssp"].time_s, rel=0.01)
    assert mixed_cluster["catchup"].time_s == pytest.approx(mixed_cluster["ssp"].time_s, rel=0.01)


def test_table_1_the_leads_behind_the_times(mixed_cluster):
    """The hard reading keeps s* in [s_L, s_U] (III-A; Theorem 2 needs it): no lead is above s_U + 1."""
    leads = {name: totals.max_lead for name, totals in mixed_cluster.items()}
    assert (leads["bsp"], leads["ssp"], leads["hard"]) == (1, 4, 16)
    assert leads["paper"] > PUSHES / 8, "unbounded: two thirds of all pushes come from the faster worker"


def test_catchup_bounds_no_lead():
    """Three workers with constant times: a worker that is not held is always granted."""
    cluster = ClusterConfig(workers=3, gradient_s=[1.0, 1.7, 4.0])
    totals = {bound: simulate(DsspOptions(s_lower=3, r_max=12, bound=bound), cluster, 500) for bound in BOUNDS}
    assert totals["catchup"].time_s == totals["paper"].time_s == pytest.approx(333, abs=1)
    assert totals["hard"].time_s == pytest.approx(641, abs=1)
    assert totals["catchup"].max_lead == totals["paper"].max_lead == 247
    assert totals["hard"].max_lead == 16


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_lead_beyond_the_range_is_explained(bound):
    options = DsspOptions(s_lower=3, r_max=12, bound=bound)
    assert options.lead_note(16) == ""
    expected = {"hard": ""}.get(bound, f"strategy.bound={bound} does not bound it, hard does")
    assert options.lead_note(17).partition(":")[0] == expected
