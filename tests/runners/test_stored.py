"""run.py --plan: what a task of an array job calls."""

import json
from pathlib import Path

import pytest
from commands import TIMING, Command, one_error_line

from syncline.records.store import FINISHED, status

pytestmark = pytest.mark.usefixtures("pool_here")


@pytest.fixture
def plan(tmp_path: Path, command: Command) -> Path:
    """Of three runs, of which none is made."""
    words = ["-m", "seed=0,1,2", *TIMING, f"results={tmp_path}", "runner=slurm", "runner.submit=false"]
    said = command(*words)
    assert said.code == 0, said
    assert said.out.startswith("3 runs in 3 tasks, not submitted: sbatch ")
    (path,) = (tmp_path / "plans").glob("*.json")
    return path


def states(plan: Path) -> list[bool]:
    runs = json.loads(plan.read_text())["runs"]
    return [status(plan.parents[1] / run["identity"]) == FINISHED for run in runs]


def test_the_runs_that_are_asked_for_are_made_and_no_others(plan: Path, command: Command) -> None:
    where = f"results={plan.parents[1]}"
    assert command("--plan", str(plan), "--runs", "1:2", where).code == 0
    assert states(plan) == [False, True, False]
    assert command("--plan", str(plan), "--runs", "2:9", where).code == 0
    assert states(plan) == [False, True, True]
    assert command("--plan", str(plan), where).code == 0
    assert states(plan) == [True, True, True]


@pytest.mark.parametrize("runs", ["1", "a:b", "-1:2", "1:2:3"])
def test_an_invalid_part_is_refused(plan: Path, command: Command, runs: str) -> None:
    line = one_error_line(command("--plan", str(plan), f"--runs={runs}"))
    assert line == f"error: --runs must be FIRST:END, counted from 0, got {runs}"


def test_a_part_beyond_the_end_or_a_plan_that_is_not_there_is_named(plan: Path, command: Command) -> None:
    assert one_error_line(command("--plan", str(plan), "--runs", "3:4")) == f"error: {plan} has no runs 3:4"
    absent = str(plan.with_name("none.json"))
    assert absent in one_error_line(command("--plan", absent))


def test_a_run_whose_identity_has_changed_is_not_made(plan: Path, command: Command) -> None:
    content = json.loads(plan.read_text())
    content["runs"][0]["overrides"].append("batch_size=16")
    plan.write_text(json.dumps(content))
    line = one_error_line(command("--plan", str(plan), f"results={plan.parents[1]}"))
    assert "conf/ or your own parts have changed since the plan was written" in line
    assert states(plan) == [False] * 3


def test_without_sbatch_the_line_says_what_can_be_done(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    line = one_error_line(command(*TIMING, "runner=slurm", f"results={tmp_path}"))
    assert line.startswith("error: launcher=slurm needs sbatch on this machine's PATH; launcher.submit=false")
