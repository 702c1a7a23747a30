"""Real processes, started as a user starts them. A start takes seconds, so a run serves several tests."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from certificates import over_tls

from benchmarks.live_run import ROOT, LiveRun, check_mini_batches, is_alive, kill, resumed_after_a_stop
from benchmarks.simulator import NullObserver
from runners.live import can_resume, run_live
from runners.observer import LiveObserver
from runners.one import run_one
from runners.stop import StopRequested
from syncline.__main__ import main
from syncline.config import RunConfig, compose, from_plain
from syncline.progress import Limits
from syncline.records.events import read_events
from syncline.records.snapshots import read_state
from syncline.records.store import UNFINISHED, read_config, read_metrics, status, want_workers
from syncline.records.writer import RecordWriter
from syncline.simulation.engine import Simulation
from syncline.simulation.run import build_learning
from syncline.timing.cluster import Cluster, DelayInjector

pytestmark = pytest.mark.processes


def simulated(config: RunConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Final weights and buffers of the same run in virtual time."""
    torch.set_num_threads(1)
    learning = build_learning(config)
    Simulation(
        strategies=[config.strategy.start(config.cluster.workers) for _ in learning.shards],
        cluster=Cluster(config.cluster, config.scenario, config.seed),
        block_bytes=[0] * len(learning.shards),
        batch_size=config.batch_size,
        limits=Limits(updates=config.max_updates),
        observer=NullObserver(),
        learning=(learning.shards, learning.learners),
    ).run()
    return torch.cat([shard.current.weights for shard in learning.shards]), learning.shards[0].current.buffers


def final(folder: Path, num_shards: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Final weights and buffers of a run of real processes."""
    states = [read_state(folder / f"parameters-{shard}.safetensors")[0] for shard in range(num_shards)]
    return torch.cat([state["weights"] for state in states]), states[0]["buffers"]


def replayed(run: LiveRun) -> dict:
    """The summary of its replay."""
    words = ["runner=replay", f"from={run.folder.name}", f"results={run.folder.parent}"]
    subprocess.run([sys.executable, "run.py", *words], cwd=ROOT, check=True, capture_output=True)
    summaries = [json.loads(path.read_text()) for path in run.folder.parent.glob("*/summary.json")]
    return next(summary["replay"] for summary in summaries if summary.get("replay", {}).get("of") == run.folder.name)


@pytest.fixture(scope="module")
def dssp(tmp_path_factory):
    """Three unequal workers, one shard, batch norm, and a delay of every kind."""
    run = LiveRun(
        tmp_path_factory.mktemp("dssp"),
        "strategy=dssp",
        "model=resnet8",
        "cluster.workers=3",
        "scenario=slow_worker",
        "scenario.compute_delay={name: exponential, mean: 0.004}",
        "scenario.push_delay={name: constant, value: 0.003}",
        "scenario.pull_delay={name: constant, value: 0.002, probability: 0.3}",
        "max_updates=150",
        "eval_every_epochs=1",
    )
    run.said = run.wait()
    return run


@pytest.mark.core
@pytest.mark.xdist_group("live_run")
def test_a_live_run_leaves_the_same_record_as_every_run(dssp):
    summary = dssp.summary()
    assert summary["engine"] == "live"
    assert summary["time_kind"] == "wall"
    assert summary["status"] == "finished"
    assert summary["ended_by"] == "max_updates"
    assert summary["updates"] == summary["gradients_used"] == 150
    assert summary["restarts"] == 0, dssp.said
    assert summary["best"]["accuracy"]["value"] > 0.3  # ten classes
    rows = read_metrics(dssp.folder)
    assert [row["updates"] for row in rows] == sorted({row["updates"] for row in rows})
    assert rows[0]["updates"] == 0
    assert rows[-1]["updates"] == 150
    assert dssp.has_ended_cleanly()
    names = {path.name for path in dssp.folder.iterdir()}
    assert names == {
        *("config.json", "environment.json", "events.arrow", "log", "metrics.jsonl", "parameters-0.safetensors"),
        "summary.json",
    }
    assert dssp.config.identity in dssp.said


@pytest.mark.core
@pytest.mark.xdist_group("live_run")
def test_a_finished_live_run_is_shown_not_repeated(dssp):
    again = LiveRun(dssp.folder.parent, *dssp.words[2:])
    assert "finished before" in again.wait()


@pytest.mark.core
@pytest.mark.xdist_group("live_run")
def test_the_replay_of_a_live_run_is_equal_in_every_bit(dssp):
    assert replayed(dssp) == {"of": dssp.folder.name, "gradients": 150, "equal": True, "largest_difference": 0.0}


@pytest.mark.core
@pytest.mark.xdist_group("live_run")
def test_injected_delays_are_those_of_the_simulator_and_are_kept(dssp):
    log = read_events(dssp.folder / "events.arrow").to_pandas()
    config = dssp.config
    for worker in range(3):
        mine = log[log.worker == worker]
        num_pushes = int((mine.kind == "pushed").sum())
        pace = DelayInjector(config.cluster, config.scenario, config.seed, worker, False, 0)
        drawn = [(pace.compute(0.0)[1], pace.push(0), pace.pull(0)) for _ in range(num_pushes)]
        delayed = mine[mine.kind == "delayed"]
        told = {because: delayed[delayed.because == because] for because in ("compute", "push", "pull")}
        assert told["compute"].value.tolist() == [compute for compute, _, _ in drawn]
        assert told["push"].value.tolist() == [push for _, push, _ in drawn]
        assert sorted(told["pull"].value) == sorted(pull for _, _, pull in drawn if pull)
        # Nothing is pushed before its delays are over. (All processes share one clock: one host.)
        computed = mine[mine.kind == "computed"]["at"].to_numpy()
        assert (mine[mine.kind == "pushed"]["at"].to_numpy() - computed >= 0.003 - 1e-3).all()
        spent = computed - mine[mine.kind == "started"]["at"].to_numpy()
        assert (spent >= told["compute"].value.to_numpy()).all()
    slow = log[(log.kind == "delayed") & (log.because == "slow")]
    assert (slow.groupby("worker").value.mean()[0]) > 0  # worker 0 computes three times slower than the machine


@pytest.mark.core
@pytest.mark.xdist_group("live_run")
def test_the_log_of_a_live_run_obeys_the_strategy(dssp):
    """Replay checks every answer; this checks what the log alone shows."""
    log = read_events(dssp.folder / "events.arrow").to_pandas()
    assert (log["at"].diff().dropna() >= 0).all()
    applied = log[log.kind == "applied"]
    assert applied.version.tolist() == list(range(1, 151))
    pushed = log[log.kind == "pushed"].set_index("push")
    stale = applied.version.to_numpy() - 1 - pushed.loc[applied.push].version.to_numpy()
    assert applied.value.tolist() == stale.tolist()
    histogram = {str(value): int(count) for value, count in applied.value.astype(int).value_counts().items()}
    assert histogram == dssp.summary()["staleness"]


@pytest.mark.parametrize("words", [[], ["push_bucket_mb=0.02", "cluster.shards=2"]], ids=["whole", "in parts"])
def test_asp_with_one_worker_equals_the_simulator_in_every_bit(words, tmp_path):
    """Pushed as a whole to one shard, or to two in parts during the backward pass."""
    run = LiveRun(tmp_path, "strategy=asp", "model=resnet8", "cluster.workers=1", "max_updates=40", *words)
    run.wait()
    weights, buffers = final(run.folder, run.config.cluster.shards)
    expected, expected_buffers = simulated(run.config)
    assert torch.equal(weights, expected)
    assert torch.equal(buffers, expected_buffers)


def test_bsp_over_tcp_and_tls_and_two_shards_equals_the_simulator(tmp_path):
    run = LiveRun(
        tmp_path,
        "strategy=bsp",
        "model=resnet8",
        "cluster.workers=2",
        "cluster.shards=2",
        "max_updates=20",
        "runner.transport=tcp",
        *over_tls(tmp_path),
    )
    run.wait()
    weights, buffers = final(run.folder, 2)
    expected, expected_buffers = simulated(run.config)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(buffers, expected_buffers, rtol=1e-5, atol=1e-6)


def test_ssp_continues_without_a_killed_and_a_hung_worker_and_readmits_them(tmp_path):
    run = LiveRun(
        tmp_path,
        "strategy=ssp",
        "strategy.staleness=8",
        "cluster.workers=3",
        "cluster.gradient_s=[0.02]",
        "runner.pace=absolute",
        "runner.hang_s=0.7",
        "runner.leave_s=1.5",
        "max_time_s=25",
        "epochs=null",
    )
    run.wait_for_snapshot(1)
    kill(run.pid("worker", 2))
    hung = run.pid("worker", 1)
    os.kill(hung, signal.SIGSTOP)
    time.sleep(4)
    os.kill(hung, signal.SIGCONT)  # it finds its connection closed, and a new process replaces it
    said = run.wait()
    assert "worker 2 left: the connection was closed" in said
    assert "worker 2 joined" in said
    assert "worker 1 is silent for" in said  # which worker, how long, and its last event
    assert "last event: granted at" in said
    assert "worker 1 left: silent for" in said
    assert "worker 1 joined" in said
    assert run.has_ended_cleanly()
    log = read_events(run.folder / "events.arrow").to_pandas()
    for worker in (1, 2):
        mine = log[log.worker == worker]
        left, joined = (mine[mine.kind == kind]["at"].iloc[0] for kind in ("left", "joined"))
        others = log[(log.kind == "applied") & (log.worker == 0) & (log["at"] > left) & (log["at"] < joined)]
        assert len(others) > 0  # no other worker waited for it
        assert (mine[mine.kind == "applied"]["at"] > joined).any()
        pushed = mine[mine.kind == "pushed"].value.astype(int).tolist()
        assert pushed == list(range(len(pushed)))  # no sample is lost or seen twice
    assert run.summary()["max_lead"] <= 9
    assert replayed(run)["equal"]


def test_after_the_kill_of_a_shard_the_run_restarts_from_its_checkpoint(tmp_path):
    run = LiveRun(
        tmp_path,
        "strategy=asp",
        "cluster.workers=2",
        "cluster.gradient_s=[0.01, 0.02]",
        "runner.pace=absolute",
        "runner.checkpoint_every_epochs=0.5",
        "runner.evaluate=during",
        "max_updates=500",
        "epochs=null",
    )
    run.wait_for_snapshot(1)
    workers = [run.pid("worker", worker) for worker in range(2)]
    kill(run.pid("shard", 0))
    ends = time.monotonic() + 1  # for the processes to notice
    while any(map(is_alive, workers)) and time.monotonic() < ends:
        time.sleep(0.01)
    assert not any(map(is_alive, workers))
    said = run.wait()
    assert "the run restarts from its last checkpoint" in said
    summary = run.summary()
    assert (summary["updates"], summary["restarts"]) == (500, 1)
    rows = read_metrics(run.folder)
    assert [row["updates"] for row in rows] == sorted(
        {row["updates"] for row in rows}
    )  # none twice, none from before the restart
    assert replayed(run)["equal"]
    assert run.has_ended_cleanly()


def test_a_stopped_run_ends_within_5_s_and_resumes_where_it_was(tmp_path):
    """BSP of two workers: the sum of two gradients does not depend on their order, so all bits agree.

    Ctrl-C reaches the launcher alone; what a batch system sends reaches every process.
    """
    words = ["strategy=bsp", "cluster.workers=2", "max_updates=160", "epochs=null"]
    words += ["cluster.gradient_s=[0.03]", "runner.pace=absolute", "runner.checkpoint_every_epochs=100"]
    signals = [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)]
    for number, (stop, code) in enumerate(signals, start=1):
        run = LiveRun(tmp_path, *words)
        run.wait_for_snapshot(2 * number - 1)
        send = run.process.send_signal if stop == signal.SIGINT else run.signal_all
        send(stop)
        begun = time.monotonic()
        said = run.wait(expected=code)
        assert time.monotonic() - begun < 5
        assert f"interrupted; {run.folder.name} checkpointed; rerun this command to resume: " in said
        assert run.has_ended_cleanly()
        assert status(run.folder) == UNFINISHED
        assert from_plain(read_config(run.folder)) == run.config
    again = LiveRun(tmp_path, *words)
    again.wait()
    assert again.summary()["restarts"] == 3
    weights, _ = final(again.folder)
    assert torch.equal(weights, simulated(again.config)[0])
    log = read_events(again.folder / "events.arrow").to_pandas()
    assert log[log.kind == "applied"].groupby("version").size().tolist() == [2] * 160
    assert "resumed" in set(log.because)


def test_a_run_can_be_resumed_until_its_summary_is_written(tmp_path, capsys):
    words = ["runner=local", "runner.checkpoint_every_epochs=0.1", "runner.initial_workers=1", "cluster.workers=2"]
    config, _ = compose([*words, "strategy=asp", "model=softmax_regression", "epochs=1"])
    with RecordWriter(tmp_path / config.identity, config.as_dict(), with_events=False) as record:
        want_workers(record.folder, 2)
        summary = run_live(config, record, lambda row: None, lambda progress: None)
        before = {path.name for path in record.folder.iterdir()}
        assert can_resume(config, record.folder)
        without_events = replace(config, runner=replace(config.live, events=False))
        assert not can_resume(without_events, record.folder), "its log would be of a part of the run"
        assert "made with runner.events=true; the run starts from the beginning" in capsys.readouterr().err
        record.finish(summary)
    left = {path.name for path in record.folder.iterdir()} - {"summary.json"}
    assert before - left == {"checkpoint", "snapshots", "events-0.arrow", "workers", "ended.json"}


def test_a_stop_while_the_last_snapshots_are_evaluated_repeats_no_training(tmp_path, monkeypatch):
    """There is no checkpoint: the run is shorter than one is due."""

    def finish(*_: object) -> str:
        raise StopRequested(signal.SIGUSR1)

    config, _ = compose(["runner=local", "cluster.workers=2", "strategy=asp", "model=softmax_regression", "epochs=1"])
    folder = tmp_path / config.identity
    with monkeypatch.context() as patch:
        patch.setattr(LiveObserver, "finish", finish)
        with pytest.raises(StopRequested) as stop:
            run_one(config, tmp_path, lambda progress: None)
    assert stop.value.kept == f"{config.identity} trained, and not evaluated yet"
    processes, parameters = folder / "log" / "processes.jsonl", folder / "parameters-0.safetensors"
    before = processes.read_text(), parameters.stat().st_mtime_ns
    summary = run_one(config, tmp_path, lambda progress: None)
    assert (processes.read_text(), parameters.stat().st_mtime_ns) == before, "no process was started"
    assert (summary["ended_by"], summary["restarts"]) == ("epochs", 1)
    assert read_metrics(folder)[-1]["updates"] == summary["updates"] > 0
    assert read_events(folder / "events.arrow").num_rows > 0


@pytest.mark.parametrize(
    "words",
    [["strategy=bsp"], ["strategy=bsp", "compress=topk"], ["strategy=ssp", "strategy.staleness=0"]],
    ids=" ".join,
)
def test_a_push_that_one_of_two_shards_had_received_when_the_run_was_stopped_is_made_for_the_other(words, tmp_path):
    """Of this seed's pushes the first ones alone are delayed, each worker's to another shard.

    So each shard holds one worker and waits for the other.
    """
    words = [*words, "cluster.workers=2", "cluster.shards=2", "max_updates=3", "epochs=null", "model=lenet"]
    words += ["seed=441", "scenario.push_delay={name: constant, value: 5, probability: 0.25}", "optimizer.momentum=0"]
    again = resumed_after_a_stop(tmp_path, words, snapshot=0, after_s=2.0)
    log = read_events(again.folder / "events.arrow").to_pandas()
    for shard in (0, 1):
        of_shard = log[log.shard == shard]
        check_mini_batches(of_shard, 2)
        assert of_shard[(of_shard.kind == "held") & (of_shard.because == "resumed")].worker.tolist() == [shard]
    assert replayed(again)["equal"]
    if again.config.strategy.name == "bsp":
        weights, _ = final(again.folder, num_shards=2)
        assert torch.equal(weights, simulated(again.config)[0])
    assert again.has_ended_cleanly()


def test_a_worker_of_psp_that_had_pushed_when_the_run_was_stopped_waits_for_the_other_once_it_is_resumed(tmp_path):
    """Worker 0 is at its next gradient, which may not take the place of the one that the slower worker computes."""
    words = ["strategy=psp", "cluster.workers=2", "cluster.gradient_s=[0.02,1.5]", "runner.pace=absolute"]
    words += ["model=softmax_regression", "max_updates=3", "epochs=null", "eval_every_epochs=0.03"]
    again = resumed_after_a_stop(tmp_path, words, snapshot=1, after_s=0.7)
    summary = again.summary()
    assert (summary["gradients_used"], summary["gradients_discarded"]) == (6, 0)
    log = read_events(again.folder / "events.arrow").to_pandas()
    assert log[log.because == "resumed"].kind.tolist() == ["held", "granted"]
    assert replayed(again)["equal"]


KEEPS_MORE = ["cluster.shards=2", "compress=topk", "local.optimizer={name: adamw, lr: 0.002}"]  # than a shard has


@pytest.mark.parametrize(
    ("words", "who"),
    [(["strategy=asp"], "shard"), (["strategy=ds_sync"], "member"), (["strategy=asp", *KEEPS_MORE], "worker")],
    ids=["shard", "member", "worker"],
)
def test_a_full_disk_is_one_line(words, who, tmp_path):
    """A snapshot may be written, but no checkpoint, which has the momentum, too, or no worker's part of one."""
    words = [*words, "cluster.workers=4", "max_updates=400", "epochs=null", "batch_size=8", "model=lenet"]
    words += ["runner.checkpoint_every_epochs=0.2"]
    run = LiveRun(tmp_path, *words, on=["prlimit", "--fsize=150000"])
    said = run.wait(expected=1)
    assert "Traceback" not in said
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    where = "cannot write the record .*: File too large; results=<folder> puts it elsewhere"
    assert re.fullmatch(rf"error: {who} \d: {where}", line)
    assert run.has_ended_cleanly()


def test_after_the_kill_of_a_member_a_collective_restarts_and_ends_as_the_server_does(tmp_path):
    words = ["strategy=bsp", "cluster.workers=2", "max_updates=100", "epochs=null", "cluster.gradient_s=[0.03]"]
    run = LiveRun(
        tmp_path, *words, "strategy.topology=allreduce", "runner.pace=absolute", "runner.checkpoint_every_epochs=0.5"
    )
    run.wait_for_snapshot(1)
    kill(run.pid("worker", 1))
    said = run.wait()
    assert "restarts from its last checkpoint" in said
    server, _ = compose(words)
    torch.testing.assert_close(final(run.folder)[0], simulated(server)[0], rtol=0, atol=1e-5)
    log = read_events(run.folder / "events.arrow").to_pandas()
    assert log[log.kind == "applied"].groupby("version").size().tolist() == [2] * 100
    assert run.has_ended_cleanly()


def test_a_hung_member_of_a_collective_is_named_and_the_run_restarts_without_it(tmp_path):
    run = LiveRun(
        tmp_path,
        "strategy=bsp",
        "strategy.topology=allreduce",
        "cluster.workers=2",
        "cluster.gradient_s=[0.02]",
        "runner.pace=absolute",
        "runner.hang_s=1",
        "runner.leave_s=4",
        "max_updates=150",
        "epochs=null",
    )
    run.wait_for_snapshot(1)
    os.kill(run.pid("worker", 1), signal.SIGSTOP)
    said = run.wait()
    assert "the collective is silent for 1." in said
    assert "worker 0: in the all-reduce of step" in said
    assert "worker 1: does not answer" in said
    assert "the run restarts from its last checkpoint" in said
    assert run.summary()["updates"] == 150
    assert run.has_ended_cleanly()


def test_a_target_ends_a_run_early_and_is_evaluated_during_it(tmp_path):
    words = ["strategy=asp", "cluster.workers=2", "cluster.gradient_s=[0.01]", "runner.pace=absolute", "epochs=1000"]
    run = LiveRun(tmp_path, *words, "runner.evaluate=during", "target.value=0.8", "eval_every_epochs=0.5")
    run.wait()
    summary = run.summary()
    assert summary["ended_by"] == "target"
    reached = next(row for row in read_metrics(run.folder) if row["accuracy"] >= 0.8)
    assert summary["target"]["time_s"] == reached["time_s"] <= summary["time_s"]


def test_the_user_sees_the_first_error_of_a_process(tmp_path):
    """Worker 1's loss raises at its fifth gradient, by Python's own start-up hook, in no file of the user's."""
    loss = (
        "def loss(*args, **kwargs):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 5 and open('/proc/self/comm').read() == 'worker-1\\n':\n"
        "        raise RuntimeError('the fifth loss is broken')\n"
        "    return real(*args, **kwargs)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'syncline.live.supervisor' in sys.orig_argv:\n"
        "    import torch\n"
        "    real, calls = torch.nn.functional.cross_entropy, []\n"
        f"    exec(compile({loss!r}, '<loss>', 'exec'))\n"
        "    torch.nn.functional.cross_entropy = loss\n"
    )
    run = LiveRun(tmp_path / "results", "strategy=asp", "cluster.workers=2", PYTHONPATH=str(tmp_path))
    said = run.wait(expected=1)
    assert "error: worker 1: RuntimeError: the fifth loss is broken" in said
    assert "in loss" in said  # the traceback of that process
    assert run.has_ended_cleanly()
    assert status(run.folder) == "failed"


def test_bad_input_of_a_worker_is_one_line(tmp_path):
    run = LiveRun(tmp_path / "results", "dataset=cifar10", f"dataset.root={tmp_path}", "cluster.workers=1")
    said = run.wait(expected=1)
    assert "error: worker 0: " in said
    assert "cifar10" in said
    assert "Traceback" not in said


def test_kill_of_the_launcher_leaves_no_process(tmp_path):
    run = LiveRun(tmp_path, "strategy=asp", "cluster.workers=2", "max_time_s=60", "epochs=null")
    run.wait_for_snapshot(1)
    stopped = run.pid("worker", 1)
    os.kill(stopped, signal.SIGSTOP)
    run.kill_launcher()
    ends = time.monotonic() + 5
    while run.left_over() and time.monotonic() < ends:
        time.sleep(0.05)
    assert run.left_over() == []


def test_an_added_worker_joins_and_is_there_when_the_run_is_resumed(tmp_path):
    """K-sync waits for the two that are there, then for all three; a replay follows."""
    words = ["strategy=k_sync", "strategy.k=3", "cluster.workers=3", "runner.initial_workers=2", "max_updates=400"]
    words += ["cluster.gradient_s=[0.01]", "runner.pace=absolute", "epochs=null", "eval_every_epochs=1"]
    run = LiveRun(tmp_path, *words)
    run.wait_for_snapshot(1)
    assert main(["grow", run.folder.name, "1", "--results", str(tmp_path)]) == 0
    run.wait_for_output("worker 2 joined")
    run.process.send_signal(signal.SIGINT)
    run.wait(expected=130)
    run = LiveRun(tmp_path, *words)
    run.wait()
    summary = run.summary()
    assert [count for _, _, count in summary["waits_for"]] == [2, 3]
    log = read_events(run.folder / "events.arrow").to_pandas()
    own = log[log.worker == 2]
    assert own[own.kind.isin(["left", "joined"])].kind.tolist() == ["left", "joined"]
    assert own[own.kind == "left"].because.tolist() == ["it was not started with the run"]
    pushed = own[own.kind == "pushed"].value.astype(int).tolist()
    assert pushed == list(range(len(pushed)))
    assert summary["used_by_worker"][2] == len(pushed) > 0
    assert replayed(run)["equal"]
    assert run.has_ended_cleanly()
    assert not (run.folder / "workers").exists()
