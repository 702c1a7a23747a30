"""Collectives of real processes against the same run in virtual time. A start takes seconds, so there are few."""

import math
import signal
import time
from fractions import Fraction

import pytest
import torch

from benchmarks.live_run import LiveRun, kill, resumed_after_a_stop
from syncline.config import RunConfig
from syncline.live.member_control import StopConsensus
from syncline.records.events import read_events
from syncline.records.snapshots import read_state
from syncline.records.store import UNFINISHED, read_metrics, status
from syncline.simulation.replicas import Replicas
from syncline.simulation.run import build_replicas, simulate
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ds_sync import DsSyncOptions


def simulated(config: RunConfig) -> Replicas:
    """All replicas after the run."""
    torch.set_num_threads(1)
    replicas = build_replicas(config)
    samples = config.batch_size * config.cluster.workers
    for step in range(config.max_updates):
        turn = config.strategy.turn(step, config.steps_an_epoch(replicas.num_train))
        groups = config.strategy.groups(turn, config.cluster.workers)
        replicas.step(step, step % 2, groups, replicas.rate(step * samples, step))
    return replicas


def largest_difference(run: LiveRun) -> float:
    """Of any weight or buffer of any replica, from the same run in virtual time."""
    replicas = simulated(run.config)
    assert len(run.summary()["parameters"]) == len(replicas.weights)
    largest = 0.0
    for name, weights, buffers in zip(run.summary()["parameters"], replicas.weights, replicas.buffers, strict=True):
        state, _ = read_state(run.folder / name)
        largest = max(largest, (state["weights"] - weights).abs().max().item())
        if buffers.numel():
            largest = max(largest, ((state["buffers"] - buffers) / (1 + buffers.abs())).abs().max().item())
    return largest


def lead_by_counting(log) -> int:
    counts, lead = [0] * (int(log.worker.max()) + 1), 0
    for worker in log[log.kind == "pushed"].sort_values("at", kind="stable").worker:
        counts[worker] += 1
        lead = max(lead, max(counts) - min(counts))
    return lead


@pytest.mark.processes
@pytest.mark.parametrize("average", ["after_step", pytest.param("before_forward", marks=pytest.mark.core)])
def test_ds_sync_on_a_grid_of_four_equals_virtual_time(tmp_path, average):
    """after_step with an all-reduce of each bucket, before_forward with one of each tensor; and batch norm."""
    impl = "overlap" if average == "after_step" else "naive"
    words = [f"strategy.average={average}", f"strategy.impl={impl}", "strategy.bucket_mb=0.02", "cluster.workers=4"]
    words += ["epochs=null", "optimizer.momentum=0.9"]
    words += ["model=resnet8", "max_updates=25", "batch_size=16", "eval_every_epochs=0.5", "optimizer.lr=0.02"]
    words += ["scenario.compute_delay={name: exponential, mean: 0.01}", "runner.checkpoint_every_epochs=0.5"]
    run = LiveRun(tmp_path, "strategy=ds_sync", *words)
    run.wait()
    assert largest_difference(run) <= 1e-6
    assert run.has_ended_cleanly()
    assert {path.name for path in run.folder.iterdir()} == {
        *("config.json", "environment.json", "events.arrow", "log", "metrics.jsonl", "summary.json"),
        *(f"parameters-{rank}.safetensors" for rank in range(4)),
    }
    # The curve is that of virtual time, too: consensus, divergence and the mean loss of all members.
    expected: list[dict] = []
    simulate(run.config, expected.append, lambda progress: None)
    rows = read_metrics(run.folder)
    assert [row["updates"] for row in rows] == [row["updates"] for row in expected]
    for mine, other in zip(rows, expected, strict=True):
        for key in ("divergence", "loss", "train_loss", "learning_rate"):
            assert mine[key] == (other[key] and pytest.approx(other[key], rel=1e-3)), key
    summary = run.summary()
    assert summary["divergence"] == rows[-1]["divergence"] > 0
    assert summary["used_by_worker"] == [25] * 4
    assert summary["staleness"] == {"0": 100}
    assert all(0 < busy <= 1 for busy in summary["busy_by_worker"])
    log = read_events(run.folder / "events.arrow").to_pandas()
    assert summary["max_lead"] == lead_by_counting(log)
    assert sorted(log[log.kind == "applied"].push) == list(range(100))
    granted = log[log.kind == "granted"]
    assert set(granted.because) == {"all-reduce"}
    assert len(granted) == (100 if average == "after_step" else 96)
    for step in range(25):  # no member continues before its group has computed
        for group in run.config.strategy.groups(step, 4):
            of_group = log[log.worker.isin(group)]
            if average == "after_step":
                computed = of_group[(of_group.kind == "computed") & (of_group.version == step)]["at"].max()
                assert (of_group[(of_group.kind == "granted") & (of_group.version == step + 1)]["at"] >= computed).all()
            elif step:
                computed = of_group[(of_group.kind == "computed") & (of_group.version == step - 1)]["at"].max()
                assert (of_group[(of_group.kind == "granted") & (of_group.version == step)]["at"] >= computed).all()


@pytest.mark.processes
def test_ds_sync_on_a_grid_of_two_rows_and_three_columns(tmp_path):
    """With five steps an epoch, each of which begins with the rows; the first replica is evaluated.

    Sums of three may differ in their last bit, which a rectifier near zero would amplify; the network has none.
    """
    words = ["cluster.workers=6", "strategy.group_size=3", "max_updates=15", "epochs=null", "batch_size=8"]
    words += ["model=softmax_regression", "strategy.parity=epoch", "dataset.train_size=240", "strategy.evaluate=first"]
    run = LiveRun(tmp_path, "strategy=ds_sync", *words)
    run.wait()
    assert largest_difference(run) <= 1e-6
    expected: list[dict] = []
    simulate(run.config, expected.append, lambda progress: None)
    for mine, other in zip(read_metrics(run.folder), expected, strict=True):
        for key in ("updates", "loss", "divergence"):
            assert mine[key] == pytest.approx(other[key], rel=1e-3, abs=1e-6), key


@pytest.mark.processes
@pytest.mark.parametrize("impl", ["naive", "overlap"])
def test_bsp_with_an_all_reduce_of_each_tensor_or_bucket_equals_virtual_time(impl, tmp_path):
    """Sums of two do not depend on their order, so several all-reduces give the same bits."""
    words = ["strategy.topology=allreduce", f"strategy.impl={impl}", "strategy.bucket_mb=0.02", "cluster.workers=2"]
    run = LiveRun(tmp_path, "strategy=bsp", *words, "model=resnet8", "max_updates=10", "batch_size=8", "epochs=null")
    run.wait()
    assert run.summary()["parameters"] == ["parameters-0.safetensors"]
    assert largest_difference(run) == 0


@pytest.mark.processes
def test_buckets_are_sent_as_late_as_slow_gradients_have_them(tmp_path):
    """Stretched to 0.1 s and 0.2 s, with a delay before the first: an update takes as long as its slowest gradient."""
    words = ["strategy=bsp", "strategy.topology=allreduce", "strategy.impl=overlap", "strategy.bucket_mb=0.02"]
    words += ["cluster.workers=2", "cluster.gradient_s=[0.1,0.2]", "runner.pace=absolute", "max_updates=20"]
    words += ["scenario.compute_delay={name: constant, value: 0.15}", "scenario.delayed_workers=[0]", "epochs=null"]
    run = LiveRun(tmp_path, *words)
    run.wait()
    summary = run.summary()
    seconds = summary["time_s"] / 20
    slow, quick = (busy * seconds for busy in summary["busy_by_worker"])
    assert slow > 0.24
    assert 0.19 < quick < slow
    assert 0.25 <= seconds < slow + quick, "what they would take one after another"
    log = read_events(run.folder / "events.arrow").to_pandas()
    delayed = log[(log.kind == "delayed") & (log.worker == 0)].groupby("because").value.sum()
    assert delayed["compute"] == pytest.approx(20 * 0.15)
    assert 0 < delayed["slow"] < 20 * 0.1


@pytest.mark.processes
def test_members_that_share_one_order_of_the_samples_equal_virtual_time(tmp_path):
    words = ["strategy.topology=allreduce", "dataset.sharing=shared", "model=softmax_regression", "cluster.workers=2"]
    run = LiveRun(tmp_path, "strategy=bsp", *words, "max_updates=10", "batch_size=8", "epochs=null")
    run.wait()
    assert largest_difference(run) == 0


@pytest.mark.processes
@pytest.mark.parametrize(
    "sent",
    [
        ["strategy=ds_sync", "compress=topk"],
        ["strategy=bsp", "strategy.topology=allreduce", "compress=topk", "local.optimizer={name: adamw, lr: 0.002}"],
    ],
    ids=" ".join,
)
def test_a_collective_stopped_and_resumed_and_then_killed_ends_as_if_uninterrupted(sent, tmp_path):
    """Sums of two do not depend on their order, so all bits agree, also with the run in virtual time."""
    words = ["cluster.workers=4", "max_updates=200", "epochs=null", "batch_size=16"]
    words += ["cluster.gradient_s=[0.03]", "runner.pace=absolute", "runner.checkpoint_every_epochs=2", *sent]
    run = LiveRun(tmp_path, *words)
    run.wait_for_snapshot(1)
    run.process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    assert "interrupted" in run.wait(expected=130)
    assert time.monotonic() - begun < 5
    assert run.has_ended_cleanly()
    assert status(run.folder) == UNFINISHED
    left = [read_state(path)[1]["totals"] for path in (run.folder / "checkpoint").iterdir()]
    assert len(left) == 4
    assert len({totals["updates"] for totals in left}) == 1  # all after the same step
    again = LiveRun(tmp_path, *words)
    again.wait_for_snapshot(7)
    kill(again.pid("worker", 2))
    assert "restarts from its last checkpoint" in again.wait()
    assert again.summary()["restarts"] == 2
    assert largest_difference(again) == 0
    log = read_events(again.folder / "events.arrow").to_pandas()
    assert log[log.kind == "applied"].groupby("version").size().tolist() == [4] * 200
    assert sorted(log[log.kind == "pushed"].push) == list(range(800))
    for worker in range(4):
        assert (log[log.worker == worker]["at"].diff().dropna() >= 0).all()
    updates = [row["updates"] for row in read_metrics(again.folder)]
    assert updates == sorted(set(updates))
    assert again.has_ended_cleanly()


@pytest.mark.processes
def test_a_step_that_a_stop_drops_leaves_no_trace_in_the_statistics_of_batch_norm(tmp_path):
    """Its mini-batches are used again when the run is resumed."""
    words = ["strategy=bsp", "strategy.topology=allreduce", "model=resnet8", "cluster.workers=2", "batch_size=8"]
    words += ["max_updates=40", "epochs=null", "cluster.gradient_s=[0.1]", "runner.pace=absolute"]
    again = resumed_after_a_stop(tmp_path, [*words, "eval_every_epochs=0.1"], snapshot=1)
    assert again.summary()["restarts"] == 1
    assert largest_difference(again) == 0


@pytest.mark.processes
def test_a_target_ends_all_members_at_the_same_step(tmp_path):
    words = ["cluster.workers=4", "cluster.gradient_s=[0.02]", "runner.pace=absolute", "epochs=1000", "batch_size=16"]
    words += ["runner.evaluate=during", "target.value=0.5", "eval_every_epochs=0.5", "optimizer.lr=0.05"]
    run = LiveRun(tmp_path, "strategy=ds_sync", *words)
    run.wait()
    summary = run.summary()
    assert summary["ended_by"] == "target"
    log = read_events(run.folder / "events.arrow").to_pandas()
    applied = log[log.kind == "applied"].groupby("worker").version.max()
    assert applied.tolist() == [summary["updates"]] * 4
    states = [read_state(run.folder / name)[1]["updates"] for name in summary["parameters"]]
    assert states == [summary["updates"]] * 4


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize(
    ("strategy", "num_members"),
    [(DsSyncOptions(), n) for n in (4, 6, 12, 25)] + [(DsSyncOptions(parity="epoch"), 6), (BspOptions(), 3)],
)
def test_all_members_end_with_the_same_step(strategy, num_members, first):
    """Without processes: the sums of the exchanges, from an even and from an odd step on."""
    exchanges = strategy.lead_bound
    consensuses = [StopConsensus(exchanges) for _ in range(num_members)]
    last = []
    for step in range(first, first + 5):
        if step > first:
            consensuses[0].propose("target")
            consensuses[0].propose("stop")  # too late
        for group in strategy.groups(strategy.turn(step, Fraction(3)), num_members):
            encoded = [consensuses[member].encode() for member in group]
            sums = [math.fsum(column) for column in zip(*encoded, strict=True)]
            last += [(step, member) for member in group if consensuses[member].decode(sums)]
        if last:
            break
    assert sorted(last) == [(first + exchanges, member) for member in range(num_members)]
    assert {consensus.reason for consensus in consensuses} == {"target"}
