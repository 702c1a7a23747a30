"""Partially Synchronous Parallelism (psp.txt), statement by statement: section 3, Algorithm 1, server and worker."""

import math

import pytest
from answers import applied, discarded, granted
from hypothesis import given
from hypothesis import strategies as st

from syncline.checking.harness import Harness
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.protocol import (
    Apply,
    Command,
    PullRule,
    PushArrived,
    TimerFired,
    WaitFor,
    WakeAt,
    WorkerJoined,
    WorkerLeft,
)
from syncline.strategies.psp import Psp, PspOptions


class Server:
    """One shard, and the pushes that arrive at it."""

    def __init__(self, num_workers: int, **options: object) -> None:
        self.machine = Psp(num_workers, PspOptions(**options))
        self.pushes = 0

    def push(self, worker: int, tag: int, at: float = 0.0) -> list[Command]:
        self.pushes += 1
        return self.machine.handle(PushArrived(at, self.pushes - 1, worker, tag, 0.0))


def updates(commands: list[Command]) -> list[tuple[tuple[int, ...], float]]:
    """The pushes and the factor on the rate of each update."""
    return [(command.pushes, command.scale) for command in commands if isinstance(command, Apply)]


# --- Algorithm 1, server ---


def test_server_line_3_broadcasts_to_all_workers():
    """Line 3: "Broadcast parameters with timestamp <w_t, t> to all the workers", those that compute included."""
    server = Server(4, c=2)
    assert granted(server.push(2, 0)) == []
    assert granted(server.push(0, 0)) == [0, 1, 2, 3]


def test_server_lines_7_and_8_drop_older_gradients():
    """Lines 7 and 8: "if t' < t then Drop g'"; its worker receives nothing, and d stays."""
    server = Server(3, c=1)
    server.push(0, 0)
    server.push(0, 1)
    for tag in (0, 1):
        late = server.push(1, tag)
        assert discarded(late) == [server.pushes - 1]
        assert len(late) == 1


@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_server_lines_10_and_14_keep_current_and_newer_gradients_for_a_version_that_starts_without_any(ahead):
    """Lines 9 and 10: else, t' >= t, "g <- g + g', d <- d + 1". A worker may be ahead of a slow server.

    Lines 14 and 4: "t <- t + 1", and g and d start at 0 again.
    """
    server = Server(3, c=2)
    server.push(0, 0)
    server.push(1, 0)
    assert server.machine.version == 1
    assert server.push(0, 1 + ahead) == []
    assert updates(server.push(1, 1 + ahead)) == [((2, 3), 2.0)]


def test_server_line_10_counts_gradients_not_workers():
    """Lines 10 and 12: d and c count gradients, two of a worker that is ahead among them."""
    server = Server(3, c=2)
    server.push(0, 0)
    assert updates(server.push(0, 1)) == [((0, 1), 2.0)]


@given(st.integers(1, 6), st.data())
def test_server_line_12_at_least_c_gradients_are_aggregated(num_workers, data):
    """Line 12 and below: "For each block of parameters, for the workers, at least c gradients are guaranteed to be
    aggregated"; with no timeout, exactly c."""
    c = data.draw(st.integers(1, num_workers))
    harness = Harness(PspOptions(c=c), num_workers)
    for choice in data.draw(st.lists(st.integers(0, 99), min_size=20, max_size=40)):
        for pushes in applied(harness.push(harness.running[choice % len(harness.running)])):
            assert len(pushes) == c


def test_server_line_12_waits_tau1_for_more():
    """Line 12: "until Timeout tau1 after c gradients have been received": what arrives before it is used, too."""
    server = Server(4, c=2, tau1=0.5)
    server.push(0, 0, at=1.0)
    assert server.push(1, 0, at=2.0) == [WakeAt(2.5, "2 are here")]
    assert server.push(2, 0, at=2.25) == [], "the timeout runs from the c-th gradient"
    fired = server.machine.handle(TimerFired(2.5))
    assert updates(fired) == [((0, 1, 2), 3.0)]
    assert granted(fired) == [0, 1, 2, 3]


def test_server_line_12_or_until_all_workers_have_responded():
    """Line 12: "or all workers have responded": then there is no worker to wait for, and the timeout is cancelled."""
    server = Server(3, c=2, tau1=0.5)
    server.push(0, 0, at=1.0)
    server.push(1, 0, at=1.1)
    last = server.push(2, 0, at=1.2)
    assert updates(last) == [((0, 1, 2), 3.0)]
    assert WakeAt(math.inf, "all have answered") in last


def test_server_line_12_a_dropped_gradient_is_no_response_to_the_current_update():
    """Line 12: a worker that sent an old gradient may still send a current one."""
    server = Server(2, c=1, tau1=0.5)
    server.push(0, 0, at=0.0)
    server.machine.handle(TimerFired(0.5))
    server.push(0, 1, at=1.0)
    assert len(server.push(1, 0, at=1.1)) == 1, "dropped, and the timeout stays"
    assert updates(server.push(1, 1, at=1.2)) == [((1, 3), 2.0)]


def test_server_line_13_scales_the_rate_with_the_number_of_gradients():
    """Line 13 and 2.2: the mean of the d gradients at d times the rate; "dg" is read as g/d."""
    for c in (1, 2, 3):
        server = Server(3, c=c)
        answers = [server.push(worker, 0) for worker in range(c)]
        (update,) = (command for command in answers[-1] if isinstance(command, Apply))
        assert (update.scale, update.is_sum) == (float(c), False)


# --- Algorithm 1, worker ---


def rule_of(num_shards: int, **options: object) -> PullRule:
    """A worker that has pulled every block at version 0 and computes."""
    rule = PspOptions(**options).pull_rule(num_shards)
    for shard in range(num_shards):
        rule.arrived(0.0, shard, 0)
    rule.start()
    return rule


@pytest.mark.parametrize("b", [1.0, 50.0, 100.0])
def test_worker_line_6_the_first_pull_waits_for_all_blocks(b):
    """Line 6 starts from w = 0, which must not be trained on: so whatever b is, no block may be missing at first."""
    rule = PspOptions(b=b).pull_rule(3)
    assert rule.arrived(0.0, 1, 0) is None
    assert rule.arrived(0.1, 0, 0) is None
    assert rule.arrived(0.2, 2, 0) == 0.2
    assert sorted(rule.start()) == [0, 1, 2]


def test_worker_lines_10_and_11_drop_older_blocks():
    """Lines 10 and 11: "if t' < t then Drop": a block of an older version is not waited for, nor taken."""
    rule = rule_of(2, b=50.0)
    for tag in (1, 2):
        assert rule.pushed(1.0 * tag) is None
        assert rule.arrived(1.0 * tag, 0, tag) == 1.0 * tag
        rule.start()
    assert rule.tag == 2
    rule.pushed(3.0)
    assert rule.arrived(3.1, 1, 1) is None
    assert rule.arrived(3.2, 1, 2) is None
    assert rule.arrived(3.3, 0, 3) == 3.3
    assert list(rule.start()) == [0], "block 1 stays as it was (line 4)"


def test_worker_lines_12_and_13_take_newer_blocks():
    """Lines 12 and 13: else, t' >= t, take it: a block may be ahead of the worker's counter."""
    rule = rule_of(2)
    rule.pushed(1.0)
    assert rule.arrived(1.1, 0, 4) is None
    assert rule.arrived(1.2, 1, 1) == 1.2
    assert sorted(rule.start()) == [0, 1]
    assert rule.tag == 1


@pytest.mark.parametrize(
    ("b", "num_shards", "needed"),
    [
        (100.0, 4, 4),
        (75.0, 4, 3),
        (74.0, 4, 3),
        (50.0, 4, 2),
        (1.0, 4, 1),
        (90.0, 32, 29),
        (75.0, 32, 24),
        (7.0, 100, 7),
    ],
)
def test_worker_line_15_continues_with_b_per_cent_of_the_blocks(b, num_shards, needed):
    """Line 15 and below: "at least b% of the blocks are guaranteed to be pulled": rounded up."""
    rule = rule_of(num_shards, b=b)
    rule.pushed(1.0)
    starts_at = [rule.arrived(1.0, shard, 1) for shard in range(needed)]
    assert starts_at[:-1] == [None] * (needed - 1)
    assert starts_at[-1] == 1.0
    assert list(rule.start()) == list(range(needed))


def test_worker_line_15_waits_tau2_for_more():
    """Line 15: "until Timeout tau2 after b% blocks have been received": what arrives before it is taken."""
    rule = rule_of(4, b=50.0, tau2=0.5)
    rule.pushed(1.0)
    assert rule.arrived(1.1, 3, 1) is None
    assert rule.arrived(1.2, 1, 1) == 1.7
    assert rule.arrived(1.4, 0, 1) == 1.7, "the timeout runs from the block that completed b %"
    assert list(rule.start()) == [0, 1, 3]


def test_worker_line_15_or_until_all_servers_have_responded():
    """Line 15: "or all servers have responded"."""
    rule = rule_of(2, b=50.0, tau2=0.5)
    rule.pushed(1.0)
    assert rule.arrived(1.1, 0, 1) == 1.6
    assert rule.arrived(1.2, 1, 1) == 1.2


def test_worker_line_4_blocks_that_did_not_arrive_stay_as_they_were():
    """Line 4: "W_t <- W_{t-1}", before any block is taken."""
    rule = rule_of(4, b=50.0)
    rule.pushed(1.0)
    rule.arrived(1.1, 2, 1)
    rule.arrived(1.2, 0, 1)
    assert list(rule.start()) == [0, 2]
    assert rule.arrived(1.3, 1, 1) is None, "too late: it computes (line 16)"
    rule.pushed(2.0)
    assert rule.tag == 2, "and too old for the next pull"
    assert rule.arrived(2.1, 1, 2) is None
    assert rule.arrived(2.2, 3, 2) == 2.2
    assert list(rule.start()) == [1, 3]


def test_worker_line_17_pushes_every_block_with_its_counter():
    """Line 17: "Push each block with timestamp <g_j, t> to its corresponding server": t, not the block's version."""
    harness = Harness(PspOptions(c=1), 2)
    harness.push(0)
    harness.push(0)
    assert harness.version == 2
    harness.push(1)
    assert harness.granted[1] == 1, "it computes at version 2 and will push 1"


def test_worker_line_18_counts_up_by_one():
    """Line 18: "t <- t + 1", however far the servers are: a worker that was late stays late."""
    rule = rule_of(1)
    for version in (1, 2, 3, 4, 5):
        rule.arrived(0.5, 0, version)
    for tag in (1, 2, 3, 4, 5):
        assert rule.pushed(float(tag)) == float(tag), "a new enough block has already arrived"
        rule.start()
        assert rule.tag == tag
    assert rule.pushed(6.0) is None, "now it waits for the server, and is no longer late"


def test_a_late_workers_gradients_are_dropped_until_it_has_caught_up():
    """Lines 7 and 18: worker 2 is two updates behind and as fast as the others, which wait for each other."""
    harness = Harness(PspOptions(c=2), 3)
    for worker in (0, 1, 0, 1):
        harness.push(worker)
    for _ in range(3):
        assert discarded(harness.push(2)) != []
        for worker in (0, 1):
            harness.push(worker)
    assert (harness.version, harness.granted[2]) == (5, 3)
    assert discarded(harness.push(2)) != []
    assert discarded(harness.push(2)) != []
    assert (harness.granted[2], harness.version) == (5, 5)
    assert discarded(harness.push(2)) == [], "it has caught up"
    assert applied(harness.push(0)) != []


def test_with_the_newest_tag_a_late_workers_gradient_is_used_at_once():
    """Decided: `tag=newest` advances the counter to the versions of the blocks that have arrived, at any time."""
    harness = Harness(PspOptions(c=2, tag="newest"), 3)
    for worker in (0, 1, 0, 1):
        harness.push(worker)
    assert harness.granted[2] == 0
    assert discarded(harness.push(2)) == []
    assert harness.pushed[2] == harness.version == 2


def test_the_newest_tag_is_the_version_that_b_per_cent_of_the_blocks_have_reached():
    """Decided: with b below 100 % the counter goes as far as the worker may continue."""
    rule = rule_of(4, b=75.0, tag="newest")
    for shard, version in enumerate((7, 5, 3, 1)):
        rule.arrived(0.5, shard, version)
    assert rule.tag == 3
    assert rule.pushed(1.0) is None
    assert rule.tag == 4
    assert rule.arrived(1.5, 2, 6) == 1.5
    assert rule.tag == 5
    assert list(rule.start()) == [0, 1, 2]


# --- 2.1 to 2.3: special cases ---

choices = st.integers(0, 50).flatmap(lambda size: st.lists(st.integers(0, 99), min_size=size, max_size=size))


@given(st.integers(1, 5), choices)
def test_without_partial_pushing_and_pulling_it_is_synchronous_sgd(num_workers, history):
    """2.1: with c = k workers and b = 100 % every update takes one gradient of each, of the current version."""
    psp, bsp = Harness(PspOptions(), num_workers), Harness(BspOptions(), num_workers)
    for choice in history:
        worker = bsp.running[choice % len(bsp.running)]
        assert applied(psp.push(worker)) == applied(bsp.push(worker))
        assert psp.granted == bsp.granted


def test_with_partial_pushing_alone_the_first_m_are_used_as_with_backup_workers():
    """2.3: "the server only waits for the first m <= k workers"; "All other delayed workers are simply ignored".

    A worker that has missed updates gets the newest weights with backup workers; with PSP it stays a step behind.
    """
    psp, backup = Harness(PspOptions(c=2), 3), Harness(BackupOptions(backups=1), 3)
    for worker in (0, 1, 0, 1, 2):
        ours, theirs = psp.push(worker), backup.push(worker)
        assert (applied(ours), discarded(ours)) == (applied(theirs), discarded(theirs))
    assert (psp.granted[2], backup.granted[2]) == (1, 2)


# --- Decided points ---


def test_a_worker_that_leaves_lowers_c_where_too_few_are_left():
    machine = Psp(3, PspOptions(c=3))
    machine.handle(PushArrived(0.0, 0, 0, 0, 0.0))
    machine.handle(PushArrived(0.0, 1, 1, 0, 0.0))
    left = machine.handle(WorkerLeft(0.0, 2))
    assert left[0] == WaitFor(2, "worker 2 left")
    assert updates(left) == [((0, 1), 2.0)]
    assert granted(left) == [0, 1]
    joined = machine.handle(WorkerJoined(0.0, 2))
    assert joined[0] == WaitFor(3, "worker 2 joined")
    assert granted(joined) == [2]


def test_a_worker_that_has_left_need_not_respond():
    server = Server(3, c=1, tau1=0.5)
    server.push(0, 0, at=1.0)
    server.push(1, 0, at=1.1)
    left = server.machine.handle(WorkerLeft(1.2, 2))
    assert updates(left) == [((0, 1), 2.0)]


def test_a_worker_that_joins_later_starts_at_the_version_of_b_per_cent_of_the_blocks():
    """Its first push is then no further ahead of any shard than b allows."""
    rule = PspOptions(b=50.0).pull_rule(4)
    assert [rule.arrived(0.0, shard, version) for shard, version in enumerate((3, 7, 5, 6))] == [None, None, None, 0.0]
    assert sorted(rule.start()) == [0, 1, 2, 3]
    assert rule.tag == 6


def test_a_shard_that_has_ended_is_not_waited_for():
    """At the end of a run the shards stop one after the other."""
    rule = rule_of(3)
    assert rule.closed(0.5, 1) is None, "it computes"
    rule.pushed(1.0)
    assert rule.arrived(1.1, 0, 1) is None
    assert rule.closed(1.2, 2) == 1.2
