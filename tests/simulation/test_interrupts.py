"""Runs without gradients, with cancelled, repeated and late work and with timers: closed forms and counts."""

from collections import Counter

import pytest
from log_checks import Rows
from simulations import DELAYS, LATENCY, NOISE, check_counts, over_a_network, run, simulation_of

from syncline.records.rows import timer
from syncline.strategies.asp import AspOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.mindflayer import MindflayerOptions
from syncline.strategies.psp import PspOptions
from syncline.strategies.rennala import RennalaOptions
from syncline.strategies.ringmaster import RingmasterOptions
from syncline.strategies.ssp import SspOptions
from syncline.strategies.sync_switch import SyncSwitchOptions
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Constant, Uniform
from syncline.timing.network import NetworkConfig

# Closed forms.


@pytest.mark.parametrize(
    ("k", "update_s", "busy_s", "used", "interrupted"),
    [
        (1, 1, [1, 1, 1], [1, 0, 0], [0, 1, 1]),  # the others compute as long as the first, and are cancelled
        (2, 2, [1, 2, 2], [1, 1, 0], [0, 0, 1]),  # the first waits one second
        (3, 5, [1, 2, 5], [1, 1, 1], [0, 0, 0]),
    ],
)
def test_k_sync_takes_the_kth_workers_time_and_cancelled_work_takes_no_more(k, update_s, busy_s, used, interrupted):
    totals = run(KSyncOptions(k=k), ClusterConfig(workers=3, gradient_s=[1.0, 2.0, 5.0]), updates=10)
    assert totals.time_s == 10 * update_s
    assert totals.busy_s_by_worker == [10 * seconds for seconds in busy_s]
    assert totals.used_by_worker == [10 * count for count in used]
    assert totals.interrupted_by_worker == [10 * count for count in interrupted]
    assert totals.wasted_by_worker == [0, 0, 0]
    assert totals.staleness == [10 * k]


def test_a_push_that_crosses_a_block_is_stale_and_its_time_is_wasted():
    """A round trip takes 1 s. Worker 1 sends 0.2 s after worker 0, and 0.3 s before the push of worker 0 arrives.

    Every cycle takes 2 s: 0.5 (block), 1.0 (gradient of worker 0), 0.5 (push).
    """
    cluster = ClusterConfig(workers=2, gradient_s=[1.0, 1.2], network=LATENCY)
    rows = Rows()
    totals = run(KSyncOptions(k=1), cluster, log=rows, updates=10)
    assert totals.time_s == 20
    assert totals.used_by_worker == [10, 0]
    assert totals.interrupted_by_worker == totals.wasted_by_worker == [0, 9], "the tenth is still in flight"
    assert totals.busy_s_by_worker == pytest.approx([10, 12]), "all of it was computed"
    stale = rows.of("stale")
    assert [row.at for row in stale] == pytest.approx([2.2 + 2 * cycle for cycle in range(9)])
    assert [row.version for row in stale] == list(range(9))


def test_a_gradient_is_cancelled_when_the_newer_block_arrives_not_when_it_is_sent():
    """Worker 1 would need 2.5 s; the block that cancels it is sent after 1.5 s and arrives after 2."""
    cluster = ClusterConfig(workers=2, gradient_s=[1.0, 2.5], network=LATENCY)
    rows = Rows()
    totals = run(KSyncOptions(k=1), cluster, log=rows, time_s=20.25)
    assert totals.used_by_worker == [10, 0]
    assert (totals.interrupted_by_worker, totals.wasted_by_worker) == ([0, 9], [0, 0])
    assert [row.value for row in rows.of("dropped")] == [0.5] * 9, "seconds that were not computed"
    assert totals.busy_s_by_worker == pytest.approx([10, 9 * 2 + 1.75])


def test_a_repeat_has_the_latency_of_a_message():
    """0.5 s each way for pushes, blocks and repeats, so that each of three gradients takes 2 s."""
    rows = Rows()
    cluster = ClusterConfig(workers=1, gradient_s=[1.0], network=LATENCY)
    totals = run(KBatchSyncOptions(k=3), cluster, log=rows, updates=4)
    assert totals.time_s == 24
    assert [row.at for row in rows.of("repeated")] == [2, 4, 8, 10, 14, 16, 20, 22]
    assert [row.version for row in rows.of("started")] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


# Several gradients that finish at one time, and gradients that take no time.


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_of_gradients_that_finish_at_one_time_only_the_first_k_are_computed(k):
    totals = run(KSyncOptions(k=k), ClusterConfig(workers=4, gradient_s=[1.0]), updates=10)
    assert totals.time_s == 10
    assert sum(totals.used_by_worker) == 10 * k
    assert sum(totals.interrupted_by_worker) == 10 * (4 - k)
    assert totals.busy_s_by_worker == [10] * 4, "the cancelled ones were all but finished"


@pytest.mark.parametrize("network", [NetworkConfig(), LATENCY], ids=["at once", "latency"])
@pytest.mark.parametrize(
    "options",
    [KSyncOptions(k=2), KBatchSyncOptions(k=5), BackupOptions(backups=1), PspOptions(c=2), PspOptions(c=1, tau1=1.0)],
    ids=str,
)
def test_gradients_may_take_no_time_at_all(options, network):
    """Half of them take none, the others a second: nearly everything happens at the same moments."""
    cluster = ClusterConfig(workers=4, gradient_s=[1.0], jitter=Constant(0.0), network=network)
    scenario = ScenarioConfig(compute_delay={"name": "constant", "value": 1.0, "probability": 0.5})
    rows = Rows()
    totals = run(options, cluster, scenario, log=rows, updates=100)
    assert totals.updates == 100
    assert totals.time_s % 0.5 == 0
    check_counts(rows, totals, 4)


# Counts.

INTERRUPTING = [
    MindflayerOptions(within=1.0),
    *(KSyncOptions(k=k) for k in (1, 3)),
    *(KBatchSyncOptions(k=k) for k in (2, 7)),
]
LATE = [
    BackupOptions(backups=2),
    KAsyncOptions(k=3),
    KBatchAsyncOptions(k=3),
    PspOptions(c=3),
    PspOptions(c=2, tau1=0.3, tag="newest"),
    RingmasterOptions(r=3),
    RingmasterOptions(r=3, stops=True),
    RennalaOptions(k=3),
    SyncSwitchOptions(after=20),
]


@pytest.mark.parametrize("scenario", [ScenarioConfig(), DELAYS], ids=["at once", "delays"])
@pytest.mark.parametrize("options", INTERRUPTING + LATE, ids=str)
def test_every_gradient_that_was_started_is_accounted_for_and_busy_time_is_what_was_computed(options, scenario):
    rows = Rows()
    cluster = ClusterConfig(workers=5, gradient_s=[1.0, 1.5, 0.7], jitter=NOISE)
    totals = run(options, cluster, scenario, log=rows, updates=100, seed=3)
    check_counts(rows, totals, 5)
    assert options.staleness_bound is None or len(totals.staleness) - 1 <= options.staleness_bound
    if options in INTERRUPTING:
        assert sum(totals.interrupted_by_worker) > 50
        assert (sum(totals.wasted_by_worker) > 5) == (scenario is DELAYS)
        assert {row.version for row in rows.of("started")} >= set(range(100)), (
            "a gradient was computed at every version"
        )


PLAIN = [AspOptions(), BspOptions(), SspOptions(), DsspOptions()]


@pytest.mark.parametrize("options", PLAIN + INTERRUPTING + LATE, ids=str)
def test_messages_that_take_no_time_give_the_same_run_whether_they_are_scheduled_or_not(options):
    cluster = ClusterConfig(workers=5, gradient_s=[1.0, 1.6, 2.9], jitter=NOISE)
    logs = []
    for is_instant in (True, False):
        logs.append(Rows())
        with over_a_network(not is_instant):
            simulation = simulation_of(options, cluster, log=logs[-1], updates=100)
        assert (simulation._network is None) == is_instant
        simulation.run()
    ours, theirs = ([row for row in rows if row.at < rows[-1].at] for rows in logs)  # rows after the end may differ
    assert sorted(ours) == sorted(theirs)
    assert logs[0].of("applied") == logs[1].of("applied")


def test_a_block_that_was_overtaken_by_a_newer_one_is_not_used():
    """A block may take twenty updates to arrive, and the next one none."""
    scenario = ScenarioConfig(pull_delay={"name": "constant", "value": 20.0, "probability": 0.3})
    rows = Rows()
    cluster = ClusterConfig(workers=4, gradient_s=[1.0], jitter=Uniform(0.5, 1.5))
    for options in (KSyncOptions(k=1), KBatchSyncOptions(k=2)):
        rows.clear()
        totals = run(options, cluster, scenario, log=rows, updates=300)
        check_counts(rows, totals, 4)
        for worker in range(4):
            versions = [row.version for row in rows.of("started") if row.worker == worker]
            assert versions == sorted(versions)


# Late workers, several shards.


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("scenario", [ScenarioConfig(), DELAYS], ids=["at once", "delays"])
def test_backup_workers_never_apply_an_older_version_and_always_n_gradients(scenario, shards):
    rows = Rows()
    cluster = ClusterConfig(workers=5, shards=shards, gradient_s=[1.0, 2.0], jitter=NOISE)
    totals = run(BackupOptions(backups=2), cluster, scenario, log=rows, updates=80)
    assert len(totals.staleness) == 1
    sizes = Counter((row.shard, row.version) for row in rows.of("applied"))
    assert set(sizes.values()) == {3}
    contributions = Counter((row.shard, row.version, row.worker) for row in rows.of("applied"))
    assert set(contributions.values()) == {1}, "no worker contributes twice to one update"
    assert sum(totals.discarded_by_worker) > 25
    check_counts(rows, totals, 5, shards)


@pytest.mark.parametrize(
    "options",
    [
        PspOptions(),
        PspOptions(c=3, b=67.0),
        PspOptions(c=2, b=34.0, tau1=0.2, tau2=0.1),
        PspOptions(b=34, tag="newest"),
    ],
    ids=str,
)
def test_psp_on_several_shards_accounts_for_every_gradient(options):
    rows = Rows()
    cluster = ClusterConfig(workers=4, shards=3, gradient_s=[1.0, 1.4], jitter=NOISE)
    totals = run(options, cluster, DELAYS, log=rows, updates=80)
    check_counts(rows, totals, 4, 3)
    count = options.c or 4
    sizes = Counter((row.shard, row.version) for row in rows.of("applied"))
    assert min(sizes.values()) >= count
    for worker in range(4):
        numbers = [row.value for row in rows.of("pulled") if row.worker == worker]
        assert numbers == list(range(len(numbers)))
    tags = {row.push: row.version for row in rows.of("pushed")}
    for row in rows.of("applied"):
        assert tags[row.push] >= row.version - 1, "tagged with the current version, or a newer one"
    for row in rows.of("discarded"):
        assert "tagged" in row.because


# Timers.


def test_a_shard_waits_tau1_for_more_than_c():
    """The first gradient arrives after 1 s, the second within half a second of it, the third is late."""
    rows = Rows()
    totals = run(
        PspOptions(c=1, tau1=0.5), ClusterConfig(workers=3, gradient_s=[1.0, 1.25, 50.0]), log=rows, updates=20
    )
    assert totals.time_s == 20 * 1.5
    assert totals.used_by_worker == [20, 20, 0]
    assert [row.at for row in rows.of("timer")] == [1.5 * update for update in range(1, 21)]
    assert rows.of("timer")[3] == timer(6.0, 0, 3)


def test_a_timer_is_set_at_the_start_and_a_round_without_a_gradient_waits_for_the_first():
    """Rounds of 1 s and gradients of 0.75 and 64 s; then of 1.25 s."""
    rows = Rows()
    totals = run(MindflayerOptions(within=1.0), ClusterConfig(workers=2, gradient_s=[0.75, 64.0]), log=rows, updates=3)
    assert totals.time_s == 3.0
    assert [row.at for row in rows.of("timer")] == [1.0, 2.0, 3.0]
    assert run(MindflayerOptions(within=1.0), ClusterConfig(workers=1, gradient_s=[1.25]), updates=3).time_s == 3.75


@pytest.mark.parametrize("network", [NetworkConfig(), NetworkConfig(latency_s=0.125)], ids=["at once", "latency"])
def test_a_timer_and_a_push_at_the_same_moment_settle_every_gradient_once(network):
    """c = 1, tau1 = 1 s, and the second worker pushes exactly one second after the first."""
    rows = Rows()
    cluster = ClusterConfig(workers=3, gradient_s=[1.0, 2.0, 64.0], network=network)
    totals = run(PspOptions(c=1, tau1=1.0), cluster, log=rows, updates=12)
    check_counts(rows, totals, 3)
