"""retry, cancel and grow: killed and failed runs are made again, running ones are stopped or given more workers."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, Said, started, wait_for
from operations.planned import summary, write_plan

from runners.commands import main
from runners.planning import sweep_plan
from syncline.config import compose
from syncline.operations import cancel, jobs
from syncline.operations.states import run_states
from syncline.records.lock import Owner, at_work_on, held
from syncline.records.plans import read_plan
from syncline.records.store import wanted_workers
from syncline.records.writer import RecordWriter

AsJson = Callable[..., Any]


def syncline(*words: str) -> Said:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "syncline", *words]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment)
    return Said(process.returncode, process.stdout, process.stderr)


def states_of(results: Path) -> list[str]:
    (path,) = (results / "plans").glob("*.json")
    return [state.state for state in run_states(results, read_plan(path).once(), {}).values()]


@pytest.mark.processes
def test_cancel_stops_the_process_of_this_host_and_retry_completes_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first run never ends; then it may, and the others are made."""
    results = tmp_path / "results"
    words = ["-m", "seed=0,1", "gradients=false", "runner.events=false", "epochs=1e7", "jobs=1", f"results={results}"]
    process = started(*words)
    try:
        wait_for(lambda: bool(list(results.glob("*/metrics.jsonl"))), process)
        (path,) = (results / "plans").glob("*.json")
        assert states_of(results) == ["running", "left"]
        assert [owner.pid for owner in at_work_on(path)] == [process.pid]
        assert main(["cancel", "sweep", "--json", "--results", str(results)]) == 0
        content = json.loads(capsys.readouterr().out)
        assert list(content) == ["plan", "jobs", "stopped", "still_at_work", "still_running"]
        assert [owner["pid"] for owner in content["stopped"]] == [process.pid]
        assert (content["still_at_work"], content["still_running"]) == ([], {})
        assert process.wait(timeout=120) != 0
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.communicate()
    assert (states_of(results), at_work_on(path)) == (["unfinished", "left"], [])
    assert main(["cancel", "sweep", "--results", str(results)]) == 0
    assert capsys.readouterr().out.startswith("no run of sweep-")
    sweep_plan([word.replace("epochs=1e7", "epochs=1") for word in words[1:]])[0].write_to(path)
    content = json.loads(path.read_text())
    content["command"].append("rerun=true")
    path.write_text(json.dumps(content))
    said = syncline("retry", "sweep", "--results", str(results))
    assert said.code == 0, said.err
    shown = "syncline run -m seed=0,1 gradients=false runner.events=false epochs=1 jobs=1"
    assert said.err.splitlines()[0] == f"{shown} --retry={path} results={results}"
    assert "sweep: 2 of 2 runs finished, 0 failed" in said.err


def test_cancel_names_what_it_cannot_stop_and_the_jobs_it_cancelled(
    results: Path, as_json: AsJson, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = {"host": "far-away", "pid": 7, "born": 1, "since": time.time()}
    (results / "plans" / "paper-table-smoke.far-away.7.owner").write_text(json.dumps(owner))
    monkeypatch.setattr(jobs, "cancel", lambda submissions: ["123"])
    content = as_json("cancel", "paper/table", code=1)
    assert (content["jobs"], content["stopped"]) == (["123"], [])
    assert [owner["host"] for owner in content["still_at_work"]] == ["far-away"]
    assert [owner["pid"] for owner in content["still_running"].values()] == [7]
    assert main(["cancel", "paper/table", "--results", str(results)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cancelled Slurm job 123"
    assert lines[1].startswith("still at work: process 7 on far-away since ")
    assert lines[1].endswith("; cancel it on far-away")
    assert lines[2].startswith("still running: asp-timing-digits-s2-")


def test_cancel_goes_on_after_a_process_that_has_just_ended(
    results: Path, as_json: AsJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, sleeping = subprocess.Popen(["true"]), subprocess.Popen(["sleep", "60"])
    ended.wait()
    owners = [Owner(socket.gethostname(), process.pid, 1, 0.0) for process in (ended, sleeping)]
    monkeypatch.setattr(cancel, "at_work_on", lambda plan: owners)
    as_json("cancel", "paper/table", code=1)
    assert sleeping.wait(timeout=120) == -signal.SIGTERM


def test_retry_becomes_the_program_with_the_plans_words(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started_with = []
    monkeypatch.setattr(os, "execv", lambda program, words: started_with.append(words))
    command = ["run", "+experiment=paper/new", "rerun=true", "results=elsewhere", "jobs=2"]
    path = write_plan(results, "paper-new-smoke", [0], command=command)
    main(["retry", "paper/new", "--results", str(results)])
    words = ["run", "+experiment=paper/new", "jobs=2", f"--retry={path}", f"results={results}"]
    assert started_with == [[sys.executable, "-P", "-m", "syncline", *words]]


def test_grow_asks_the_coordinator_of_a_run_under_way_and_refuses_more_workers_than_it_may_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, _ = compose(["runner=local", "strategy=asp", "cluster.workers=4", "runner.initial_workers=1"])
    folder = tmp_path / config.identity
    RecordWriter(folder, config.as_dict(), with_events=False).close()

    def grown(number: int) -> tuple[int, str]:
        code = main(["grow", folder.name, str(number), "--results", str(tmp_path)])
        said = capsys.readouterr()
        return code, (said.out + said.err).strip()

    assert grown(1) == (1, f"error: {folder.name} is not a run of real processes under way")
    with held(folder):
        assert grown(2) == (0, "3 workers instead of 1")
        assert wanted_workers(folder) == 3
        code, line = grown(2)
        assert code == 1
        assert "cluster.workers=4" in line
        assert "must be in 1 .. 1, got 2" in line
        assert grown(1) == (0, "4 workers instead of 3")
        assert grown(1) == (1, "error: all of cluster.workers=4 are started")
    with RecordWriter(folder, config.as_dict(), with_events=False) as record:
        record.finish(summary())
    with held(folder), RecordWriter(folder, config.as_dict(), with_events=False) as record:  # a rerun
        assert grown(2)[0] == 0
        assert wanted_workers(record.folder) == 3
    assert wanted_workers(folder) is None
