"""Runs that are stopped or killed, and resumed by the same command: the result is that of an uninterrupted run."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, cli, made, record_of, started, wait_for, without_wall_time

from runners.checkpoints import FORMAT, checkpoint_path
from runners.one import run_one
from runners.stop import SignalHandler, StopRequested, defer_stop, handle_signals
from syncline.config import RunConfig, compose
from syncline.records import events
from syncline.records.snapshots import read_state, write_state
from syncline.records.store import FINISHED, UNFINISHED, read_metrics, read_summary, status

LEARNING = ["strategy=dssp", "epochs=8", "eval_every_epochs=0.1"]


def left(record: Path) -> tuple[dict[str, Any], list[dict[str, Any]], bytes]:
    """What must not depend on how often the run was interrupted."""
    summary = {key: value for key, value in read_summary(record).items() if key not in ("wall_s", "restarts")}
    assert {path.name for path in record.iterdir()} == {
        *("config.json", "environment.json", "events.arrow", "metrics.jsonl", "summary.json")
    }
    return summary, without_wall_time(read_metrics(record)), (record / "events.arrow").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("uninterrupted"), *LEARNING)


def num_rows(record: Path) -> int:
    return (record / "metrics.jsonl").read_bytes().count(b"\n") if (record / "metrics.jsonl").exists() else 0


# Real processes.


@pytest.mark.processes
def test_a_run_that_is_stopped_resumed_killed_and_resumed_equals_an_uninterrupted_one(
    tmp_path: Path, uninterrupted: Path, ended_at_last: list["subprocess.Popen[str]"]
) -> None:
    words = [*LEARNING, "runner.checkpoint_every_s=0.2", f"results={tmp_path}"]
    record = record_of(tmp_path, *words)

    def saved() -> int:
        """The update of the checkpoint."""
        updates: int = read_state(checkpoint_path(record))[1]["engine"]["totals"]["updates"]
        return updates

    def interrupted(by: signal.Signals, when: Callable[[], bool]) -> str:
        """Interrupt the run then. Returns its stderr."""
        process = started(*words)
        ended_at_last.append(process)
        wait_for(when, process)
        os.killpg(process.pid, by)
        _, err = process.communicate(timeout=60)
        assert process.returncode == (130 if by == signal.SIGINT else -by), err
        assert status(record) == UNFINISHED
        return err

    said = interrupted(signal.SIGINT, lambda: num_rows(record) >= 3)
    updates, file = saved(), checkpoint_path(record)
    before = file.stat().st_mtime_ns
    assert said.splitlines() == [
        f"interrupted; {record.name} checkpointed at update {updates:,}; rerun this command to resume: "
        f"syncline run {' '.join(words)}"
    ]
    assert not list(tmp_path.glob("*.lock"))
    interrupted(signal.SIGKILL, lambda: file.stat().st_mtime_ns > before and num_rows(record) >= 10)
    assert saved() > updates
    last = cli(*words)
    assert last.code == 0, last.err
    assert left(record) == left(uninterrupted)
    assert read_summary(record)["restarts"] == 2
    assert "2 from a checkpoint" in last.out
    starts = json.loads((record / "environment.json").read_text())["restarts"]
    assert [start["command"][1:] for start in starts] == [words] * 2
    walls = [row["wall_s"] for row in read_metrics(record)]
    assert walls == sorted(walls), "the wall time continues"


@pytest.mark.processes
def test_a_plan_asked_to_stop_waits_for_its_runs_and_resumes_them(
    tmp_path: Path, uninterrupted: Path, ended_at_last: list["subprocess.Popen[str]"]
) -> None:
    """The signal comes to every process of the group, as from a batch system; the second is a user's Ctrl-C."""
    words = ["-m", "seed=0,1", *LEARNING, "jobs=1", f"results={tmp_path}"]
    records = [record_of(tmp_path, *LEARNING, f"seed={seed}") for seed in range(2)]
    for by, code, num_kept in ((signal.SIGUSR1, 75, 3), (signal.SIGINT, 130, 10)):
        process = started(*words)
        ended_at_last.append(process)
        wait_for(lambda num_kept=num_kept: num_rows(records[0]) >= num_kept, process)
        os.killpg(process.pid, by)
        _, err = process.communicate(timeout=60)  # returns when the last child has let go of stderr
        assert process.returncode == code, err
        assert err.splitlines()[-1].startswith("interrupted; 0 of 2 runs finished, 1 checkpointed; rerun this command")
        assert "FAILED" not in err
        assert "Traceback" not in err
        assert [checkpoint_path(record).exists() for record in records] == [True, False]
    said = cli(*words)
    assert said.code == 0, said.err
    assert [status(record) for record in records] == [FINISHED] * 2
    assert [read_summary(record)["restarts"] for record in records] == [2, 0]
    assert left(records[0]) == left(uninterrupted)


@pytest.mark.processes
def test_a_run_whose_terminal_is_lost_writes_a_checkpoint(tmp_path: Path) -> None:
    """A terminal that is gone takes no words: that must not be an error before the checkpoint."""
    words = [*LEARNING, "epochs=80", f"results={tmp_path}"]
    record, (ours, theirs) = record_of(tmp_path, *words), pty.openpty()
    opens = ["bash", "-c", 'exec "$@" < "$0" > "$0" 2>&1', os.ttyname(theirs)]  # its first terminal controls it
    command = [sys.executable, "run.py", *words]

    def heed() -> None:  # as a shell on a terminal does, whatever these tests were started with
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    process = subprocess.Popen([*opens, *command], cwd=ROOT, start_new_session=True, preexec_fn=heed)
    os.close(theirs)
    wait_for(lambda: num_rows(record) >= 3, process)
    os.close(ours)
    assert process.wait(60) == 75
    assert checkpoint_path(record).exists()
    assert not list(tmp_path.glob("*.lock"))


# In this process.


SHORT = ["strategy=ssp", "model=softmax_regression", "epochs=3", "runner.events=false"]


def stopped(results: Path, *words: str) -> RunConfig:
    """A run that was asked to stop at its first update."""
    config, _ = compose(words)
    with pytest.raises(StopRequested):
        run_one(config, results, lambda progress: signal.raise_signal(signal.SIGUSR1))
    handle_signals()  # again: a process that was asked to stop begins no other run
    assert status(results / config.identity) == UNFINISHED
    return config


def finished(results: Path, config: RunConfig) -> dict[str, Any]:
    summary = run_one(config, results, lambda progress: None)
    assert not (results / config.identity / "checkpoint").exists()
    return summary


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("fault", ["broken", "another format", "events", "a log that lost power"])
def test_a_checkpoint_that_cannot_be_resumed_is_named_and_the_run_restarts(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "BATCH_ROWS", 4)
    config = stopped(tmp_path, *SHORT, f"runner.events={fault == 'a log that lost power'}")
    path = checkpoint_path(tmp_path / config.identity)
    why = f"{path}: checkpoint format 0, this version reads {FORMAT}"
    if fault == "broken":
        path.write_bytes(path.read_bytes()[:-100])
        why = f"{path}: broken state (SafetensorError: "
    elif fault == "events":
        config, _ = compose([*SHORT, "runner.events=true"])
        why = f"{path}: written with runner.events=false"
    elif fault == "a log that lost power":
        (path.parents[1] / "events.arrow").write_bytes(b"")
        why = f"{path.parents[1] / 'events.arrow'}: not an event log"
    else:
        tensors, state = read_state(path)
        write_state(path, tensors, {**state, "format": 0})
    assert finished(tmp_path, config)["restarts"] == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(why)
    assert line.endswith("; the run starts from the beginning")


@pytest.mark.usefixtures("signals")
def test_a_run_restarts_on_request(tmp_path: Path) -> None:
    config = stopped(tmp_path, *SHORT)
    assert run_one(config, tmp_path, lambda progress: None, restart=True)["restarts"] == 0


def test_a_short_run_writes_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.checkpoints.write_state", lambda *about: pytest.fail("a checkpoint was written"))
    made(tmp_path, *SHORT)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("runners.stop.time.monotonic", lambda: now[0])
    return now


def test_every_signal_but_an_echo_raises_unless_it_is_deferred(clock: list[float]) -> None:
    handler = SignalHandler()
    with pytest.raises(StopRequested) as stop_error:
        handler(signal.SIGUSR1)
    assert stop_error.value.code == 75
    clock[0] += 1.9
    handler(signal.SIGTERM)
    clock[0] += 0.2
    with pytest.raises(StopRequested) as stop_error:
        handler(signal.SIGTERM)
    with pytest.raises(StopRequested):
        handler(signal.SIGINT)
    assert StopRequested(signal.SIGINT).code == 130


@pytest.mark.usefixtures("signals")
def test_a_deferred_signal_asks_and_a_second_one_raises(clock: list[float]) -> None:
    with defer_stop() as asked:
        assert asked() is None
        signal.raise_signal(signal.SIGTERM)
        assert asked() == signal.SIGTERM
        signal.raise_signal(signal.SIGTERM)  # an echo
        clock[0] += 3
        signal.raise_signal(signal.SIGUSR1)  # may be repeated
        with pytest.raises(StopRequested) as stop_error:
            signal.raise_signal(signal.SIGTERM)
        assert stop_error.value.number == signal.SIGTERM
    with pytest.raises(StopRequested):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("signals")
def test_a_lost_terminal_asks_to_stop_unless_that_was_ignored(clock: list[float]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever these tests were started with
    handle_signals()
    with pytest.raises(StopRequested) as stop_error:
        signal.raise_signal(signal.SIGHUP)
    assert stop_error.value.code == 75
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    handle_signals()
    signal.raise_signal(signal.SIGHUP)


def test_a_signal_that_comes_when_all_is_done_kills_nobody() -> None:
    """What is registered before is called later: at the very end of a process."""
    late = "import atexit, os, signal; atexit.register(lambda: os.kill(os.getpid(), signal.SIGUSR1))"
    words = [sys.executable, "-c", f"{late}; from runners.stop import handle_signals; handle_signals()"]
    assert subprocess.run(words, check=False).returncode == 0


def test_a_second_ctrl_c_may_follow_at_once() -> None:
    handler = SignalHandler()
    handler.is_deferred = True
    handler(signal.SIGINT)
    with pytest.raises(StopRequested):
        handler(signal.SIGINT)
