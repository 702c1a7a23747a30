"""Real processes under strategies that cancel, discard or use timers. One run tests much."""

from collections import Counter
from itertools import pairwise

import pytest
from live.here import Launcher, has_snapshot

from benchmarks.live_run import kill, pid_of

pytestmark = pytest.mark.processes

SHORT = ["runner.pace=absolute", "epochs=null", "eval_every_epochs=1000"]


def test_k_sync_counts_cancelled_gradients_and_a_worker_that_is_never_first_is_not_silent(launch: Launcher):
    """Two fast workers with injected delays; the third would need ten seconds and restarts with every update."""
    words = ["strategy=k_sync", "strategy.k=1", "cluster.workers=3", "cluster.gradient_s=[0.01, 0.01, 10.0]"]
    words += ["runner.hang_s=0.5", "runner.leave_s=1", "scenario=exponential_50ms", "max_updates=50"]
    run = launch(*words, *SHORT)
    assert "worker 2 is silent" not in run.said
    assert "worker 2 left" not in run.said
    summary, log = run.summary, run.log
    assert summary["ended_by"] == "max_updates"
    assert summary["time_s"] > 1.0, "otherwise no worker would have been reported as silent"
    assert summary["staleness"] == {"0": 50}
    assert sum(summary["used_by_worker"]) == 50
    assert summary["used_by_worker"][2] == 0
    dropped = log[log.kind.isin(["dropped", "stale"])]
    assert summary["gradients_interrupted"] == len(dropped) == sum(summary["interrupted_by_worker"])
    wasted = dropped[dropped.because != "cancelled in its delay"]
    assert summary["gradients_wasted"] == len(wasted) <= len(dropped)
    assert len(dropped) > 25, "at nearly every update the other worker computes"
    assert len(dropped) <= (log.kind == "interrupted").sum(), "some may be notified of two at once"
    quick = [summary["used_by_worker"][worker] for worker in (0, 1)]
    assert min(quick) > 5, "cancelled work does not make a worker late for the next update"
    again = run.replayed()
    assert again["replay"]["gradients"] == (log.kind == "pushed").sum()


def test_mindflayers_first_round_ends_by_the_timer_that_is_set_at_the_start(launch: Launcher):
    words = ["strategy=mindflayer", "strategy.within=0.2", "cluster.workers=2", "cluster.gradient_s=[0.01, 30.0]"]
    run = launch(*words, *SHORT, "model=softmax_regression", "max_updates=3")
    assert run.log[run.log.kind.isin(["timer", "applied"])].kind.tolist() == ["timer", "applied"] * 3
    assert run.summary["used_by_worker"] == [3, 0]
    run.replayed()


def test_psp_on_two_shards_continues_with_half_of_the_blocks_and_is_replayed_in_every_bit(launch: Launcher):
    """A fifth of the blocks is 0.2 s late: no worker waits for both shards."""
    words = ["strategy=psp", "strategy.c=2", "strategy.b=50", "strategy.tau1=0.004", "cluster.workers=3"]
    words += ["cluster.shards=2", "cluster.gradient_s=[0.02]", "max_updates=40"]
    words += ["model=resnet8", "model.width=4"]  # whose batch-norm buffers are sent, too
    run = launch(*words, *SHORT, "scenario.pull_delay={name: constant, value: 0.2, probability: 0.2}")
    assert "warning" not in run.said
    log = run.log
    assert run.summary["updates"] == 40
    applied = log[log.kind == "applied"]
    assert applied.groupby("shard").version.max().tolist() == [40, 40]
    assert applied.groupby(["shard", "version"]).size().min() >= 2
    pulled = log[(log.kind == "pulled") & (log.shard == 0)]
    versions = [tuple(of_blocks) for of_blocks in pulled.versions]
    assert any(first != second for first, second in versions), "otherwise no worker continued with half of them"
    for worker in range(3):
        mine = [tuple(of_blocks) for of_blocks in pulled[pulled.worker == worker].versions]
        assert mine == sorted(mine)
        assert all(later[1] >= earlier[1] for earlier, later in pairwise(mine))
    assert (log.kind == "timer").any()
    late = log[(log.kind == "delayed") & (log.because == "pull")]
    assert len(late) > 0
    assert not late.duplicated(["worker", "shard", "at"]).any(), "each late block is reported once"
    assert run.replayed()["updates"] == 40


def test_backup_workers_keep_the_fast_workers_rate_with_a_slow_one_and_a_killed_one(launch: Launcher):
    """Worker 0 is three times slower, worker 2 is killed and restarted; N is 2, then 1, then 2 again.

    BSP would wait for a gradient of worker 0 in each of the 40 updates. What is counted is which gradients they waited
    for: how long they take depends on what else the machine does.
    """
    words = ["strategy=backup", "cluster.workers=3", "cluster.shards=2", "cluster.gradient_s=[0.08]"]
    words += ["scenario=slow_worker", "max_updates=40", *SHORT[:2], "eval_every_epochs=0.3"]
    run = launch(*words, during=[(has_snapshot(1), lambda folder: kill(pid_of(folder, "worker", 2)))])
    summary, log = run.summary, run.log
    assert summary["updates"] == 40
    assert summary["restarts"] == 0
    assert set(summary["staleness"]) == {"0"}
    assert summary["used_by_worker"][0] <= 40 / 3, "a worker that is never waited for is in time at most at its rate"
    assert summary["discarded_by_worker"][0] > 8, "nearly all that the slow one did"
    warned = [line for line in run.said.splitlines() if "an update waits for" in line]
    assert len(warned) == 1, "both shards say it, and it is shown once"
    assert warned[0].endswith("an update waits for 1 gradients from now on: worker 2 left")
    told = log[log.kind == "waits_for"]
    for shard in range(2):
        mine = told[told.shard == shard]
        assert mine.value.tolist()[:2] == ([1, 2] if "worker 2 joined" in run.said else [1])
        applied = log[(log.kind == "applied") & (log.shard == shard)]
        sizes = applied.groupby("version").size()
        left = int(mine.version.iloc[0])
        assert set(sizes[:left]) == {2}
    assert run.replayed()["discarded_by_worker"] == summary["discarded_by_worker"]


def test_adasync_raises_k_as_the_loss_falls_reports_it_everywhere_and_is_replayed(launch: Launcher):
    """The replay chooses K from losses that it computes again: K is equal only if they are equal in every bit.

    K goes from 2 to 3 when the loss has fallen to 2^2 / 2.5^2 of the first, which 120 updates are more than enough for.
    """
    words = ["strategy=adasync", "strategy.variant=k_batch_sync", "strategy.k=2", "strategy.interval=0.2"]
    words += ["cluster.workers=3", "cluster.gradient_s=[0.01]", "model=softmax_regression", "optimizer.lr=0.1"]
    run = launch(*words, "max_updates=120", *SHORT[:2], "eval_every_epochs=2")
    summary, log = run.summary, run.log
    told = summary["waits_for"]
    assert told[0] == [0.0, 0, 2]
    counts = [count for _, _, count in told]
    assert counts == sorted(set(counts)), "never lower"
    assert counts[-1] == 3, told
    rows = log[log.kind == "waits_for"]
    assert [list(row) for row in zip(rows["at"], rows.version, rows.value, strict=True)] == told[1:]
    assert all(because.startswith("F_0 ") for because in rows.because)
    for row in run.rows:
        assert row["waits_for"] == [count for _, updates, count in told if updates <= row["updates"]][-1]
    sizes = Counter(log[log.kind == "applied"].version)
    assert sizes[1] == 2
    assert sizes[summary["updates"]] == counts[-1]
    assert (log.kind == "repeated").any()
    assert [list(change) for change in run.replayed()["waits_for"]] == told
