"""Slurm's jobs of a plan, with Slurm and without. (A real one: tests/slurm.)"""

import json
import os
import re
from pathlib import Path

import pytest
from operations.planned import age, finish, identity_of, interrupt
from slurm_tools import Tools

from runners.commands import main
from syncline.operations.jobs import NoAnswer, Submission, cancel, submissions, waiting
from syncline.operations.states import run_states, slurm_states


def submitted(results: Path, stem: str, number: int, job_id: str, tasks: dict[int, list[str]]) -> Path:
    folder = results / "plans" / f"{stem}.slurm" / str(number)
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"job_id": job_id, "submitted": 1.5, "tasks": tasks}))
    return folder


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    return Tools(tmp_path / "tools", monkeypatch)


def test_submissions_are_read_in_the_order_they_were_made(tmp_path: Path) -> None:
    folders = [submitted(tmp_path, "a", number, str(number), {0: ["x"], 12: ["y", "z"]}) for number in (2, 10, 1)]
    found = submissions(tmp_path, "a")
    assert [job.job_id for job in found] == ["1", "2", "10"]
    assert found[0] == Submission("1", 1.5, {0: ["x"], 12: ["y", "z"]}, folders[2])
    assert submissions(tmp_path, "b") == []


def test_the_tasks_that_are_not_over_give_their_runs_a_state(tmp_path: Path, tools: Tools) -> None:
    submitted(tmp_path, "a", 1, "7", {0: ["x"], 1: ["y", "z"], 2: ["done"]})
    submitted(tmp_path, "a", 2, "9", {1: ["y"]})
    tools.says("squeue", "7 0 PENDING\n7 1 RUNNING\n9 1 PENDING\n8 2 RUNNING\n17 N/A RUNNING")
    jobs = submissions(tmp_path, "a")
    assert waiting(jobs) == {"x": "queued", "y": "running", "z": "running", "done": jobs[0].folder / "2.txt"}


OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM Killed."
KILLED = (
    "/var/spool/slurmd/job00007/slurm_script: line 20:  4711 Killed                  python run.py --plan plan.json"
)
ASKED = "interrupted; x checkpointed at update 12; rerun this command to resume: python run.py --plan plan.json"
CANCELLED = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-27T12:00:00 DUE TO NODE FAILURE ***"


@pytest.mark.parametrize(
    ("last", "state"),
    [(OOM, "failed"), (KILLED, "failed"), ("error: x is of other data", "failed")]
    + [(last, "unfinished") for last in (ASKED, CANCELLED, "x: 12 %", "")],
)
def test_a_task_that_was_killed_has_the_last_line_of_its_output_as_the_cause(
    tmp_path: Path, tools: Tools, last: str, state: str
) -> None:
    """Of a run that had begun, and of one that had not; of one that is made again here, it says nothing."""
    tools.says("squeue", "9 0 RUNNING")
    identities = [identity_of(seed) for seed in range(4)]
    folder = submitted(tmp_path, "sweep-1", 1, "7", {0: identities})
    for seed in (0, 2):
        age(interrupt(tmp_path, seed) / "metrics.jsonl", 30)
        age(tmp_path / identity_of(seed) / "config.json", 30)
    finish(tmp_path, 3)
    (folder / "0.txt").write_text(f"1 of 4 runs finished\n{last}\n\n")
    age(folder / "0.txt", 10)
    interrupt(tmp_path, 2)
    found = run_states(tmp_path, identities, slurm_states(tmp_path, ["sweep-1"]))
    told = [(found[identity].state, found[identity].cause) for identity in identities]
    cause = last if state == "failed" else ""
    assert told == [(state, cause), ("failed" if cause else "left", cause), ("unfinished", ""), ("finished", "")]


def test_only_jobs_that_are_not_over_are_cancelled(tmp_path: Path, tools: Tools) -> None:
    submitted(tmp_path, "a", 1, "7", {0: ["x"]})
    submitted(tmp_path, "a", 2, "9", {0: ["x"]})
    tools.says("squeue", "9\n11")
    tools.says("scancel", "")
    assert cancel(submissions(tmp_path, "a")) == ["9"]
    assert tools.asked("scancel") == ["9"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_the_jobs_of_all_who_submitted_are_asked_for(tmp_path: Path, tools: Tools) -> None:
    """In a folder that several users share."""
    os.chown(submitted(tmp_path, "a", 1, "7", {0: ["x"]}), 4321, -1)
    tools.says("squeue", "7 0 PENDING")
    assert waiting(submissions(tmp_path, "a")) == {"x": "queued"}
    (asked,) = tools.asked("squeue")
    assert re.search(r"--user=\S+,4321\b", asked)


def test_without_submissions_slurm_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert waiting([]) == {}
    assert cancel([]) == []


def test_without_slurm_the_status_says_so_and_shows_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "plans").mkdir()
    run = {"label": "bsp", "seed": 0, "identity": "bsp-x", "overrides": []}
    plan = {"name": "sweep", "scale": "", "command": ["-m"], "report": {}, "runs": [run]}
    (tmp_path / "plans" / "sweep-1.json").write_text(json.dumps(plan))
    submitted(tmp_path, "sweep-1", 1, "7", {0: ["bsp-x"]})
    with pytest.raises(NoAnswer, match="squeue is not on this machine's PATH"):
        waiting(submissions(tmp_path, "sweep-1"))
    assert main(["status", "sweep-1", "--json", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("the state of Slurm's queue is unknown: squeue is not")
    (shown,) = json.loads(said.out)["plans"]
    assert shown["left"] == 1
