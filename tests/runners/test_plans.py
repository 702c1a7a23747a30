"""Plans of many runs: all are made, none twice; the failure of one does not affect the others."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from commands import ROOT, TIMING, Command, cli, made, one_error_line, started, wait_for, without_wall_time
from full_disk import files_no_larger_than
from operations import planned

from runners import command_line, plan, pool
from runners.checkpoints import checkpoint_path
from runners.commands import call
from runners.display import PlanDisplay
from runners.stop import StopRequested
from syncline.config import RunConfig, compose, from_plain
from syncline.config.runners import LocalConfig
from syncline.operations.states import LEFT, run_states
from syncline.plan import Entry, Plan
from syncline.records import environment
from syncline.records.events import read_events
from syncline.records.lock import held
from syncline.records.plans import read_plan
from syncline.records.store import FAILED, FINISHED, read_metrics, read_summary, write_file


@pytest.mark.xdist_group("forked_runs")
def test_a_sweep_makes_all_its_runs_lists_them_and_makes_none_twice(tmp_path: Path, command: Command) -> None:
    words = ["-m", "strategy=bsp,asp", "seed=0,1", *TIMING, f"results={tmp_path}", "jobs=2"]
    said = command(*words)
    assert said.code == 0, said.err
    assert "sweep: 4 runs, 0 finished before, 4 to make" in said.err
    assert "sweep: 4 of 4 runs finished, 0 failed" in said.err
    assert [line.split()[:2] for line in said.out.splitlines()[-3:-1]] == [["asp", "2"], ["bsp", "2"]]
    (path,) = (tmp_path / "plans").iterdir()
    written = json.loads(path.read_text())
    assert path.name.startswith("sweep-")
    assert written["command"] == ["run", *words]
    assert [(entry["label"], entry["seed"]) for entry in written["runs"]] == [
        (f"strategy={strategy}", seed) for strategy in ("bsp", "asp") for seed in (0, 1)
    ]
    times = {}
    for entry in written["runs"]:
        summary = read_summary(tmp_path / entry["identity"])
        assert f"strategy={summary['strategy']}" == entry["label"]
        assert summary["seed"] == entry["seed"]
        times[entry["identity"]] = (tmp_path / entry["identity"] / "summary.json").stat().st_mtime_ns

    again = command(*words)
    assert again.code == 0
    assert "4 finished before, 0 to make" in again.err
    assert {name: (tmp_path / name / "summary.json").stat().st_mtime_ns for name in times} == times


@pytest.mark.xdist_group("forked_runs")
def test_a_run_of_a_plan_is_the_same_run_as_one_alone(tmp_path: Path, command: Command) -> None:
    """Also when its process has made others before."""
    words = ["dataset=glyphs10", "dataset.train_size=100", "dataset.test_size=20", "max_updates=4"]
    alone = made(tmp_path / "alone", *words, "seed=2")
    said = command("-m", *words, "seed=0,1,2", "jobs=1", f"results={tmp_path / 'plan'}")
    assert said.code == 0
    planned = tmp_path / "plan" / alone.name
    assert without_wall_time(read_metrics(planned)) == without_wall_time(read_metrics(alone))
    assert read_events(planned / "events.arrow").equals(read_events(alone / "events.arrow"))


@pytest.mark.usefixtures("pool_here")
def test_one_failing_run_does_not_stop_the_others_and_fail_fast_does(tmp_path: Path, command: Command) -> None:
    """Times alone need no data, so of these three runs only the one that learns fails."""
    words = ["-m", "seed=0", "dataset=cifar10", f"dataset.root={tmp_path / 'empty'}", "max_updates=3", "jobs=1"]
    words += ["gradients=true,false", "strategy=asp,bsp"]

    def states(results: Path) -> list[str]:
        (path,) = (results / "plans").glob("*.json")
        return [state.state for state in run_states(results, read_plan(path).once(), {}).values()]

    said = command(*words, f"results={tmp_path / 'all'}")
    assert said.code == 1
    assert states(tmp_path / "all") == [FAILED, FAILED, FINISHED, FINISHED]
    failed = [line for line in said.err.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 2
    assert "cifar10 not found" in failed[0]
    assert "Traceback" not in said.err
    assert "sweep: 2 of 4 runs finished, 2 failed" in said.err

    again = command(*words, f"results={tmp_path / 'all'}")
    assert again.code == 1
    assert "4 runs, 2 finished before, 2 to make" in again.err

    fast = command(*words, f"results={tmp_path / 'fast'}", "fail_fast=true")
    assert fast.code == 1
    assert states(tmp_path / "fast") == [FAILED, LEFT, LEFT, LEFT]


def test_failures_while_the_others_stop_ask_nobody_a_second_time(tmp_path: Path, pool_here: type[pool.Pool]) -> None:
    """A run that is asked twice ends at once, without a checkpoint."""

    num_stops = []

    class Failing(pool_here):  # type: ignore[misc, valid-type]
        """All runs under way fail, one after another."""

        def messages(self, timeout_s: float) -> Iterator[tuple[Entry, pool.Message]]:
            yield self._begun.pop(), pool.Failed("no data")

        def stop(self) -> None:
            num_stops.append(self)

    entries = tuple(Entry("row", (), RunConfig(seed=seed, epochs=1.0)) for seed in range(3))
    runs, failing = Plan("sweep", "", entries, {}), Failing(entries, tmp_path, False, 1)
    display = PlanDisplay(runs, done=0)
    scheduler = plan._Scheduler(runs.entries, tmp_path, failing, display, 3, True, math.inf)
    scheduler.run(lambda: None)
    assert (len(scheduler.ended.failed), len(num_stops)) == (3, 1)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    ("message", "is_older", "kept"),
    [
        (pool.Finished(planned.summary()), False, None),
        (pool.Stopped("x checkpointed"), False, "0 of 1 run finished, 1 checkpointed"),
        (pool.Stopped(""), False, "0 of 1 run finished, 0 checkpointed"),
        (pool.Stopped(""), True, "0 of 1 run finished, 1 checkpointed"),
    ],
    ids=["finishes", "checkpointed", "nothing kept", "an older checkpoint kept"],
)
def test_a_plan_asked_to_stop_says_what_is_left(
    message: pool.Message,
    is_older: bool,
    kept: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pool_here: type[pool.Pool],
) -> None:
    """Where its last run finishes meanwhile, nothing is."""

    class Asked(pool_here):  # type: ignore[misc, valid-type]
        """Its run ends when the plan is asked to stop."""

        def start(self, entry: Entry) -> None:
            super().start(entry)
            signal.raise_signal(signal.SIGTERM)

        def messages(self, timeout_s: float) -> Iterator[tuple[Entry, pool.Message]]:
            yield self._begun.pop(), message

    monkeypatch.setattr(plan, "Pool", Asked)
    runs = Plan("sweep", "", (Entry("row", (), RunConfig(epochs=1.0)),), {})
    if is_older:
        write_file(checkpoint_path(tmp_path / RunConfig(epochs=1.0).identity), "of an earlier start")

    said = None
    try:
        plan.run_plan(runs, tmp_path, jobs=1, fail_fast=False, rerun=False)
    except StopRequested as stop:
        said = stop.kept
    assert said == kept


def test_a_process_that_is_stopped_sends_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise StopRequested(signal.SIGTERM, "x checkpointed")

    monkeypatch.setattr(pool, "handle_signals", lambda ctrl_c: None)
    monkeypatch.setattr(pool, "make_run", stopped)
    ours, theirs = Pipe()
    with ours, theirs:
        ours.send(RunConfig(epochs=1.0))
        pool._child(tmp_path, False, 1, theirs)
        assert ours.recv() == pool.Stopped("x checkpointed")


@pytest.mark.xdist_group("forked_runs")
def test_short_runs_share_a_process_and_a_long_one_has_its_own(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    start = BaseProcess.start

    def counted(process: BaseProcess) -> None:
        begun.append(process)
        start(process)

    monkeypatch.setattr(BaseProcess, "start", counted)
    for shared_s, num_processes in ((1e9, 2), (0.0, 6)):
        monkeypatch.setattr(pool, "SHARED_S", shared_s)
        said = command("-m", "seed=range(0,6)", *TIMING, f"results={tmp_path / str(shared_s)}", "jobs=2")
        assert said.code == 0, said.err
        assert len(begun) == num_processes
        assert not any(process.is_alive() for process in begun), "no process is left"
        begun.clear()


@pytest.mark.processes
def test_a_run_whose_process_is_killed_shows_as_failed_with_the_cause(tmp_path: Path) -> None:
    words = ["-m", "seed=0", "gradients=false", "runner.events=false", f"results={tmp_path}"]
    process = started(*words, "epochs=1e7")
    wait_for(lambda: bool(list(tmp_path.glob("*/metrics.jsonl"))), process)
    (lock,) = tmp_path.glob("*.lock")
    os.kill(json.loads(lock.read_text())["pid"], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    cause = "its process ended with exit code -9 (killed, or out of memory?)"
    assert cause in err
    state = run_states(tmp_path, [lock.stem], {})[lock.stem]
    assert (state.state, state.cause) == (FAILED, cause)
    assert not list(tmp_path.glob("*.lock"))


@pytest.mark.processes
def test_a_run_that_another_process_makes_is_refused_with_its_owner(tmp_path: Path) -> None:
    words = ["gradients=false", "runner.events=false", "epochs=1e7", f"results={tmp_path}"]
    first = started(*words)
    try:
        wait_for(lambda: bool(list(tmp_path.glob("*/metrics.jsonl"))), first)
        line = one_error_line(cli(*words))
        assert f"is already running in process {first.pid} on " in line
        assert list(tmp_path.glob("*/metrics.jsonl")), "and its results so far are kept"
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()


@pytest.mark.usefixtures("pool_here")
def test_a_plan_tells_of_an_emulated_precision_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan, "slow_precision", lambda configs: f"{len(list(configs))} emulated")
    words = ["-m", "seed=0,1", "gradients=false", "max_updates=1", f"results={tmp_path}", "jobs=1"]
    assert call(["run", *words]) == 0
    assert capsys.readouterr().err.count("2 emulated") == 1


def test_runs_that_learn_on_a_gpu_are_made_two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    monkeypatch.setattr(environment, "cores", lambda: 16)
    monkeypatch.setattr(plan, "has_gpu", lambda: True)
    learning = RunConfig(epochs=1.0)
    for config, expected in (
        (learning, 2),
        (replace(learning, device="cpu"), 16),
        (replace(learning, gradients=False), 16),
        (replace(learning, runner=LocalConfig()), 1),
    ):
        assert plan.num_jobs([Entry("row", (), config)]) == expected
    monkeypatch.setattr(plan, "has_gpu", lambda: False)
    assert plan.num_jobs([Entry("row", (), learning)]) == 16


@pytest.mark.usefixtures("pool_here")
def test_a_finished_sweep_is_shown_from_a_folder_that_cannot_be_written_to(tmp_path: Path, command: Command) -> None:
    words = ["-m", "strategy=bsp,asp", *TIMING, f"results={tmp_path}"]
    first = command(*words)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with files_no_larger_than(0):
        again = command(*words)
    assert (again.code, again.out) == (0, first.out), again.err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}.items() <= before.items()
    record = next(path for path in tmp_path.iterdir() if path.name.startswith("bsp"))
    (record / "summary.json").unlink()
    with files_no_larger_than(0):
        assert "cannot write" in one_error_line(command(*words))


@pytest.mark.usefixtures("pool_here")
@pytest.mark.parametrize("words", [["seed=0"], ["-m", "seed=0,1"]], ids=["a run", "a sweep"])
def test_finished_records_of_another_commit_are_used_again_with_a_note(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    words = [*words, *TIMING, f"results={tmp_path}"]
    assert "commit" not in command(*words).err
    assert "commit" not in command(*words).err
    monkeypatch.setattr(command_line, "environment", lambda: {"commit": "0123456789ab"})
    note = [line for line in command(*words).err.splitlines() if "commit" in line]
    assert len(note) == 1
    assert note[0].endswith(", and this is 0123456789ab; rerun=true makes all runs again")
    assert note[0].startswith(f"{'2 finished runs' if '-m' in words else '1 finished run'} of commit ")


@pytest.mark.processes
def test_a_sweep_may_be_started_by_a_program_from_standard_input(tmp_path: Path) -> None:
    """Which no other process can run again, as it would a file."""
    words = ["-m", "seed=0,1", *TIMING, "jobs=1", f"results={tmp_path}"]
    program = f"from runners.commands import main\nraise SystemExit(main({['run', *words]!r}))\n"
    ended = subprocess.run(
        [sys.executable, "-"], cwd=ROOT, input=program, capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, "2 of 2 runs finished, 0 failed" in ended.stderr) == (0, True), ended


# Of real processes: each run is a job of torchrun.


REAL = ["-m", "runner=local", "strategy=asp", "cluster.workers=1", "model=softmax_regression", "jobs=2"]


@pytest.mark.processes
def test_a_plan_of_real_processes_names_the_error_of_each_run(tmp_path: Path) -> None:
    words = [*REAL, "seed=0,1", "dataset=cifar10", f"dataset.root={tmp_path / 'empty'}"]
    said = cli(*words, f"results={tmp_path / 'results'}")
    assert (said.code, "sweep: 0 of 2 runs finished, 2 failed" in said.err) == (1, True), said
    failed = [line for line in said.err.splitlines() if line.startswith("FAILED")]
    assert ["worker 0: cifar10 not found" in line for line in failed] == [True, True]
    assert "Traceback" not in said.err


@pytest.mark.processes
def test_a_plan_of_real_processes_that_is_asked_to_stop_resumes_its_runs(
    tmp_path: Path, ended_at_last: list["subprocess.Popen[str]"]
) -> None:
    """The signal comes to every process of the group, as from a batch system."""
    words = [*REAL, "seed=0", "cluster.gradient_s=[0.05]", "runner.pace=absolute", "eval_every_epochs=0.05"]
    words += ["max_updates=60", "epochs=null", f"results={tmp_path}"]
    process = started(*words)
    ended_at_last.append(process)
    wait_for(lambda: bool(list(tmp_path.glob("*/snapshots/1.0-0.safetensors"))), process)
    os.killpg(process.pid, signal.SIGUSR1)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert err.splitlines()[-1].startswith("interrupted; 0 of 1 run finished, 1 checkpointed; rerun this command")
    assert "Traceback" not in err
    said = cli(*words)
    assert said.code == 0, said.err
    (path,) = tmp_path.glob("*/summary.json")
    assert (read_summary(path.parent)["updates"], read_summary(path.parent)["restarts"]) == (60, 1)


def test_what_a_job_of_torchrun_leaves_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, _ = compose(["runner=local", "strategy=asp"])
    folder, told = tmp_path / own.identity, list[tuple[object, ...]]()

    def launch(config: RunConfig, words: list[str], *_: object, **__: object) -> int:
        given = json.loads(Path(words[0].removeprefix("--config-file=")).read_text())
        told.append((from_plain(given["config"]), given["rerun"], words[1]))
        write_file(folder / "log.txt", "worker 0: no data\n")
        return 1

    monkeypatch.setattr("runners.torchrun.launch", launch)
    ours, theirs = Pipe()
    with ours, theirs:
        failed = pool._make(own, tmp_path, True, 1, theirs)
        with held(folder):
            elsewhere = pool._make(own, tmp_path, True, 1, theirs)
    assert failed == pool.Failed("worker 0: no data")
    assert told == [(own, True, f"results={tmp_path}")]
    assert not list(tmp_path.glob("*.config.json"))
    assert isinstance(elsewhere, pool.MadeElsewhere)
    assert elsewhere.owner.startswith(f"{folder.name} is already running in process {os.getpid()} on ")
