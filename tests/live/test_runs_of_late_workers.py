"""Real processes under strategies that cancel, discard or use timers. A start takes seconds: a run tests much."""

from collections import Counter
from itertools import pairwise

import pytest

from benchmarks.live_run import LiveRun, kill
from syncline.records.events import read_events
from syncline.records.store import read_metrics
from syncline.simulation.replay import replay

pytestmark = pytest.mark.processes


def replayed(run: LiveRun) -> dict:
    """The summary of its replay, made in this process."""
    return replay(run.config, run.config, run.folder, lambda row: None, lambda progress: None)


def log_of(run: LiveRun):
    return read_events(run.folder / "events.arrow").to_pandas()


def test_k_sync_counts_cancelled_gradients_and_a_worker_that_is_never_first_is_not_silent(tmp_path):
    """Two fast workers with injected delays; the third would need ten seconds and restarts with every update."""
    run = LiveRun(
        tmp_path,
        "strategy=k_sync",
        "strategy.k=1",
        "cluster.workers=3",
        "cluster.gradient_s=[0.01, 0.01, 10.0]",
        "runner.pace=absolute",
        "runner.hang_s=1",
        "runner.leave_s=2",
        "scenario=exponential_50ms",
        "max_updates=70",
        "epochs=null",
        "eval_every_epochs=1000",
    )
    said = run.wait()
    assert "worker 2 is silent" not in said
    assert "worker 2 left" not in said
    summary, log = run.summary(), log_of(run)
    assert summary["ended_by"] == "max_updates"
    assert summary["time_s"] > 1.6, "otherwise no worker would have been reported as silent"
    assert summary["staleness"] == {"0": 70}
    assert sum(summary["used_by_worker"]) == 70
    assert summary["used_by_worker"][2] == 0
    dropped = log[log.kind == "dropped"]
    assert summary["gradients_interrupted"] == len(dropped) == sum(summary["interrupted_by_worker"])
    wasted = dropped[dropped.because != "cancelled in its delay"]
    assert summary["gradients_wasted"] == len(wasted) <= len(dropped)
    assert len(dropped) > 35, "at nearly every update the other worker computes"
    assert len(dropped) <= (log.kind == "interrupted").sum(), "some may be notified of two at once"
    quick = [summary["used_by_worker"][worker] for worker in (0, 1)]
    assert min(quick) > 10, "cancelled work does not make a worker late for the next update"
    # An update takes 10 ms and the smaller of two delays of 50 ms; one that waited for the third worker, 10 s.
    assert summary["time_s"] / 70 < 1.0
    again = replayed(run)
    assert again["replay"]["equal"]
    assert again["replay"]["gradients"] == (log.kind == "pushed").sum()
    assert run.has_ended_cleanly()


def test_psp_on_two_shards_continues_with_half_of_the_blocks_and_is_replayed_in_every_bit(tmp_path):
    """A fifth of the blocks is 0.2 s late: no worker waits for both shards."""
    run = LiveRun(
        tmp_path,
        "strategy=psp",
        "strategy.c=2",
        "strategy.b=50",
        "strategy.tau1=0.004",
        "cluster.workers=3",
        "cluster.shards=2",
        "cluster.gradient_s=[0.02]",
        "model=resnet8",  # whose batch-norm buffers are sent, too
        "runner.pace=absolute",
        "scenario.pull_delay={name: constant, value: 0.2, probability: 0.2}",
        "max_updates=80",
        "epochs=null",
        "eval_every_epochs=1000",
    )
    said = run.wait()
    assert "warning" not in said
    summary, log = run.summary(), log_of(run)
    assert summary["updates"] == 80
    applied = log[log.kind == "applied"]
    assert applied.groupby("shard").version.max().tolist() == [80, 80]
    assert applied.groupby(["shard", "version"]).size().min() >= 2
    pulled = log[(log.kind == "pulled") & (log.shard == 0)]
    versions = [tuple(map(int, words.split())) for words in pulled.because]
    assert any(first != second for first, second in versions), "otherwise no worker continued with half of them"
    for worker in range(3):
        mine = [tuple(map(int, words.split())) for words in pulled[pulled.worker == worker].because]
        assert mine == sorted(mine)
        assert all(later[1] >= earlier[1] for earlier, later in pairwise(mine))
    assert (log.kind == "timer").any()
    late = log[(log.kind == "delayed") & (log.because == "pull")]
    assert len(late) > 0
    assert not late.duplicated(["worker", "shard", "at"]).any(), "each late block is reported once"
    again = replayed(run)
    assert again["replay"]["equal"]
    assert again["updates"] == 80
    assert run.has_ended_cleanly()


def test_backup_workers_keep_the_fast_workers_rate_with_a_slow_one_and_a_killed_one(tmp_path):
    """Worker 0 is three times slower, worker 2 is killed and restarted; N is 2, then 1, then 2 again.

    BSP would wait for a gradient of worker 0 in each of the 60 updates. What is counted is which gradients they waited
    for: how long they take depends on what else the machine does.
    """
    run = LiveRun(
        tmp_path,
        "strategy=backup",
        "cluster.workers=3",
        "cluster.shards=2",
        "cluster.gradient_s=[0.1]",
        "scenario=slow_worker",
        "runner.pace=absolute",
        "max_updates=60",
        "epochs=null",
        "eval_every_epochs=0.5",
    )
    run.wait_for_snapshot(1)
    kill(run.pid("worker", 2))
    said = run.wait()
    summary, log = run.summary(), log_of(run)
    assert summary["updates"] == 60
    assert summary["restarts"] == 0
    assert set(summary["staleness"]) == {"0"}
    assert summary["used_by_worker"][0] <= 60 / 3, "a worker that is never waited for is in time at most at its rate"
    assert summary["discarded_by_worker"][0] > 12, "nearly all that the slow one did"
    warned = [line for line in said.splitlines() if "an update waits for" in line]
    assert len(warned) == 1, "both shards say it, and it is shown once"
    assert warned[0].endswith("an update waits for 1 gradients from now on: worker 2 left")
    told = log[log.kind == "waits_for"]
    for shard in range(2):
        mine = told[told.shard == shard]
        assert mine.value.tolist()[:2] == ([1, 2] if "worker 2 joined" in said else [1])
        applied = log[(log.kind == "applied") & (log.shard == shard)]
        sizes = applied.groupby("version").size()
        left = int(mine.version.iloc[0])
        assert set(sizes[:left]) == {2}
    replay_of = replayed(run)
    assert replay_of["replay"]["equal"]
    assert replay_of["discarded_by_worker"] == summary["discarded_by_worker"]
    assert run.has_ended_cleanly()


def test_adasync_raises_k_as_the_loss_falls_reports_it_everywhere_and_is_replayed(tmp_path):
    """The replay chooses K from losses that it computes again: K is equal only if they are equal in every bit.

    K goes from 2 to 3 when the loss has fallen by a third (2.5^2 / 2^2), which 300 updates are more than enough for.
    """
    run = LiveRun(
        tmp_path,
        "strategy=adasync",
        "strategy.variant=k_batch_sync",
        "strategy.k=2",
        "strategy.interval=0.3",
        "cluster.workers=3",
        "cluster.gradient_s=[0.01]",
        "runner.pace=absolute",
        "model=resnet8",
        "max_updates=300",
        "epochs=null",
        "eval_every_epochs=5",
    )
    run.wait()
    summary, log = run.summary(), log_of(run)
    told = summary["waits_for"]
    assert told[0] == [0.0, 0, 2]
    counts = [count for _, _, count in told]
    assert counts == sorted(set(counts)), "never lower"
    assert counts[-1] == 3, told
    rows = log[log.kind == "waits_for"]
    assert [list(row) for row in zip(rows["at"], rows.version, rows.value, strict=True)] == told[1:]
    assert all(because.startswith("F_0 ") for because in rows.because)
    for row in read_metrics(run.folder):
        assert row["waits_for"] == [count for _, updates, count in told if updates <= row["updates"]][-1]
    sizes = Counter(log[log.kind == "applied"].version)
    assert sizes[1] == 2
    assert sizes[summary["updates"]] == counts[-1]
    assert (log.kind == "repeated").any()
    again = replayed(run)
    assert again["replay"]["equal"]
    assert [list(change) for change in again["waits_for"]] == told
    assert run.has_ended_cleanly()
