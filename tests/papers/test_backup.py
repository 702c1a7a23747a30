"""Synchronous SGD with backup workers (backup.txt), statement by statement: sections 3 and 4."""

import pytest
from answers import applied, discarded, granted
from hypothesis import given
from hypothesis import strategies as st

from syncline.checking.harness import Harness
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.protocol import Apply, WaitFor

# --- 3. Sync-SGD and backup workers ---


@given(st.lists(st.integers(0, 99), max_size=60))
def test_without_backups_it_is_sync_sgd(choices):
    """3: "the parameter server waits for all workers to send their gradients, aggregates them, and sends the updated
    parameters to all workers afterward"."""
    backup, bsp = Harness(BackupOptions(backups=0), 4), Harness(BspOptions(), 4)
    for choice in choices:
        worker = bsp.running[choice % len(bsp.running)]
        ours, theirs = backup.push(worker), bsp.push(worker)
        assert (applied(ours), granted(ours)) == (applied(theirs), granted(theirs))
        assert backup.running == bsp.running


def test_the_server_stops_waiting_with_the_nth_gradient():
    """3: "as soon as the parameter server receives gradients from N of the workers, it stops waiting and sends back the
    updated parameters"; 4: "the parameters are only updated once instead of N times". N = 3 of 5."""
    harness = Harness(BackupOptions(backups=2), 5)
    assert (applied(harness.push(3)), harness.running) == ([], [0, 1, 2, 4])
    assert (applied(harness.push(0)), harness.running) == ([], [1, 2, 4])
    third = harness.push(4)
    assert applied(third) == [(0, 1, 2)]
    assert granted(third) == [3, 0, 4]
    assert harness.granted == {0: 1, 3: 1, 4: 1, 1: 0, 2: 0}, "the slower two are still at the old version"


def test_a_slower_workers_gradient_is_dropped_when_it_arrives_and_its_next_one_counts_again():
    """3: "while the slower workers' gradients will be dropped when they arrive"; the worker gets the newest version."""
    harness = Harness(BackupOptions(backups=1), 3)
    for _ in range(3):
        harness.push(0)
        harness.push(1)
    late = harness.push(2)
    assert (discarded(late), granted(late), applied(late)) == ([6], [2], [])
    assert harness.granted[2] == harness.version == 3
    harness.push(2)
    assert applied(harness.push(1)) == [(7, 8)]


@given(st.integers(1, 6), st.integers(0, 5), st.lists(st.integers(0, 99), max_size=80))
def test_the_actual_algorithm_is_true_mini_batch_sgd(num_workers, backups, choices):
    """3: "a true mini-batch stochastic gradient descent, where the actual batch size is the sum of all": every update
    takes N gradients of N workers, all computed at the current version (the harness checks the version)."""
    backups = min(backups, num_workers - 1)
    harness = Harness(BackupOptions(backups=backups), num_workers)
    owner = {}
    for choice in choices:
        worker = harness.running[choice % len(harness.running)]
        owner[harness.next_push] = worker
        for pushes in applied(harness.push(worker)):
            assert len({owner[push] for push in pushes}) == len(pushes) == num_workers - backups
    assert harness.options.staleness_bound == 0


def test_the_slowest_worker_no_longer_determines_the_step_time():
    """3: the "actual update time now depends on the slowest worker" without backups, on the N-th with them.

    4 and Figure 2: "backup workers are useful to remove such long tail events".
    """

    def five_updates_s(backups: int) -> float:
        harness = Harness(BackupOptions(backups=backups), 4)
        while harness.version < 5:
            harness.step(lambda worker, _: 1.0 if worker < 3 else 10.0)
        return harness.now

    assert five_updates_s(0) == 50.0
    assert five_updates_s(1) == 5.0


# --- 4. Experiments: statements on the algorithm ---


@pytest.mark.parametrize(("aggregate", "is_sum"), [("sum", True), ("mean", False)])
def test_the_gradients_are_summed_or_averaged(aggregate, is_sum):
    """4: "all gradients are summed before updating the parameters"; the published code takes the mean (the default)."""
    harness = Harness(BackupOptions(backups=1, aggregate=aggregate), 3)
    harness.push(0)
    update = harness.push(1)[0]
    assert isinstance(update, Apply)
    assert (update.is_sum, update.scale) == (is_sum, 1.0)
    assert BackupOptions().aggregate == "mean"


def test_a_dead_worker_is_not_waited_for():
    """4: workers "can be significantly slower or even dead". P counts the active workers, so N = P - b falls by one."""
    harness = Harness(BackupOptions(backups=1), 4)
    assert harness.leave(3) == [WaitFor(2, "worker 3 left")]
    harness.push(0)
    assert applied(harness.push(1)) == [(0, 1)]
    assert harness.join(3)[0] == WaitFor(3, "worker 3 joined")


def test_n_is_never_less_than_one():
    """Decided: otherwise the run would hang with the last workers."""
    harness = Harness(BackupOptions(backups=2), 4)
    for worker in (3, 2, 1):
        harness.leave(worker)
    assert harness.waits_for == 1
    assert applied(harness.push(0)) == [(0,)]


def test_waiting_workers_continue_when_the_one_they_wait_for_dies():
    """Decided: N falls by one with the worker that leaves."""
    harness = Harness(BackupOptions(backups=1), 4)
    harness.push(0)
    harness.push(1)
    assert applied(harness.leave(3)) == [(0, 1)]
    assert harness.granted == {0: 1, 1: 1, 2: 0}


def test_a_gradient_of_a_worker_that_left_is_used_but_does_not_count_towards_n():
    """Decided: worker 3's gradient is in the mean with those of the N = 2 active workers."""
    harness = Harness(BackupOptions(backups=1), 4)
    harness.push(3)
    harness.leave(3)
    assert applied(harness.push(0)) == []
    assert applied(harness.push(1)) == [(0, 1, 2)]


def test_no_worker_contributes_two_gradients_to_one_update():
    """Decided: a worker that leaves and rejoins during an update waits for it with its earlier gradient."""
    harness = Harness(BackupOptions(backups=1), 4)
    harness.push(0)
    harness.leave(0)
    harness.join(0)
    again = harness.push(0)
    assert (discarded(again), granted(again)) == ([1], [])
    harness.push(1)
    assert applied(harness.push(2)) == [(0, 2, 3)]
    assert harness.granted == dict.fromkeys((0, 1, 2), 1) | {3: 0}
