"""The shard's engine without sockets: played by hand and at random, against its own log."""

import json
import math
from collections import Counter

import pytest
import torch
from engine_play import (
    ONE_BY_ONE,
    Play,
    Rows,
    check_rows,
    every_case,
    every_elastic_case,
    one_step,
    recount,
    steps,
)
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from syncline.live.engine import NotElastic
from syncline.progress import Limits
from syncline.records.events import Row
from syncline.server.report import PushReport
from syncline.strategies.adasync import AdasyncOptions
from syncline.strategies.asp import AspOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.psp import PspOptions
from syncline.strategies.ssp import SspOptions


@every_case
@scaled(20)
@given(num_workers=st.integers(1, 4), history=steps)
def test_in_any_order_of_events_gradients_log_totals_and_lead_are_right(options, num_workers, history):
    play = Play(options, num_workers, prompt=False)
    for step in history:
        play.step(*step)
    play.check_gradients()
    check_rows(play.rows)
    assert play.engine.totals == recount(play.rows, play.num_workers, options.first_count)
    assert options.lead_bound is None or play.engine.totals.max_lead <= options.lead_bound
    assert options.staleness_bound is None or len(play.engine.totals.staleness) - 1 <= options.staleness_bound
    iterations = Counter(row.worker for row in (*play.rows.of("pushed"), *play.void_rows()))
    for worker in range(play.num_workers):
        assert play.engine.iteration(worker) == iterations[worker]
        made = [row.value for row in play.rows.of("pushed") if row.worker == worker]
        assert made == sorted(set(made)), "the worker's own count"
        if play.void_rows() == []:
            assert made == list(range(len(made))), "from 0, each once"


def copied(state: tuple[dict[str, Tensor], dict]) -> tuple[dict[str, Tensor], dict]:
    """As it comes back from a file."""
    tensors, plain = state
    return {name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(plain))


@every_case
@scaled(12)
@given(num_workers=st.integers(1, 4), before=steps, after=st.lists(one_step, min_size=12, max_size=40))
def test_an_engine_loaded_from_a_state_goes_on_exactly_as_the_one_that_never_stopped(
    options, num_workers, before, after
):
    play = Play(options, num_workers, prompt=False)
    for step in before:
        play.step(*step)
    pinned = play.engine.shard.pin()  # as the process does while the state is being written
    state = play.engine.state()
    at_the_time = copied(state)
    again = play.twin(copied(state))
    assert not again.rows
    assert len(again.gradients) == len(play.gradients) - len(play.released), "those that are pending come back"
    num_rows = len(play.rows)
    for step in after:
        play.step(*step)
        again.step(*step)
    assert again.rows == play.rows[num_rows:]
    assert again.engine.totals == play.engine.totals
    assert same(again.engine.state(), play.engine.state())
    assert set(again.released.values()) <= {1}
    assert same(state, at_the_time), "what was given to be written does not change meanwhile"
    play.engine.shard.unpin(pinned)


def same(one: tuple[dict[str, Tensor], dict], other: tuple[dict[str, Tensor], dict]) -> bool:
    """Equal in every bit."""
    (tensors, plain), (others, other_plain) = one, other
    return (
        json.dumps(plain) == json.dumps(other_plain)
        and tensors.keys() == others.keys()
        and all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())
    )


def test_a_state_holds_the_momentum_the_held_workers_and_the_pending_pushes():
    """BSP: one update is made, then one worker of three has pushed for the next and waits."""
    play = Play(BspOptions())
    for worker in (0, 1, 2, 1):
        play.push(worker)
    tensors, plain = play.engine.state()
    assert set(tensors) == {"weights", "buffers", "optimizer.momentum", "pending.3.gradient", "pending.3.buffers"}
    assert plain["interpreter"]["pending"] == [(3, 1, 1)]
    assert (plain["waiting"], plain["iterations"]) == ([1], [1, 2, 1])


@every_case
@scaled(8)
@given(num_workers=st.integers(1, 4), history=steps)
def test_a_resumed_run_grants_all_but_the_held_at_the_current_version_and_says_so(options, num_workers, history):
    play = Play(options, num_workers, prompt=False)
    for step in history:
        play.step(*step)
    state = copied(play.engine.state())
    again = Play(options, num_workers, resume=state)
    again.now = play.now
    again.engine.begin(again.now, resumed=True)
    updates = play.engine.totals.updates
    running = sorted(play.engine.active - play.engine.waiting)
    assert again.rows == [Row(again.now, "granted", worker, 0, -1, updates, 0.0, "resumed") for worker in running]
    assert sorted(again.given) == running
    for worker in again.absent:
        again.join(worker)
    for step in history:
        again.step(*step)
    assert again.given or again.engine.wakes_at < math.inf or not again.engine.active


def test_the_rate_of_an_update_is_that_of_the_samples_and_updates_before_it():
    play, asked = Play(BspOptions(), num_workers=2), []
    play.engine.shard.rate = lambda samples, updates: asked.append((samples, updates)) or 0.1
    for worker in (0, 1, 1, 0, 0, 1):
        play.push(worker)
    assert asked == [(0, 0), (16, 1), (32, 2)]


def test_the_first_grants_of_a_fresh_run_are_not_in_the_log():
    play = Play(AspOptions())
    assert play.rows == []
    assert {worker: (given.version, given.iteration) for worker, given in play.given.items()} == {
        0: (0, 0),
        1: (0, 0),
        2: (0, 0),
    }


# The log, row by row.


def test_a_push_leaves_these_rows():
    play = Play(SspOptions(staleness=0), num_workers=2)
    play.push(1, after=2.0, loss=0.5)
    play.push(0, after=1.0, loss=0.25)
    assert play.rows == [
        (0.0, "started", 1, -1, -1, 0, 2.0, ""),
        (2.0, "computed", 1, -1, -1, 0, 0.5, ""),
        (2.0, "pushed", 1, 0, 0, 0, 0, ""),
        (2.0, "applied", 1, 0, 0, 1, 0, ""),
        (2.0, "held", 1, 0, -1, 1, 0.0, "lead 1 > s 0"),
        (0.0, "started", 0, -1, -1, 0, 3.0, ""),
        (3.0, "computed", 0, -1, -1, 0, 0.25, ""),
        (3.0, "pushed", 0, 0, 1, 0, 0, ""),
        (3.0, "applied", 0, 0, 1, 2, 1, ""),
        (3.0, "granted", 0, 0, -1, 2, 0.0, "lead 0 <= s 0"),
        (3.0, "granted", 1, 0, -1, 2, 0.0, "lead 0 <= s 0"),
    ]


def test_injected_delays_are_in_the_log_where_they_begin():
    play = Play(AspOptions(), num_workers=1)
    play.push(0)
    play.rows.clear()
    play.push(0, after=8.0, slowdown_s=2.0, compute_delay_s=1.0, pull_delay_s=0.5, push_delay_s=3.0, loss=0.0)
    assert play.rows[:7] == [
        (0.5, "delayed", 0, 0, -1, -1, 0.5, "pull"),
        (1.0, "started", 0, -1, -1, 1, 5.0, ""),
        (3.0, "delayed", 0, -1, -1, -1, 2.0, "slow"),
        (5.0, "delayed", 0, -1, -1, -1, 1.0, "compute"),
        (6.0, "computed", 0, -1, -1, 1, 0.0, ""),
        (6.0, "delayed", 0, 0, -1, -1, 3.0, "push"),
        (9.0, "pushed", 0, 0, 1, 1, 1, ""),
    ]
    check_rows(Rows([Row(0.0, "pushed", 0, 0, 0, 0, 0, ""), Row(0.0, "applied", 0, 0, 0, 1, 0, ""), *play.rows]))


def test_what_the_worker_did_is_told_by_the_first_shard_alone():
    play = Play(AspOptions(), number=2)
    play.push(0, slowdown_s=0.25, compute_delay_s=0.25, pull_delay_s=0.25, push_delay_s=0.25)
    play.push(1)
    assert [row.kind for row in play.rows] == ["delayed", "delayed", *["pushed", "applied", "granted"] * 2]
    assert [row.because for row in play.rows[:2]] == ["pull", "push"]
    check_rows(play.rows, number=2)
    play.check_gradients()


def test_without_a_log_the_run_is_the_same():
    logged, silent = Play(SspOptions(staleness=1)), Play(SspOptions(staleness=1))
    silent.engine._log = silent.engine._interpreter._log = None
    for play in (logged, silent):
        for worker in (0, 0, 1, 2, 0, 2):
            play.push(worker)
    assert silent.rows == []
    assert same(logged.engine.state(), silent.engine.state())


# Work that comes to nothing.


def test_a_push_that_meets_an_interrupt_on_its_way_is_void():
    """The strategy never hears of it; the time that it took, and that it was in vain, are counted."""
    play = Play(KSyncOptions(k=1), num_workers=2, prompt=False)
    play.push(0, after=2.0, loss=0.5)
    before = copied(play.engine.state())[1]["interpreter"]["strategy"]
    num_rows = len(play.rows)
    play.push(1, after=1.0, loss=math.nan)
    assert play.rows[num_rows:] == [
        (0.0, "started", 1, -1, -1, 0, 3.0, ""),
        (3.0, "computed", 1, -1, -1, 0, pytest.approx(math.nan, nan_ok=True), ""),
        (3.0, "dropped", 1, -1, -1, 0, 0.0, "on its way"),
    ]
    totals = play.engine.totals
    assert (totals.interrupted_by_worker, totals.wasted_by_worker) == ([0, 1], [0, 1])
    assert (totals.busy_s_by_worker, totals.loss_count, totals.updates) == ([2.0, 3.0], 1, 1)
    assert play.engine.ended_by is None, "its loss is not looked at either"
    assert copied(play.engine.state())[1]["interpreter"]["strategy"] == before
    given = play.given[1]
    assert (given.version, given.iteration) == (1, 1), "its mini-batch was used up"
    play.push(1)
    assert play.engine.totals.used_by_worker == [1, 1]
    play.check_gradients()


def test_who_waits_is_granted_and_who_computes_is_interrupted():
    play = Play(KSyncOptions(k=2))
    play.push(1)
    play.push(0)
    assert [row[1:] for row in play.rows[-4:]] == [
        ("interrupted", 2, 0, -1, 1, 0.0, "the first 2 are here"),
        ("granted", 1, 0, -1, 1, 0.0, "the first 2 are here"),
        ("granted", 0, 0, -1, 1, 0.0, "the first 2 are here"),
        ("granted", 2, 0, -1, 1, 0.0, "the first 2 are here"),
    ]
    assert {worker: (given.version, given.iteration) for worker, given in play.given.items()} == {
        0: (1, 1),
        1: (1, 1),
        2: (1, 0),  # the mini-batch that it did not finish
    }


def test_what_was_broken_off_is_told_with_the_next_push():
    play = Play(KSyncOptions(k=1), num_workers=2, prompt=False)
    for is_late in (False, True, False):
        play.push(0)
        play.hear(1, is_late)
    assert play.engine.totals.interrupted_by_worker == [0, 0], "nobody has told"
    play.push(1, after=2.0)
    told = [row for row in play.rows if row.kind == "dropped"]
    assert [row[:2] for row in told] == [(3.0, "dropped")] * 3
    assert [row.because for row in told] == ["its delay was broken off"] * 2 + ["computed to the end"]
    assert play.engine.totals.interrupted_by_worker == [0, 3]
    assert play.engine.totals.wasted_by_worker == [0, 1]
    assert play.rows.of("pushed")[-1].value == 0, "its first mini-batch is still the next"


def test_a_void_push_is_void_also_after_a_checkpoint():
    play = Play(KSyncOptions(k=1), num_workers=2, prompt=False)
    play.push(0)
    again = play.twin(copied(play.engine.state()))
    again.push(1)
    assert [row.because for row in again.rows[-1:]] == ["on its way"]


def test_a_worker_that_repeats_goes_on_at_its_version_with_its_next_mini_batch():
    play = Play(KBatchSyncOptions(k=3), num_workers=2)
    play.push(0)
    assert play.rows[-1][1:] == ("repeated", 0, 0, -1, 0, 0.0, "1 of K 3 are here")
    assert play.given[0][:2] == (0, 1)
    play.push(0)
    play.push(0)
    assert {worker: given[:2] for worker, given in play.given.items()} == {0: (1, 3), 1: (1, 0)}
    assert play.engine.totals.used_by_worker == [3, 0]


def test_a_late_gradient_is_discarded_and_released():
    play = Play(BackupOptions(backups=1), num_workers=2)
    play.push(0)
    play.push(1)
    assert play.rows[-2:] == [
        (2.0, "discarded", 1, 0, 1, 0, 0.0, "computed at version 0, now 1"),
        (2.0, "granted", 1, 0, -1, 1, 0.0, "computed at version 0, now 1"),
    ]
    assert play.engine.totals.discarded_by_worker == [0, 1]
    play.check_gradients()


# Timers, pull rules, counts that change.


def test_the_strategy_is_told_of_the_time_it_asked_for():
    play = Play(PspOptions(c=1, tau1=0.5), num_workers=2)
    play.push(0, after=1.0)
    assert play.engine.wakes_at == 1.5
    assert play.engine.totals.updates == 0
    play.go_on(1.0)
    assert [row[:2] for row in play.rows.of("timer", "applied")] == [(1.5, "timer"), (1.5, "applied")]
    assert play.engine.wakes_at == math.inf


def test_a_timer_that_is_not_needed_any_more_is_put_out():
    play = Play(PspOptions(c=1, tau1=5.0), num_workers=2)
    play.push(0)
    assert play.engine.wakes_at == 6.0
    play.push(1)
    assert (play.engine.totals.updates, play.engine.wakes_at) == (1, math.inf)


def test_a_state_holds_the_time_that_was_asked_for():
    play = Play(PspOptions(c=1, tau1=5.0), num_workers=2)
    play.push(0)
    again = play.twin(copied(play.engine.state()))
    assert again.engine.wakes_at == 6.0
    for one in (play, again):
        one.go_on(10.0)
    assert again.engine.totals.updates == play.engine.totals.updates == 1
    assert same(again.engine.state(), play.engine.state())


def test_with_a_pull_rule_staleness_is_that_of_the_block_and_the_strategy_hears_the_tag():
    """The worker has passed this shard by: it is at tag 2 with this shard's block of version 0."""
    play = Play(PspOptions(c=1), num_workers=2)
    play.push(0)
    play.push(0)
    gradient = play.new_gradient()
    gradient.versions = torch.tensor([0, 7])
    frame = PushReport(1, iteration=4, version=0, tag=2, loss=1.0, started_at=2.5, computed_at=3.0)
    play.engine.pushed(3.0, frame, gradient)
    assert play.rows[-5:-2] == [
        (2.5, "pulled", 1, 0, -1, 0, 4, "0 7"),
        (3.0, "pushed", 1, 0, 2, 2, 4, ""),
        (3.0, "applied", 1, 0, 2, 3, 2, "1 are here"),
    ]
    assert play.engine.totals.staleness == [2, 0, 1]


def test_who_owes_a_push_is_known_whatever_the_strategy():
    """A worker that waits for its shard is not silent, however long it says nothing."""
    play = Play(PspOptions(), num_workers=2)
    assert [play.engine.owes(worker) for worker in (0, 1)] == [True, True]
    play.push(0)
    assert [play.engine.owes(worker) for worker in (0, 1)] == [False, True]
    assert play.engine.expects(0), "though it might push"
    play.push(1)
    assert [play.engine.owes(worker) for worker in (0, 1)] == [True, True]
    play = Play(SspOptions(staleness=0), num_workers=2)
    play.push(0)
    assert [play.engine.owes(worker) for worker in (0, 1)] == [False, True]
    play = Play(KBatchSyncOptions(k=9), num_workers=2)
    play.push(0)
    assert [play.engine.owes(worker) for worker in (0, 1)] == [True, True]


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        (KSyncOptions(k=2), []),
        (KSyncOptions(k=3), ["an update waits for 2 gradients from now on: worker 1 left"]),
        (KBatchSyncOptions(k=3), []),
        (KAsyncOptions(k=3), ["an update waits for 2 gradients from now on: worker 1 left"]),
        (KBatchAsyncOptions(k=3), []),
        (BackupOptions(backups=1), ["an update waits for 1 gradients from now on: worker 1 left"]),
        (PspOptions(c=1), []),
        (PspOptions(), ["an update waits for 2 gradients from now on: worker 1 left"]),
    ],
    ids=str,
)
def test_the_user_is_warned_once_when_an_update_has_to_wait_for_fewer(options, warnings):
    play = Play(options)
    play.leave(1)
    assert play.warnings == warnings
    told = [(row.worker, row.version, f"waits for {row.value}") for row in play.rows.of("waits_for")]
    assert told == [(-1, 0, words.split("update ")[1].split(" gradients")[0]) for words in warnings]
    play.join(1)
    assert play.warnings == warnings, "that all is well again needs no warning"
    assert len(play.engine.totals.waits_for) == 2 * len(warnings)


def test_a_count_that_grows_is_in_the_log_and_the_totals_and_no_warning():
    play = Play(AdasyncOptions(variant="k_async", k=1, interval=10.0))
    play.push(0, after=5.0, loss=4.0)
    play.push(0, after=6.0, loss=1.0)  # of the second interval; F_0 = 4
    play.push(1, after=10.0, loss=1.0)  # of the third: F = 1, K = sqrt(4)
    assert play.engine.totals.waits_for == [(0.0, 0, 1), (21.0, 3, 2)]
    assert play.rows[-1] == (21.0, "waits_for", -1, 0, -1, 3, 2, "F_0 4, F 1")
    assert play.warnings == []
    assert play.engine.totals.snapshot(0.1)["waits_for"] == 2


# Who leaves and who comes.


@every_elastic_case
def test_the_others_go_on_when_a_worker_leaves(options):
    play = Play(options)
    play.push(0)
    play.leave(2)
    before = play.engine.totals.updates
    for _ in range(20):
        play.push(min(play.given, key=lambda worker: play.engine.iteration(worker)))
    made = play.engine.totals.updates - before
    assert made == 20 if options.name in ONE_BY_ONE else made >= 20 // 3
    assert play.engine.active == {0, 1}
    assert not play.engine.expects(2)
    play.check_gradients()


def test_who_was_held_for_the_one_that_left_is_granted():
    play = Play(SspOptions(staleness=0), num_workers=3)
    play.push(0)
    play.push(1)
    assert set(play.given) == {2}
    play.leave(2)
    assert set(play.given) == {0, 1}
    assert [row[1:3] for row in play.rows[-3:]] == [("left", 2), ("granted", 0), ("granted", 1)]
    assert play.rows[-3].because == "killed"


def test_a_synchronous_run_cannot_go_on_without_a_worker():
    play = Play(BspOptions())
    play.push(1)
    rows, before = list(play.rows), copied(play.engine.state())
    with pytest.raises(NotElastic, match=r"worker 2 is gone \(no route\)"):
        play.engine.left(2.0, 2, "no route")
    assert play.rows == rows
    assert same(play.engine.state(), before)


@every_elastic_case
def test_everybody_may_leave_and_come_back(options):
    play = Play(options, num_workers=2)
    workers = range(play.num_workers)
    for worker in (0, 1, 0):
        if worker in play.given:
            play.push(worker)
    made = {worker: play.engine.iteration(worker) for worker in workers}
    for worker in workers:
        play.leave(worker)
    assert not play.given
    for worker in reversed(workers):
        play.join(worker)
    assert {worker: given.iteration for worker, given in play.given.items()} == made
    for _ in range(10):
        play.push(min(play.given, key=lambda worker: play.engine.iteration(worker)))
    check_rows(play.rows)
    play.check_gradients()


@every_elastic_case
def test_a_worker_that_rejoins_goes_on_after_its_last_push_and_level_with_the_slowest(options):
    play = Play(options)
    play.push(2)
    play.leave(2)
    for _ in range(10):  # the other two go on together
        play.push(min(play.given, key=lambda worker: play.engine.iteration(worker)))
    lead, updates = play.engine.totals.max_lead, play.engine.totals.updates
    play.join(2)
    given = play.given[2]
    assert (given.version, given.iteration) == (updates, 1), "its gradient under way when it left is made again"
    assert [row[1:] for row in play.rows[-3:] if row.kind != "waits_for"][-2:] == [
        ("joined", 2, 0, -1, -1, 0.0, ""),
        ("granted", 2, 0, -1, updates, 0.0, "joined"),
    ]
    play.push(2)
    assert play.engine.totals.max_lead == lead == 1, "it is one ahead of the others, not four behind them"


def test_the_lead_of_one_that_left_does_not_count():
    play = Play(AspOptions(), num_workers=2)
    for _ in range(5):
        play.push(0)
    assert play.engine.totals.max_lead == 5
    play.leave(0)
    for _ in range(7):
        play.push(1)
    assert play.engine.totals.max_lead == 5, "alone nobody is ahead"


def test_an_iteration_that_only_another_shard_has_heard_of_is_not_made_again():
    play = Play(AspOptions(), num_workers=1)
    play.push(0)
    play.given[0] = play.given[0]._replace(iteration=5)
    play.push(0)
    assert play.given[0].iteration == 6


# How it ends.


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
@every_case
def test_a_loss_that_is_no_number_ends_the_run(options, loss):
    play = Play(options)
    for worker in (0, 1, 2):
        play.push(worker)
    play.go_on(2.0)
    before, updates = play.engine.shard.current.weights.clone(), play.engine.totals.updates
    play.push(1, after=0.0, loss=loss)
    assert play.engine.ended_by == "diverged"
    assert 1 not in play.given
    assert play.rows[-1].kind == "pushed", "the strategy is not asked any more"
    assert play.engine.totals.updates == updates
    assert play.engine.totals.time_s == play.now == 5.0
    assert torch.equal(play.engine.shard.current.weights, before)


@every_case
@scaled(12)
@given(num_workers=st.integers(1, 4), max_updates=st.integers(1, 12), history=steps)
def test_the_run_ends_at_its_last_update_and_nobody_is_granted_after(options, num_workers, max_updates, history):
    play = Play(options, num_workers, limits=Limits(updates=max_updates), prompt=False)
    for step in history:
        play.step(*step)  # `grant` checks that the end has not come
    assert play.engine.totals.updates <= max_updates
    assert (play.engine.ended_by == "max_updates") == (play.engine.totals.updates == max_updates)
    if play.engine.ended_by:
        assert play.rows[-1].kind == "applied"
    play.check_gradients()


@pytest.mark.parametrize(("options", "pushes"), [(AspOptions(), 5), (SspOptions(), 5), (BspOptions(), 6)], ids=repr)
def test_the_run_ends_with_the_first_update_that_completes_its_samples(options, pushes):
    """33 samples are five gradients of 8, or two updates of three such gradients."""
    play = Play(options, limits=Limits(samples=33))
    made = 0
    while play.engine.ended_by is None:
        play.push(made % 3)
        made += 1
    assert (play.engine.ended_by, made, play.engine.totals.samples) == ("epochs", pushes, 8 * pushes)
    play.check_gradients()


def test_of_two_limits_the_first_that_is_reached_ends_the_run():
    for limits, why in ((Limits(samples=16, updates=3), "epochs"), (Limits(samples=100, updates=3), "max_updates")):
        play = Play(AspOptions(), limits=limits)
        while play.engine.ended_by is None:
            play.push(0)
        assert play.engine.ended_by == why
