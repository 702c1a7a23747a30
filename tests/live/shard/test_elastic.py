"""The shard's engine without sockets: chosen and random histories, against its own log."""

import json
import math
from collections import Counter

import pytest
import torch
from examples import scaled
from fake_run import BATCH, SIZE, FakeRun, every_case, one_step, steps
from hypothesis import given
from hypothesis import strategies as st
from log_checks import Rows, check_rows, recount
from torch import Tensor

from syncline.live.shard.elastic import NotElastic
from syncline.progress import Limits
from syncline.records.rows import Row, pulled, resumed, stale
from syncline.server.report import PushReport
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.k_sync import KSyncOptions
from syncline.strategies.psp import PspOptions
from syncline.strategies.ssp import SspOptions


@every_case
@scaled(15)
@given(num_workers=st.integers(1, 4), max_updates=st.just(math.inf) | st.integers(1, 12), history=steps)
def test_in_any_order_of_events_gradients_log_totals_and_lead_are_right(options, num_workers, max_updates, history):
    """The run ends at its last update, and grants nothing after it."""
    run = FakeRun(options, num_workers, limits=Limits(updates=max_updates), delivers_at_once=False)
    for step in history:
        run.step(*step)  # `grant` checks that the run has not ended
    assert run.engine.totals.updates <= max_updates
    assert (run.engine.ended_by == "max_updates") == (run.engine.totals.updates == max_updates)
    if run.engine.ended_by:
        assert run.rows[-1].kind == "applied"
    run.check_gradients()
    check_rows(run.rows)
    assert run.engine.totals == recount(run.rows, run.num_workers, BATCH, options.first_count)
    assert options.lead_bound is None or run.engine.totals.max_lead <= options.lead_bound
    assert options.staleness_bound is None or len(run.engine.totals.staleness) - 1 <= options.staleness_bound
    iterations = Counter(row.worker for row in (*run.rows.of("pushed"), *run.stale_rows()))
    for worker in range(run.num_workers):
        assert run.engine.iterations[worker] == iterations[worker]
        iterations_pushed = [row.value for row in run.rows.of("pushed") if row.worker == worker]
        assert iterations_pushed == sorted(set(iterations_pushed)), "the worker's own count"
        if run.stale_rows() == []:
            assert iterations_pushed == list(range(len(iterations_pushed))), "from 0, each once"


def copied(state: tuple[dict[str, Tensor], dict]) -> tuple[dict[str, Tensor], dict]:
    """As read back from a file."""
    tensors, plain = state
    return {name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(plain))


@every_case
@scaled(6)
@given(num_workers=st.integers(1, 4), before=steps, after=st.lists(one_step, min_size=12, max_size=40))
def test_an_engine_loaded_from_a_state_continues_exactly_as_one_that_never_stopped(options, num_workers, before, after):
    run = FakeRun(options, num_workers, delivers_at_once=False)
    for step in before:
        run.step(*step)
    pinned = run.engine.parameters.pin()  # as the process does while it writes the state
    state = run.engine.state()
    before_the_steps = copied(state)
    again = run.twin(copied(state))
    assert not again.rows
    assert len(again.gradients) == len(run.gradients) - len(run.released), "the pending gradients are restored"
    num_rows = len(run.rows)
    for step in after:
        run.step(*step)
        again.step(*step)
    assert again.rows == run.rows[num_rows:]
    assert again.engine.totals == run.engine.totals
    assert same(again.engine.state(), run.engine.state())
    assert len(set(map(id, again.released))) == len(again.released)
    assert same(state, before_the_steps), "the state does not change while it is written"
    run.engine.parameters.unpin(pinned)


def same(one: tuple[dict[str, Tensor], dict], other: tuple[dict[str, Tensor], dict]) -> bool:
    """Equal in every bit."""
    (tensors, plain), (others, other_plain) = one, other
    return (
        json.dumps(plain) == json.dumps(other_plain)
        and tensors.keys() == others.keys()
        and all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())
    )


@every_case
@scaled(5)
@given(num_workers=st.integers(1, 4), history=steps)
def test_a_resumed_run_sends_the_current_version_to_all_and_grants_it_to_all_but_the_held(
    options, num_workers, history
):
    run = FakeRun(options, num_workers, delivers_at_once=False)
    for step in history:
        run.step(*step)
    state = copied(run.engine.state())
    again = FakeRun(options, num_workers, resume=state)
    again.now, again.rule.had = run.now, dict(run.rule.had)
    again.connect(resumed=True)
    updates = run.engine.totals.updates
    running = sorted(worker for worker in run.engine.active if run.engine.owes(worker))
    assert again.rows == [
        resumed(again.now, worker, 0, updates, worker not in running) for worker in sorted(run.engine.active)
    ]
    assert sorted(again.computing) == running
    for worker in again.absent:
        again.join(worker)
    for step in history:
        again.step(*step)
    assert again.computing or again.engine.wakes_at < math.inf or not again.engine.active


def test_the_rate_of_an_update_is_that_of_the_samples_and_updates_before_it():
    run, asked = FakeRun(BspOptions(), num_workers=2), []
    run.engine.parameters.rate = lambda samples, updates: asked.append((samples, updates)) or 0.1
    for worker in (0, 1, 1, 0, 0, 1):
        run.push(worker)
    assert asked == [(0, 0), (16, 1), (32, 2)]


# The log, row by row.


def test_a_push_is_logged_as_these_rows():
    run = FakeRun(SspOptions(staleness=0), num_workers=2)
    run.push(1, after=2.0, loss=0.5)
    run.push(0, after=1.0, loss=0.25)
    assert run.rows == [
        Row(0.0, "started", 1, -1, -1, 0, 2.0, ""),
        Row(2.0, "computed", 1, -1, -1, 0, 0.5, ""),
        Row(2.0, "pushed", 1, 0, 0, 0, 0, ""),
        Row(2.0, "applied", 1, 0, 0, 1, 0, ""),
        Row(2.0, "held", 1, 0, -1, 1, 0.0, "lead 1 > s 0"),
        Row(0.0, "started", 0, -1, -1, 0, 3.0, ""),
        Row(3.0, "computed", 0, -1, -1, 0, 0.25, ""),
        Row(3.0, "pushed", 0, 0, 1, 0, 0, ""),
        Row(3.0, "applied", 0, 0, 1, 2, 1, ""),
        Row(3.0, "granted", 0, 0, -1, 2, 0.0, "lead 0 <= s 0"),
        Row(3.0, "granted", 1, 0, -1, 2, 0.0, "lead 0 <= s 0"),
    ]


def test_injected_delays_are_logged_where_they_begin():
    run = FakeRun(AspOptions(), num_workers=1)
    run.push(0)
    run.rows.clear()
    run.push(0, after=8.0, slowdown_s=2.0, compute_delay_s=1.0, pull_delay_s=0.5, push_delay_s=3.0, loss=0.0)
    assert run.rows[:7] == [
        Row(0.5, "delayed", 0, 0, -1, -1, 0.5, "pull"),
        Row(1.0, "started", 0, -1, -1, 1, 5.0, ""),
        Row(3.0, "delayed", 0, -1, -1, -1, 2.0, "slow"),
        Row(5.0, "delayed", 0, -1, -1, -1, 1.0, "compute"),
        Row(6.0, "computed", 0, -1, -1, 1, 0.0, ""),
        Row(6.0, "delayed", 0, 0, -1, -1, 3.0, "push"),
        Row(9.0, "pushed", 0, 0, 1, 1, 1, ""),
    ]
    check_rows(Rows([Row(0.0, "pushed", 0, 0, 0, 0, 0, ""), Row(0.0, "applied", 0, 0, 0, 1, 0, ""), *run.rows]))


def test_what_the_worker_did_is_logged_by_the_first_shard_alone():
    run = FakeRun(AspOptions(), number=2)
    run.push(0, slowdown_s=0.25, compute_delay_s=0.25, pull_delay_s=0.25, push_delay_s=0.25)
    run.push(1)
    assert [row.kind for row in run.rows] == ["delayed", "delayed", *["pushed", "applied", "granted"] * 2]
    assert [row.because for row in run.rows[:2]] == ["pull", "push"]
    check_rows(run.rows, number=2)
    run.check_gradients()


def test_without_a_log_the_run_is_the_same():
    logged, silent = FakeRun(SspOptions(staleness=1)), FakeRun(SspOptions(staleness=1))
    silent.engine._log = None
    for run in (logged, silent):
        for worker in (0, 0, 1, 2, 0, 2):
            run.push(worker)
    assert silent.rows == []
    assert same(logged.engine.state(), silent.engine.state())


# Wasted work.


def test_a_push_that_crosses_an_interrupt_is_stale():
    """The strategy never receives it; the time that it took, and that it was wasted, are counted."""
    run = FakeRun(KSyncOptions(k=1), num_workers=2, delivers_at_once=False)
    run.push(0, after=2.0, loss=0.5)
    before = copied(run.engine.state())[1]["shard"]["strategy"]
    num_rows = len(run.rows)
    run.push(1, after=1.0, loss=math.nan)
    assert run.rows[num_rows:] == [
        Row(0.0, "started", 1, -1, -1, 0, 3.0, ""),
        Row(3.0, "computed", 1, -1, -1, 0, pytest.approx(math.nan, nan_ok=True), ""),
        stale(3.0, 1, 0),
    ]
    totals = run.engine.totals
    assert (totals.interrupted_by_worker, totals.wasted_by_worker) == ([0, 1], [0, 1])
    assert (totals.busy_s_by_worker, totals.loss_count, totals.updates) == ([2.0, 3.0], 1, 1)
    assert run.engine.ended_by is None, "its loss is not checked either"
    assert copied(run.engine.state())[1]["shard"]["strategy"] == before
    granted = run.computing[1]
    assert (granted.version, granted.iteration) == (1, 1), "its mini-batch counts as used"
    run.push(1)
    assert run.engine.totals.used_by_worker == [1, 1]
    run.check_gradients()


# Pull rules.


def test_with_a_pull_rule_staleness_is_that_of_the_block_and_the_strategy_receives_the_tag():
    """The worker is ahead of this shard: it is at tag 2 with this shard's block of version 0."""
    run = FakeRun(PspOptions(c=1), num_workers=2)
    run.push(0)
    run.push(0)
    gradient = run.new_gradient()
    gradient.versions = torch.tensor([0, 7])
    run.rule.had[gradient.flat.numpy().tobytes()] = torch.linspace(-1, 1, SIZE)  # of version 0
    report = PushReport(1, iteration=4, version=0, tag=2, loss=1.0, started_at=2.5, computed_at=3.0)
    run.carry_out(run.engine.pushed(3.0, report, gradient))
    assert run.rows[-5:-2] == [
        pulled(2.5, 1, 0, 4, [0, 7]),
        Row(3.0, "pushed", 1, 0, 2, 2, 4, ""),
        Row(3.0, "applied", 1, 0, 2, 3, 2, "1 are here"),
    ]
    assert run.engine.totals.staleness == [2, 0, 1]


# Workers that leave and join.


def test_a_synchronous_run_cannot_continue_without_a_worker():
    run = FakeRun(BspOptions())
    run.push(1)
    rows, before = list(run.rows), copied(run.engine.state())
    with pytest.raises(NotElastic, match=r"worker 2 is gone \(no route\)"):
        run.engine.left(2.0, 2, "no route")
    assert run.rows == rows
    assert same(run.engine.state(), before)


def test_a_worker_that_has_pushed_leaves_and_joins_owes_another_push():
    """With its pull rule; the strategy waits for it again."""
    run = FakeRun(PspOptions(), num_workers=3)
    run.push(0)
    assert not run.engine.owes(0)
    run.leave(0)
    run.join(0)
    assert run.engine.owes(0)


def test_an_iteration_that_only_another_shard_received_is_not_repeated():
    run = FakeRun(AspOptions(), num_workers=1)
    run.push(0)
    run.computing[0] = run.computing[0]._replace(iteration=5)
    run.push(0)
    assert run.computing[0].iteration == 6
