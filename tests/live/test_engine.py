"""The shard's engine without sockets: played by hand and at random, against its own log."""

import json
import math
from collections import Counter

import pytest
import torch
from engine_play import (
    Play,
    Rows,
    check_rows,
    every_case,
    every_elastic_case,
    one_step,
    recount,
    steps,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from syncline.course import Limits
from syncline.live.engine import NotElastic
from syncline.records.events import Row
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ssp import SspOptions


@every_case
@given(num_workers=st.integers(1, 4), history=steps)
def test_in_any_order_of_events_gradients_log_totals_and_lead_are_right(options, num_workers, history):
    play = Play(options, num_workers)
    for step in history:
        play.step(*step)
    play.check_gradients()
    check_rows(play.rows)
    assert play.engine.totals == recount(play.rows, num_workers)
    assert options.lead_bound is None or play.engine.totals.max_lead <= options.lead_bound
    iterations = Counter(row.worker for row in play.rows.of("pushed"))
    for worker in range(num_workers):
        assert play.engine.iteration(worker) == iterations[worker]
        made = [row.value for row in play.rows.of("pushed") if row.worker == worker]
        assert made == list(range(len(made))), "the worker's own count, from 0"


def copied(state: tuple[dict[str, Tensor], dict]) -> tuple[dict[str, Tensor], dict]:
    """As it comes back from a file."""
    tensors, plain = state
    return {name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(plain))


@every_case
@given(num_workers=st.integers(1, 4), before=steps, after=st.lists(one_step, min_size=12, max_size=40))
def test_an_engine_loaded_from_a_state_goes_on_exactly_as_the_one_that_never_stopped(
    options, num_workers, before, after
):
    play = Play(options, num_workers)
    for step in before:
        play.step(*step)
    pinned = play.engine.shard.pin()  # as the process does while the state is being written
    state = play.engine.state()
    at_the_time = copied(state)
    again = Play(options, num_workers, resume=copied(state))
    assert not again.rows
    again.now, again.given = play.now, dict(play.given)
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
    assert plain["pending"] == [[3, 1, 1]]
    assert (plain["waiting"], plain["counts"]) == ([1], [1, 2, 1])


@every_case
@settings(max_examples=20)
@given(num_workers=st.integers(1, 4), history=steps)
def test_a_resumed_run_grants_all_but_the_held_at_the_current_version_and_says_so(options, num_workers, history):
    play = Play(options, num_workers)
    for step in history:
        play.step(*step)
    state = copied(play.engine.state())
    again = Play(options, num_workers, resume=state)
    again.now = play.now
    again.engine.begin(again.now, resumed=True)
    updates = play.engine.totals.updates
    running = sorted(play.given)
    assert again.rows == [Row(again.now, "granted", worker, 0, -1, updates, 0.0, "resumed") for worker in running]
    assert sorted(again.given) == running
    for worker in again.absent:
        again.join(worker)
    for step in history:
        again.step(*step)
    assert again.given or not again.engine.here


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
    play.push(0, after=8.0, slow_s=2.0, delay_s=1.0, pull_delay_s=0.5, push_delay_s=3.0, loss=0.0)
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
    play.push(0, slow_s=0.25, delay_s=0.25, pull_delay_s=0.25, push_delay_s=0.25)
    play.push(1)
    assert [row.kind for row in play.rows] == ["delayed", "delayed", *["pushed", "applied", "granted"] * 2]
    assert [row.because for row in play.rows[:2]] == ["pull", "push"]
    check_rows(play.rows, number=2)
    play.check_gradients()


def test_without_a_log_the_run_is_the_same():
    logged, silent = Play(SspOptions(staleness=1)), Play(SspOptions(staleness=1))
    silent.engine._log = None
    for play in (logged, silent):
        for worker in (0, 0, 1, 2, 0, 2):
            play.push(worker)
    assert silent.rows == []
    assert same(logged.engine.state(), silent.engine.state())


# Who leaves and who comes.


@every_elastic_case
def test_the_others_go_on_when_a_worker_leaves(options):
    play = Play(options)
    play.push(0)
    play.leave(2)
    before = play.engine.totals.updates
    for _ in range(20):
        play.push(min(play.given, key=lambda worker: play.engine.iteration(worker)))
    assert play.engine.totals.updates == before + 20
    assert play.engine.here == {0, 1}
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
    for worker in (0, 1, 0):
        if worker in play.given:
            play.push(worker)
    made = {worker: play.engine.iteration(worker) for worker in (0, 1)}
    play.leave(0)
    play.leave(1)
    assert not play.given
    play.join(1)
    play.join(0)
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
    assert [row[1:] for row in play.rows[-2:]] == [
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
    before, updates = play.engine.shard.current.weights.clone(), play.engine.totals.updates
    play.push(1, after=2.0, loss=loss)
    assert play.engine.ended_by == "diverged"
    assert 1 not in play.given
    assert play.rows[-1].kind == "pushed", "the strategy is not asked any more"
    assert play.engine.totals.updates == updates
    assert play.engine.totals.time_s == play.now == 5.0
    assert torch.equal(play.engine.shard.current.weights, before)


@every_case
@given(num_workers=st.integers(1, 4), max_updates=st.integers(1, 12), history=steps)
def test_the_run_ends_at_its_last_update_and_nobody_is_granted_after(options, num_workers, max_updates, history):
    play = Play(options, num_workers, limits=Limits(updates=max_updates))
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
