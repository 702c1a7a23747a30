"""Virtual time where work is broken off, repeated, late or timed: closed forms, counts, and equal bits."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from engine_play import Rows, computed_versions

from syncline.config import DatasetConfig, LenetConfig, RunConfig, SgdConfig
from syncline.course import Limits, Totals
from syncline.simulation.engine import Simulation
from syncline.simulation.run import Learning, build_learning
from syncline.strategies.adasync import VARIANTS, AdasyncOptions
from syncline.strategies.asp import AspOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.strategies.psp import PspOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Constant, Exponential, Uniform
from syncline.timing.network import NetworkConfig

NOISE = Exponential(1.0)
DELAYS = ScenarioConfig(push_delay=Exponential(0.4), pull_delay=Exponential(0.4))
LATENCY = NetworkConfig(latency_s=0.5)


class NobodyLooks:
    def updated(self, simulation: Simulation) -> int:
        return 1 << 62


def simulation_of(
    options: StrategyOptions,
    cluster: ClusterConfig,
    scenario: ScenarioConfig | None = None,
    *,
    learning: Learning | None = None,
    log: Rows | None = None,
    observer=None,
    seed: int = 0,
    batch_size: int = 1,
    **limits: float,
) -> Simulation:
    options.check_cluster(cluster.workers, cluster.shards)
    simulation = Simulation(
        strategies=[options.start(cluster.workers) for _ in range(cluster.shards)],
        cluster=Cluster(cluster, scenario or ScenarioConfig(), seed),
        block_bytes=[0] * cluster.shards,
        batch_size=batch_size,
        limits=Limits(**limits),
        observer=observer or NobodyLooks(),
        rules=[rule for _ in range(cluster.workers) if (rule := options.pull_rule(cluster.shards)) is not None],
        learning=None if learning is None else (learning.shards, learning.workers),
        log=None if log is None else log.append,
    )
    simulation.totals.begin(options.first_count)
    return simulation


def run(options: StrategyOptions, cluster: ClusterConfig, scenario=None, **about) -> Totals:
    simulation = simulation_of(options, cluster, scenario, **about)
    simulation.run()
    return simulation.totals


# Closed forms.


@pytest.mark.parametrize(
    ("k", "update_s", "busy_s", "used", "interrupted"),
    [
        (1, 1, [1, 1, 1], [1, 0, 0], [0, 1, 1]),  # the others work as long as the first, for nothing
        (2, 2, [1, 2, 2], [1, 1, 0], [0, 0, 1]),  # the first waits one second
        (3, 5, [1, 2, 5], [1, 1, 1], [0, 0, 0]),
    ],
)
def test_k_sync_takes_the_kth_workers_time_and_what_is_broken_off_costs_nothing_further(
    k, update_s, busy_s, used, interrupted
):
    totals = run(KSyncOptions(k=k), ClusterConfig(workers=3, gradient_s=[1.0, 2.0, 5.0]), updates=10)
    assert totals.time_s == 10 * update_s
    assert totals.busy_s_by_worker == [10 * seconds for seconds in busy_s]
    assert totals.used_by_worker == [10 * count for count in used]
    assert totals.interrupted_by_worker == [10 * count for count in interrupted]
    assert totals.in_vain_by_worker == [0, 0, 0]
    assert totals.staleness == {0: 10 * k}


def test_k_batch_sync_lets_the_quick_one_give_more():
    """Every 3 s: three of worker 0, one of worker 1 (at 2 s); what worker 1 began then is broken off after 1 s."""
    totals = run(KBatchSyncOptions(k=4), ClusterConfig(workers=2, gradient_s=[1.0, 2.0]), updates=10)
    assert totals.time_s == 30
    assert totals.used_by_worker == [30, 10]
    assert totals.interrupted_by_worker == [0, 10]
    assert totals.busy_s_by_worker == [30, 30]


def test_a_push_that_crosses_a_block_is_void_and_its_time_was_in_vain():
    """A second goes by on the way to and fro. Worker 1 sends 0.2 s after worker 0, 0.3 s before that one's push counts.

    Every cycle takes 2 s: 0.5 (block), 1.0 (gradient of worker 0), 0.5 (push).
    """
    cluster = ClusterConfig(workers=2, gradient_s=[1.0, 1.2], network=LATENCY)
    rows = Rows()
    totals = run(KSyncOptions(k=1), cluster, log=rows, updates=10)
    assert totals.time_s == 20
    assert totals.used_by_worker == [10, 0]
    assert totals.interrupted_by_worker == totals.in_vain_by_worker == [0, 9], "the tenth is still on its way"
    assert totals.busy_s_by_worker == pytest.approx([10, 12]), "all of it was computed"
    void = rows.of("dropped")
    assert [row.at for row in void] == pytest.approx([2.2 + 2 * cycle for cycle in range(9)])
    assert [(row.version, row.value, row.because) for row in void] == [(cycle, 0, "on its way") for cycle in range(9)]


def test_a_gradient_is_broken_off_when_the_newer_block_arrives_not_when_it_is_sent():
    """Worker 1 would need 2.5 s; the block that ends its work leaves after 1.5 s of it and is there after 2."""
    cluster = ClusterConfig(workers=2, gradient_s=[1.0, 2.5], network=LATENCY)
    rows = Rows()
    totals = run(KSyncOptions(k=1), cluster, log=rows, time_s=20.25)
    assert totals.used_by_worker == [10, 0]
    assert (totals.interrupted_by_worker, totals.in_vain_by_worker) == ([0, 9], [0, 0])
    assert [row.value for row in rows.of("dropped")] == [0.5] * 9, "seconds that were not computed"
    assert totals.busy_s_by_worker == pytest.approx([10, 9 * 2 + 1.75])


def test_a_repeat_takes_its_way_to_the_worker():
    """0.5 s there and back; blocks and repeats come after 0.5 s, so that each of three gradients takes 2 s."""
    rows = Rows()
    cluster = ClusterConfig(workers=1, gradient_s=[1.0], network=LATENCY)
    totals = run(KBatchSyncOptions(k=3), cluster, log=rows, updates=4)
    assert totals.time_s == 24
    assert [row.at for row in rows.of("repeated")] == [2, 4, 8, 10, 14, 16, 20, 22]
    assert [row.version for row in rows.of("started")] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_k_async_disturbs_nobody():
    totals = run(KAsyncOptions(k=2), ClusterConfig(workers=3, gradient_s=[1.0, 1.0, 7.5]), updates=8)
    assert sum(totals.interrupted_by_worker) == 0
    # Worker 2's first gradient is the first of the eighth update, with that of worker 0 or 1 at 8 s.
    assert totals.time_s == 8
    assert totals.used_by_worker[2] == 1
    assert max(totals.staleness) == 7


# Several that finish at one time, and work that takes no time.


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_of_several_that_finish_at_one_time_only_the_first_k_are_computed(k):
    totals = run(KSyncOptions(k=k), ClusterConfig(workers=4, gradient_s=[1.0]), updates=10)
    assert totals.time_s == 10
    assert sum(totals.used_by_worker) == 10 * k
    assert sum(totals.interrupted_by_worker) == 10 * (4 - k)
    assert totals.busy_s_by_worker == [10] * 4, "what was broken off was as good as finished"


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


def test_with_zero_durations_alone_the_run_ends_at_its_last_update_at_time_zero():
    cluster = ClusterConfig(workers=3, gradient_s=[1.0], jitter=Constant(0.0))
    for options in (KSyncOptions(k=2), KBatchSyncOptions(k=4), AdasyncOptions(variant="k_sync", k=1)):
        totals = run(options, cluster, updates=50)
        assert (totals.time_s, totals.updates, totals.busy_s_by_worker) == (0, 50, [0, 0, 0])


# Counts.

INTERRUPTING = [KSyncOptions(k=1), KSyncOptions(k=3), KBatchSyncOptions(k=2), KBatchSyncOptions(k=7)]
LATE = [
    BackupOptions(backups=2),
    KAsyncOptions(k=3),
    KBatchAsyncOptions(k=3),
    PspOptions(c=3),
    PspOptions(c=2, tau1=0.3, tag="newest"),
]


def check_counts(rows: Rows, totals: Totals, num_workers: int, num_shards: int = 1) -> None:
    """Every gradient that was begun was used, discarded, broken off or void, or is still somewhere."""
    counts = {
        kind: Counter(row.worker for row in rows.of(kind) if row.shard <= 0)
        for kind in ("started", "computed", "pushed", "applied", "discarded")
    }
    broken_off = Counter(row.worker for row in rows.of("dropped") if row.because == "broken off")
    void = Counter(row.worker for row in rows.of("dropped") if row.because == "on its way")
    assert {row.because for row in rows.of("dropped")} <= {"broken off", "on its way"}
    running = [0] * num_workers
    pending = Counter[int]()
    for worker in range(num_workers):
        running[worker] = counts["started"][worker] - counts["computed"][worker] - broken_off[worker]
        assert running[worker] in (0, 1)
        under_way = counts["computed"][worker] - counts["pushed"][worker] - void[worker]
        assert under_way >= 0
        pending[worker] = counts["pushed"][worker] - counts["applied"][worker] - counts["discarded"][worker]
        assert pending[worker] >= 0
    assert totals.used_by_worker == [counts["applied"][worker] for worker in range(num_workers)]
    assert totals.discarded_by_worker == [counts["discarded"][worker] for worker in range(num_workers)]
    interrupted = [broken_off[worker] + void[worker] for worker in range(num_workers)]
    assert totals.interrupted_by_worker == interrupted
    assert totals.in_vain_by_worker == [void[worker] for worker in range(num_workers)]
    pushes = [row.push for row in rows.of("applied", "discarded")]
    assert len(set(pushes)) == len(pushes), "settled once"
    # What each worker really computed: its gradients' seconds, without what was broken off and what is still running.
    spent = [0.0] * num_workers
    begun: dict[int, float] = {}
    for row in rows:
        if row.kind == "started":
            begun[row.worker] = row.at
            spent[row.worker] += row.value
        elif row.kind == "dropped":
            spent[row.worker] -= row.value
    for worker in range(num_workers):
        if running[worker]:
            duration = [row.value for row in rows.of("started") if row.worker == worker][-1]
            spent[worker] -= max(0.0, begun[worker] + duration - totals.time_s)
    assert totals.busy_s_by_worker == pytest.approx(spent, abs=1e-9)
    numbers = Counter[tuple[int, int]]()
    for row in rows.of("pushed"):
        if row.shard == 0:
            numbers[row.worker, int(row.value)] += 1
    assert set(numbers.values()) <= {1}, "no gradient is sent twice"
    staleness = Counter[float]()
    for shard in range(num_shards):
        computed_at = computed_versions(rows, shard)
        staleness += Counter(
            row.version - 1 - computed_at[row.push] for row in rows.of("applied") if row.shard == shard
        )
    assert staleness == totals.staleness


@pytest.mark.parametrize("scenario", [ScenarioConfig(), DELAYS], ids=["at once", "delays"])
@pytest.mark.parametrize("options", INTERRUPTING + LATE, ids=str)
def test_every_gradient_that_was_begun_is_accounted_for_and_busy_is_what_was_computed(options, scenario):
    rows = Rows()
    cluster = ClusterConfig(workers=5, gradient_s=[1.0, 1.5, 0.7], jitter=NOISE)
    totals = run(options, cluster, scenario, log=rows, updates=200, seed=3)
    check_counts(rows, totals, 5)
    assert options.staleness_bound is None or set(totals.staleness) == {0}
    if options in INTERRUPTING:
        assert sum(totals.interrupted_by_worker) > 100
        assert (sum(totals.in_vain_by_worker) > 10) == (scenario is DELAYS)
        assert {row.version for row in rows.of("started")} >= set(range(200)), "every version was computed at"


@pytest.mark.parametrize("options", [*INTERRUPTING, *LATE], ids=str)
def test_messages_that_take_no_time_give_the_same_run_with_and_without_a_place_in_the_queue(options):
    cluster = ClusterConfig(workers=5, gradient_s=[1.0, 1.6, 2.9], jitter=NOISE)
    logs = []
    for is_direct in (True, False):
        logs.append(Rows())
        simulation = simulation_of(options, cluster, log=logs[-1], updates=200)
        assert simulation._is_direct
        simulation._is_direct = is_direct
        simulation.run()
    ours, theirs = ([row for row in rows if row.at < rows[-1].at] for rows in logs)  # what follows the end may differ
    assert sorted(ours) == sorted(theirs)
    assert logs[0].of("applied") == logs[1].of("applied")


def test_a_block_that_was_overtaken_by_a_newer_one_is_not_used():
    """A block may take twenty updates to come, and the next one none."""
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


def test_the_heap_stays_small_when_nearly_all_work_is_broken_off():
    """100 workers, of which the first alone counts: 50,000 gradients are broken off."""

    class Looks:
        most = 0

        def updated(self, simulation: Simulation) -> int:
            self.most = max(self.most, len(simulation._times))
            assert len(simulation._times) >= len(simulation._due), "nothing that is due is forgotten"
            return simulation.totals.updates + 1

    looks = Looks()
    cluster = ClusterConfig(workers=100, gradient_s=[1.0], jitter=NOISE)
    totals = run(KSyncOptions(k=1), cluster, observer=looks, updates=500)
    assert sum(totals.interrupted_by_worker) == 99 * 500
    assert looks.most <= 64 + 5 * 100
    seconds = Cluster(cluster, ScenarioConfig(), 0).first_compute_s(500)
    expected = 0.0
    for shortest in seconds.min(axis=0):  # everybody begins anew with every update
        expected += shortest
    assert totals.time_s == expected


# Late workers, several shards.


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("scenario", [ScenarioConfig(), DELAYS], ids=["at once", "delays"])
def test_backup_workers_never_apply_an_older_version_and_always_n_gradients(scenario, shards):
    rows = Rows()
    cluster = ClusterConfig(workers=5, shards=shards, gradient_s=[1.0, 2.0], jitter=NOISE)
    totals = run(BackupOptions(backups=2), cluster, scenario, log=rows, updates=150)
    assert set(totals.staleness) == {0}
    sizes = Counter((row.shard, row.version) for row in rows.of("applied"))
    assert set(sizes.values()) == {3}
    givers = Counter((row.shard, row.version, row.worker) for row in rows.of("applied"))
    assert set(givers.values()) == {1}, "nobody gives two to one update"
    assert sum(totals.discarded_by_worker) > 50
    check_counts(rows, totals, 5, shards)


def test_backup_workers_do_not_wait_for_the_slowest():
    """One of four is ten times slower: BSP takes its time for every update, one backup worker makes it harmless."""
    cluster = ClusterConfig(workers=4, gradient_s=[1.0, 1.0, 1.0, 10.0])
    assert run(BspOptions(), cluster, updates=20).time_s == 200
    totals = run(BackupOptions(backups=1), cluster, updates=20)
    assert totals.time_s == 20
    assert totals.discarded_by_worker == [0, 0, 0, 2], "of 10 s and of 20 s, each computed at a version long gone"


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
    totals = run(options, cluster, DELAYS, log=rows, updates=150)
    check_counts(rows, totals, 4, 3)
    count = options.c or 4
    sizes = Counter((row.shard, row.version) for row in rows.of("applied"))
    assert min(sizes.values()) >= count
    for worker in range(4):
        numbers = [row.value for row in rows.of("pulled") if row.worker == worker]
        assert numbers == list(range(len(numbers)))
    tags = {row.push: row.version for row in rows.of("pushed")}
    for row in rows.of("applied"):
        assert tags[row.push] >= row.version - 1, "tagged with the version it met, or a newer one"
    for row in rows.of("discarded"):
        assert "tagged" in row.because


# Timers.


def test_a_shard_waits_tau1_for_more_than_c():
    """The first is there after 1 s, the second within half a second of it, the third is late."""
    rows = Rows()
    totals = run(
        PspOptions(c=1, tau1=0.5), ClusterConfig(workers=3, gradient_s=[1.0, 1.25, 50.0]), log=rows, updates=20
    )
    assert totals.time_s == 20 * 1.5
    assert totals.used_by_worker == [20, 20, 0]
    assert [row.at for row in rows.of("timer")] == [1.5 * update for update in range(1, 21)]
    assert rows.of("timer")[3][1:] == ("timer", -1, 0, -1, 3, 0.0, "")


def test_a_shard_waits_no_longer_when_all_have_answered():
    rows = Rows()
    totals = run(PspOptions(c=1, tau1=0.5), ClusterConfig(workers=2, gradient_s=[1.0, 1.25]), log=rows, updates=20)
    assert totals.time_s == 20 * 1.25
    assert totals.used_by_worker == [20, 20]
    assert rows.of("timer") == [], "a timer that was put out does not fire"


@pytest.mark.parametrize("network", [NetworkConfig(), NetworkConfig(latency_s=0.125)], ids=["at once", "latency"])
def test_a_timer_and_a_push_at_the_same_moment_settle_every_gradient_once(network):
    """c = 1, tau1 = 1 s, and the second worker comes exactly one second after the first."""
    rows = Rows()
    cluster = ClusterConfig(workers=3, gradient_s=[1.0, 2.0, 64.0], network=network)
    totals = run(PspOptions(c=1, tau1=1.0), cluster, log=rows, updates=12)
    check_counts(rows, totals, 3)


# Equal bits.

SGD = SgdConfig(lr=0.02, momentum=0.9, weight_decay=1e-3)
FOUR = ClusterConfig(workers=4, gradient_s=[1.0, 1.3, 0.8], jitter=Uniform(0.5, 1.5))


def config_of(options: StrategyOptions, cluster: ClusterConfig = FOUR, **changes) -> RunConfig:
    given = {"model": LenetConfig(), "dataset": DatasetConfig(), "optimizer": SGD, "batch_size": 16, "max_updates": 25}
    return RunConfig(strategy=options, cluster=cluster, device="cpu", **(given | changes))


def learned(config: RunConfig, scenario: ScenarioConfig | None = None) -> tuple[torch.Tensor, Totals, Rows, int]:
    """Final weights, totals, log, and the gradients that were computed."""
    torch.set_num_threads(1)
    learning, rows, calls = build_learning(config), Rows(), []
    compute = learning.workers.compute
    learning.workers.compute = lambda worker: (calls.append(worker), compute(worker))[1]  # type: ignore[method-assign]
    simulation = simulation_of(
        config.strategy,
        config.cluster,
        scenario,
        learning=learning,
        log=rows,
        batch_size=config.batch_size,
        updates=config.max_updates or math.inf,
    )
    assert simulation.run() == "max_updates"
    return torch.cat([shard.current.weights for shard in learning.shards]), simulation.totals, rows, len(calls)


def without_reasons(rows: Rows, *kinds: str) -> list[tuple]:
    return [row[:-1] for row in rows.of(*kinds)]


@pytest.mark.parametrize(
    ("options", "other"),
    [
        (KSyncOptions(k=4), BspOptions()),
        (BackupOptions(backups=0), BspOptions()),
        (KBatchAsyncOptions(k=1), AspOptions()),
        (KAsyncOptions(k=1), AspOptions()),
        (KAsyncOptions(k=4), BspOptions()),
        (AdasyncOptions(variant="k_sync", k=4), KSyncOptions(k=4)),
        (AdasyncOptions(variant="k_async", k=2, interval=1e6), KAsyncOptions(k=2)),
    ],
    ids=lambda options: options.name,
)
def test_special_cases_are_the_other_strategy_in_every_bit(options, other):
    ours, theirs = learned(config_of(options)), learned(config_of(other))
    assert torch.equal(ours[0], theirs[0])
    assert ours[3] == theirs[3]
    kinds = ("started", "computed", "pushed", "applied", "granted", "held")
    assert without_reasons(ours[2], *kinds) == without_reasons(theirs[2], *kinds)
    assert replace(ours[1], waits_for=[]) == replace(theirs[1], waits_for=[])


@pytest.mark.parametrize("scenario", [ScenarioConfig(), DELAYS], ids=["at once", "delays"])
def test_psp_that_waits_for_all_is_bsp_at_as_many_times_the_rate(scenario):
    """Four workers: four times a float32 rate is exact."""
    psp = learned(config_of(PspOptions()), scenario)
    bsp = learned(config_of(BspOptions(), optimizer=replace(SGD, lr=4 * SGD.lr)), scenario)
    assert torch.equal(psp[0], bsp[0])
    assert without_reasons(psp[2], "pushed", "applied") == without_reasons(bsp[2], "pushed", "applied")


def test_the_sum_of_the_gradients_is_their_mean_at_n_times_the_rate():
    """Two of three: the sum of two at half the rate. Momentum and weight decay would see another gradient."""
    cluster = replace(FOUR, workers=3)
    plain = SgdConfig(lr=0.02, momentum=0.0)
    mean = learned(config_of(BackupOptions(backups=1), cluster, optimizer=plain))[0]
    total = learned(config_of(BackupOptions(backups=1, aggregate="sum"), cluster, optimizer=replace(plain, lr=0.01)))[0]
    assert torch.equal(mean, total)


@pytest.mark.parametrize("scenario", [ScenarioConfig(), DELAYS], ids=["at once", "delays"])
@pytest.mark.parametrize("options", [KSyncOptions(k=1), KBatchSyncOptions(k=3)], ids=str)
def test_what_is_broken_off_is_never_computed(options, scenario):
    _, totals, rows, num_gradients = learned(config_of(options), scenario)
    broken_off = sum(row.because == "broken off" for row in rows.of("dropped"))
    assert broken_off > 15
    assert num_gradients == len(rows.of("computed")) <= len(rows.of("started")) - broken_off
    check_counts(rows, totals, 4)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("scenario", [ScenarioConfig(), DELAYS], ids=["at once", "delays"])
@pytest.mark.parametrize(
    "options",
    [PspOptions(c=1, b=60.0), PspOptions(c=1, b=30.0, tag="newest"), BackupOptions(backups=3)],
    ids=lambda options: f"{options.name} {getattr(options, 'tag', '')}",
)
def test_late_workers_learn_whatever_version_they_hold(options, scenario, shards):
    """One of four is always far behind; versions that nobody needs any more are used again."""
    cluster = replace(FOUR, shards=shards, gradient_s=[1.0, 2.5, 4.0, 9.0])
    weights, totals, rows, _ = learned(config_of(options, cluster, max_updates=60), scenario)
    assert torch.isfinite(weights).all()
    check_counts(rows, totals, 4, shards)


@pytest.mark.parametrize("variant", VARIANTS)
def test_adasync_tells_the_k_it_has_chosen(variant):
    """A rate of nearly nothing: F stays at F_0, and so does K; then losses that halve again and again."""
    rows = Rows()
    options = AdasyncOptions(variant=variant, k=2, interval=10.0)
    simulation = simulation_of(options, FOUR, log=rows, updates=120)

    def losses(worker: int) -> tuple[float, None]:
        return 4.0 * 0.5 ** int(simulation._now // 10), None

    class Falls:
        compute = staticmethod(losses)

        def pin(self, shard: int) -> None: ...

        def receive(self, worker: int, shard: int) -> None: ...

    simulation._workers = Falls()  # type: ignore[assignment]
    simulation._learn = lambda shard, command: None  # type: ignore[method-assign]
    simulation.run()
    told = simulation.totals.waits_for
    assert told[0] == (0.0, 0, 2)
    assert [count for _, _, count in told] == sorted({count for _, _, count in told}), "K grows and never falls"
    assert told[-1][2] == 4
    assert [(row.at, row.version, row.value) for row in rows.of("waits_for")] == told[1:]
    assert all(at % 10 < 2 for at, _, _ in told[1:]), "soon after an interval ends"
    sizes = Counter(row.version for row in rows.of("applied"))
    for number, (_, updates, count) in enumerate(told):
        after = told[number + 1][1] if number + 1 < len(told) else len(sizes)
        assert {sizes[version] for version in range(updates + 1, after + 1)} <= {count}
