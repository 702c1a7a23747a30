"""Real processes, started as a user starts them or by this process (here.py). One run serves several tests."""

import os
import re
import resource
import signal
from dataclasses import replace
from multiprocessing import forkserver

import pytest
import torch
from leaks import wait_until
from live.here import Job, Launcher, Made, has_snapshot, since, snapshots_after, stop

from benchmarks.live_run import LiveRun, check_mini_batches, is_alive, kill, pid_of
from runners.commands import call, main
from runners.failures import RunFailed
from runners.live import can_resume, run_live
from runners.observer import LiveObserver
from runners.stop import StopRequested
from syncline.config import compose, from_plain
from syncline.monitor import RunMonitor
from syncline.records.events import read_events
from syncline.records.snapshots import numbers
from syncline.records.store import UNFINISHED, read_config, read_metrics, read_summary, status, want_workers
from syncline.records.writer import RecordWriter
from syncline.timing.cluster import DelayInjector

pytestmark = pytest.mark.processes

SMALL = ["model=resnet8", "model.width=4"]  # with batch norm
UPDATES = 60


def whole(states: list[dict[str, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights of all shards, and the buffers, which the first one has."""
    return torch.cat([state["weights"] for state in states]), states[0]["buffers"]


def same_weights_as_in_virtual_time(run: Made) -> bool:
    """In every bit."""
    return torch.equal(whole(run.states)[0], whole(run.in_virtual_time()[-1])[0])


@pytest.fixture(scope="module")
def dssp(tmp_path_factory):
    """Three unequal workers, one shard, batch norm, and a delay of every kind."""
    run = LiveRun(
        tmp_path_factory.mktemp("dssp"),
        "strategy=dssp",
        *SMALL,
        "cluster.workers=3",
        "scenario=slow_worker",
        "scenario.compute_delay={name: exponential, mean: 0.004}",
        "scenario.push_delay={name: constant, value: 0.003}",
        "scenario.pull_delay={name: constant, value: 0.002, probability: 0.3}",
        f"max_updates={UPDATES}",
        "eval_every_epochs=0.5",
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
    assert summary["updates"] == summary["gradients_used"] == UPDATES
    assert summary["restarts"] == 0, dssp.said
    rows = read_metrics(dssp.folder)
    assert [row["updates"] for row in rows] == sorted({row["updates"] for row in rows})
    assert rows[0]["updates"] == 0
    assert rows[-1]["updates"] == UPDATES
    assert len(rows) >= 3
    assert rows[-1]["loss"] < rows[0]["loss"], "it learns"
    assert dssp.has_ended_cleanly()
    names = {path.name for path in dssp.folder.iterdir()}
    assert names == {
        *("config.json", "environment.json", "events.arrow", "log", "metrics.jsonl", "parameters-0.safetensors"),
        "summary.json",
    }
    assert dssp.config.identity in dssp.said
    log = read_events(dssp.folder / "events.arrow").to_pandas()
    assert (log["at"].diff().dropna() >= 0).all()
    applied = log[log.kind == "applied"]
    assert applied.version.tolist() == list(range(1, UPDATES + 1))
    histogram = {str(value): int(count) for value, count in applied.value.astype(int).value_counts().items()}
    assert histogram == summary["staleness"]


@pytest.mark.core
@pytest.mark.xdist_group("live_run")
def test_a_finished_live_run_is_shown_not_repeated_and_its_replay_is_equal_in_every_bit(dssp, capsys):
    assert call(["run", *dssp.words]) == 0
    assert "finished before" in capsys.readouterr().out
    replay = ["runner=replay", f"from={dssp.folder.name}", f"results={dssp.folder.parent}"]
    assert call(["run", *replay]) == 0
    (folder,) = {path.parent for path in dssp.folder.parent.glob("*/summary.json")} - {dssp.folder}
    expected = {"of": dssp.folder.name, "gradients": UPDATES, "equal": True, "largest_difference": 0.0}
    assert read_summary(folder)["replay"] == expected


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


def test_bsp_over_tcp_and_two_shards_equals_the_simulator(launch: Launcher):
    words = ["cluster.workers=2", "cluster.shards=2", "max_updates=10", "runner.transport=tcp"]
    run = launch("strategy=bsp", *SMALL, *words)
    weights, buffers = whole(run.states)
    expected, expected_buffers = whole(run.in_virtual_time()[-1])
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(buffers, expected_buffers, rtol=1e-5, atol=1e-6)


def test_ssp_continues_without_a_killed_and_a_hung_worker_and_readmits_them(launch: Launcher, monkeypatch):
    words = ["strategy=ssp", "strategy.staleness=8", "cluster.workers=3", "cluster.gradient_s=[0.02]", "epochs=null"]
    words += ["runner.pace=absolute", "runner.hang_s=0.7", "runner.leave_s=1.5", "max_time_s=120"]
    hung: list[int] = []

    def kill_and_hang(folder) -> None:
        kill(pid_of(folder, "worker", 2))
        hung.append(pid_of(folder, "worker", 1))
        os.kill(hung[0], signal.SIGSTOP)

    def end(folder) -> None:
        monkeypatch.setattr(RunMonitor, "has_reached_target", True)

    def go_on(folder) -> None:
        os.kill(hung[0], signal.SIGCONT)  # it finds its connection closed, and a new process replaces it

    # Two epochs later none can be more than nine pushes behind the others.
    are_back = snapshots_after(launch.has_said("worker 1 joined", "worker 2 joined"), 2)
    steps = [(has_snapshot(0), kill_and_hang), (launch.has_said("worker 1 left"), go_on), (are_back, end)]
    run = launch(*words, during=steps)
    assert "worker 2 left: the connection was closed" in run.said
    assert "worker 1 is silent for" in run.said  # which worker, how long, and its last event
    assert "last event: granted at" in run.said
    assert "worker 1 left: silent for" in run.said
    for worker in (1, 2):
        mine = run.log[run.log.worker == worker]
        left, joined = (mine[mine.kind == kind]["at"].iloc[0] for kind in ("left", "joined"))
        others = run.log[(run.log.kind == "applied") & (run.log.worker == 0) & run.log["at"].between(left, joined)]
        assert len(others) > 0  # no other worker waited for it
        assert (mine[mine.kind == "applied"]["at"] > joined).any()
        pushed = mine[mine.kind == "pushed"].value.astype(int).tolist()
        assert pushed == list(range(len(pushed)))  # no sample is lost or seen twice
    assert run.summary["max_lead"] <= 9
    run.replayed()


def test_after_the_kill_of_a_shard_the_run_restarts_from_its_checkpoint(launch: Launcher):
    words = ["strategy=asp", "cluster.workers=2", "cluster.gradient_s=[0.01,0.02]", "runner.pace=absolute"]
    words += ["runner.checkpoint_every_epochs=0.5", "runner.evaluate=during", "max_updates=150", "epochs=null"]

    def kill_shard(folder) -> None:
        workers = [pid_of(folder, "worker", worker) for worker in range(2)]
        kill(pid_of(folder, "shard", 0))
        assert wait_until(lambda: not any(map(is_alive, workers))), "the coordinator does nothing meanwhile"

    run = launch(*words, during=[(has_snapshot(1), kill_shard)])
    assert "the run restarts from its last checkpoint" in run.said
    assert (run.summary["updates"], run.summary["restarts"]) == (150, 1)
    updates = [row["updates"] for row in run.rows]
    assert updates == sorted(set(updates))  # none twice, none from before the restart
    run.replayed()


def test_a_stopped_run_is_checkpointed_and_resumes_where_it_was(launch: Launcher, tmp_path):
    """BSP of two workers: the sum of two gradients does not depend on their order, so all bits agree.

    Ctrl-C reaches the process that was started alone; what a batch system sends reaches every process, the launcher
    before torchrun sees the end of its ranks or after it.
    """
    words = ["strategy=bsp", "cluster.workers=2", "max_updates=180", "epochs=null", "dataset.train_size=640"]
    words += ["cluster.gradient_s=[0.03]", "runner.pace=absolute", "runner.checkpoint_every_epochs=100"]
    last = 0
    for asked, code in [(signal.SIGUSR1, 75), (signal.SIGTERM, 75), (signal.SIGINT, 130)]:
        run = LiveRun(tmp_path, *words)
        run.wait_for_snapshot(last + 1)
        if asked != signal.SIGINT:
            run.signal_ranks(asked)
        if asked != signal.SIGTERM:
            run.process.send_signal(asked)
        said = run.wait(expected=code)
        assert f"interrupted; {run.folder.name} checkpointed; rerun this command to resume: " in said
        assert run.has_ended_cleanly()
        assert status(run.folder) == UNFINISHED
        assert from_plain(read_config(run.folder)) == run.config
        last = int(max(numbers(run.folder / "snapshots", 0)))
    again = launch(*words)
    assert again.folder == run.folder
    assert again.summary["restarts"] == 3
    assert same_weights_as_in_virtual_time(again)
    assert again.log[again.log.kind == "applied"].groupby("version").size().tolist() == [2] * 180
    assert "resumed" in set(again.log.kind)


def test_a_run_can_be_resumed_until_its_summary_is_written(tmp_path, capsys):
    words = ["runner=local", "runner.checkpoint_every_epochs=0.1", "runner.initial_workers=1", "cluster.workers=2"]
    config, _ = compose([*words, "strategy=asp", "model=softmax_regression", "epochs=1"])
    with RecordWriter(tmp_path / config.identity, config.as_dict(), with_events=False) as record:
        want_workers(record.folder, 2)
        job = Job(config, tmp_path, words)
        summary = run_live(config, record, lambda row: None, lambda progress: None, job.place)
        assert job.end() == 0
        before = {path.name for path in record.folder.iterdir()}
        assert can_resume(config, record.folder)
        without_events = replace(config, runner=replace(config.live, events=False))
        assert not can_resume(without_events, record.folder), "its log would be of a part of the run"
        assert "made with runner.events=true; the run starts from the beginning" in capsys.readouterr().err
        record.finish(summary)
    left = {path.name for path in record.folder.iterdir()} - {"summary.json"}
    assert before - left == {"checkpoint", "snapshots", "events-0.arrow", "workers", "ended.json"}


def test_a_stop_while_the_last_snapshots_are_evaluated_repeats_no_training(launch: Launcher, monkeypatch):
    """There is no checkpoint: the run is shorter than one is due."""

    def finish(*_: object) -> str:
        raise StopRequested(signal.SIGUSR1)

    words = ["cluster.workers=2", "strategy=asp", "model=softmax_regression", "epochs=1"]
    with monkeypatch.context() as patch:
        patch.setattr(LiveObserver, "finish", finish)
        with pytest.raises(StopRequested) as stopped:
            launch(*words)
    folder = launch.folder(*words)
    assert stopped.value.kept == f"{folder.name} trained, and not evaluated yet"
    processes, parameters = folder / "log" / "processes.jsonl", folder / "parameters-0.safetensors"
    before = processes.read_text(), parameters.stat().st_mtime_ns
    run = launch(*words)
    assert (processes.read_text(), parameters.stat().st_mtime_ns) == before, "no process was started"
    assert (run.summary["ended_by"], run.summary["restarts"]) == ("epochs", 1)
    assert run.rows[-1]["updates"] == run.summary["updates"] > 0
    assert len(run.log) > 0


@pytest.mark.parametrize(
    "words", [["strategy=bsp", "compress=topk"], ["strategy=ssp", "strategy.staleness=0"]], ids=" ".join
)
def test_a_push_that_one_of_two_shards_had_received_when_the_run_was_stopped_is_made_for_the_other(
    words, launch: Launcher
):
    """Of this seed's pushes the first ones alone are delayed, each worker's to another shard.

    So each shard holds one worker and waits for the other.
    """
    words = [*words, "cluster.workers=2", "cluster.shards=2", "max_updates=3", "epochs=null", "model=lenet"]
    words += ["seed=441", "scenario.push_delay={name: constant, value: 5, probability: 0.25}", "optimizer.momentum=0"]
    again = launch.resumed_after_a_stop(since(has_snapshot(0), 2.0), *words)
    for shard in (0, 1):
        of_shard = again.log[again.log.shard == shard]
        check_mini_batches(of_shard, 2)
        assert of_shard[(of_shard.kind == "resumed") & (of_shard.value == 1)].worker.tolist() == [shard]
    again.replayed()
    if again.config.strategy.name == "bsp":
        assert same_weights_as_in_virtual_time(again)


def test_a_worker_of_psp_that_had_pushed_when_the_run_was_stopped_waits_for_the_other_once_it_is_resumed(
    launch: Launcher,
):
    """Worker 0 is at its next gradient, which may not take the place of the one that the slower worker computes."""
    words = ["strategy=psp", "cluster.workers=2", "cluster.gradient_s=[0.02,1.5]", "runner.pace=absolute"]
    words += ["model=softmax_regression", "max_updates=3", "epochs=null", "eval_every_epochs=0.03"]
    again = launch.resumed_after_a_stop(since(has_snapshot(1), 0.7), *words)
    assert (again.summary["gradients_used"], again.summary["gradients_discarded"]) == (6, 0)
    assert again.log[again.log.kind == "resumed"].value.tolist() == [1, 0]
    again.replayed()


KEEPS_MORE = ["cluster.shards=2", "compress=topk", "local.optimizer={name: adamw, lr: 0.002}"]  # than a shard has


@pytest.fixture
def full_disk():
    """Processes that are started now cannot write files of more than 150 kB."""
    forkserver.ensure_running()
    process = forkserver._forkserver._forkserver_pid
    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (150_000, before[1]))
    yield
    resource.prlimit(process, resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize(
    ("words", "who"),
    [
        (["strategy=asp"], "shard"),
        (["strategy=ds_sync"], "member"),
        (["strategy=ad_psgd"], "peer"),
        (["strategy=asp", *KEEPS_MORE], "worker"),
    ],
    ids=["shard", "member", "peer", "worker"],
)
def test_a_full_disk_is_one_line(words, who, launch: Launcher):
    """A snapshot may be written, but no checkpoint, which has the momentum, too, or no worker's part of one."""
    words = [*words, "cluster.workers=4", "max_updates=400", "epochs=null", "batch_size=8", "model=lenet"]
    with pytest.raises(RunFailed) as failed:
        launch(*words, "runner.checkpoint_every_epochs=0.2")
    where = "cannot write the record .*: File too large; results=<folder> puts it elsewhere"
    assert re.fullmatch(rf"{who} \d: {where}", str(failed.value))


def test_a_hung_member_of_a_collective_is_named_and_the_run_restarts_without_it(launch: Launcher):
    words = ["strategy=bsp", "strategy.topology=allreduce", "cluster.workers=2", "cluster.gradient_s=[0.02]"]
    words += ["runner.pace=absolute", "runner.hang_s=1", "runner.leave_s=4", "max_updates=60", "epochs=null"]
    hangs = [(has_snapshot(1), lambda folder: os.kill(pid_of(folder, "worker", 1), signal.SIGSTOP))]
    run = launch(*words, "model=softmax_regression", "dataset.train_size=640", during=hangs)
    assert "the collective is silent for 1." in run.said
    assert "worker 0: in the all-reduce of step" in run.said
    assert "worker 1: does not answer" in run.said
    assert "the run restarts from " in run.said
    assert run.summary["updates"] == 60


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
        "if 'runner=local' in sys.orig_argv:\n"
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


def test_an_added_worker_joins_and_is_there_when_the_run_is_resumed(launch: Launcher, tmp_path):
    """K-sync waits for the two that are there, then for all three; a replay follows."""
    words = ["strategy=k_sync", "strategy.k=3", "cluster.workers=3", "runner.initial_workers=2", "max_updates=150"]
    words += ["cluster.gradient_s=[0.01]", "runner.pace=absolute", "epochs=null", "eval_every_epochs=0.2"]

    def grow(folder) -> None:
        assert main(["grow", folder.name, "1", "--results", str(tmp_path)]) == 0

    with pytest.raises(StopRequested):
        launch(*words, during=[(has_snapshot(1), grow), (launch.has_said("worker 2 joined"), stop)])
    run = launch(*words)
    assert [count for _, _, count in run.summary["waits_for"]] == [2, 3]
    own = run.log[run.log.worker == 2]
    assert own[own.kind.isin(["left", "joined"])].kind.tolist() == ["left", "joined"]
    assert own[own.kind == "left"].because.tolist() == ["it was not started with the run"]
    pushed = own[own.kind == "pushed"].value.astype(int).tolist()
    assert pushed == list(range(len(pushed)))
    assert run.summary["used_by_worker"][2] == len(pushed) > 0
    run.replayed()
    assert not (run.folder / "workers").exists()
