"""status: the truth about every run, in text and JSON, quickly."""

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from operations.planned import TRACE, age, fail, finish, identity_of, lock, write_plan

from runners.commands import main
from syncline.operations import jobs
from syncline.operations.states import FAILED, FINISHED, LEFT, QUEUED, RUNNING, UNFINISHED, first_cause, run_states
from syncline.records.lock import STALE_S, held

Said, AsJson = Callable[..., str], Callable[..., Any]


def test_each_run_has_its_state(results: Path) -> None:
    """Seed 4's owner was killed with -9: its lock exists, but it is not running."""
    found = run_states(results, [identity_of(seed) for seed in range(6)], {})
    wanted = [FINISHED, FINISHED, RUNNING, FAILED, UNFINISHED, LEFT]
    assert [found[identity_of(seed)].state for seed in range(6)] == wanted
    age(lock(results, 2), STALE_S + 1)  # its owner, on another host, has been silent for long
    assert run_states(results, [identity_of(2)], {})[identity_of(2)].state == UNFINISHED


def test_status_changes_nothing(results: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in [results, *results.rglob("*")] if path != results}
    main(["status", "--runs", "--results", str(results)])
    assert {path: path.stat().st_mtime_ns for path in results.rglob("*")} == before


def test_a_run_that_this_process_makes_is_running_even_if_it_was_finished_before(results: Path) -> None:
    with held(results / identity_of(0)):
        state = run_states(results, [identity_of(0)], {})[identity_of(0)]
    assert state.state == RUNNING
    assert state.owner is not None
    assert (state.owner.host, state.owner.pid) == (socket.gethostname(), os.getpid())


@pytest.mark.parametrize(
    ("waiting", "states_then"),
    [
        ("queued", [FINISHED, FINISHED, RUNNING, QUEUED, QUEUED, QUEUED]),
        ("running", [FINISHED, FINISHED, RUNNING, FAILED, QUEUED, QUEUED]),
    ],
)
def test_runs_that_slurm_will_make_are_queued_and_failed_ones_of_a_running_task_are_not(
    results: Path, waiting: str, states_then: list[str]
) -> None:
    identities = [identity_of(seed) for seed in range(6)]
    found = run_states(results, identities, dict.fromkeys(identities, waiting))
    assert [found[identity].state for identity in identities] == states_then


def test_slurm_is_asked_once_for_all_plans(results: Path, as_json: AsJson, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def waiting(submissions: Sequence[str]) -> dict[str, str]:
        asked.append(list(submissions))
        return {identity_of(5): "queued"}

    monkeypatch.setattr(jobs, "submissions", lambda folder, stem: [stem])
    monkeypatch.setattr(jobs, "waiting", waiting)
    write_plan(results, "paper-table-laptop", [5])
    counts = {plan["plan"]: plan["queued"] for plan in as_json("status")["plans"]}
    assert counts == {"paper-table-laptop": 1, "paper-table-smoke": 1}
    assert asked == [["paper-table-laptop", "paper-table-smoke"]]


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (TRACE, "syncline.datasets.errors.DataMissingError: cifar10 not found: no data"),
        (
            "Traceback (most recent call last):\n  a\nKeyError: 1\n\nDuring\n\n" + TRACE.replace("cifar10", "mnist"),
            "mnist",
        ),
        ("Traceback (most recent call last):\n  a\nRunFailed: worker 1\nits last words\n", "RunFailed: worker 1"),
        ("its process ended with exit code -9 (killed, or out of memory?)\n", "exit code -9"),
        ("", "log.txt is empty"),
    ],
)
def test_the_cause_is_one_line(log: str, cause: str) -> None:
    assert cause in first_cause(log)
    assert "\n" not in first_cause(log)


def test_a_plan_is_a_line_with_its_counts_and_times(said: Said) -> None:
    """Only the states that a run is in have a column."""
    header, line, _, of_no_plan, diverged = said("status").splitlines()
    assert " ".join(header.split()) == "plan runs finished running failed unfinished left spent to go"
    # to go: seed 2 (even, 10 s) has run for longer than that, 3 (odd) 30 s, 4 (even) 10 s, 5 (odd) 30 s; one at a time
    assert line.split() == ["paper-table-smoke", "6", "2", "1", "1", "1", "1", "0:40", "1:10"]
    assert of_no_plan.split() == ["(no", "plan)", "1", "1", "0", "0", "0", "0"]
    assert diverged == "1 of the finished diverged"


def test_a_plan_shows_when_it_was_started_and_how(results: Path, said: Said) -> None:
    """Only that distinguishes two sweeps."""
    for number, strategies in enumerate(("bsp,asp", "ssp,dssp")):
        command = ["run", "-m", f"strategy={strategies}", "scenario.slow={0: 3}"]
        path = write_plan(results, f"sweep-0000000{number}", [30], scale="", command=command)
        os.utime(path, (1.8e9, 1.8e9 + 3600 * number))
    starts = [line for line in said("status").splitlines() if "syncline run" in line]
    days = [time.strftime("%Y-%m-%d %H:%M", time.localtime(1.8e9 + 3600 * number)) for number in range(2)]
    assert starts == [
        f"  {day}  syncline run -m strategy={strategies} 'scenario.slow={{0: 3}}'"
        for day, strategies in zip(days, ("bsp,asp", "ssp,dssp"), strict=True)
    ]
    finish(results, 30)
    assert set(starts) <= set(said("show", identity_of(30)).splitlines())


@pytest.mark.parametrize("width", [60, 80])
def test_nothing_is_lost_and_no_line_too_long(
    results: Path, said: Said, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """With runs in all states but "queued", or at 80 columns in all."""
    path = write_plan(results, "dssync-table10-laptop", range(6), labels=["a cell of the grid", "another one"])
    wide = said("status", "--runs")
    if width == 80:
        monkeypatch.setattr(jobs, "submissions", lambda folder, stem: [stem])
        monkeypatch.setattr(jobs, "waiting", lambda submissions: {identity_of(5): "queued"})
        wide = said("status", "--runs")
    monkeypatch.setenv("COLUMNS", str(width))
    text = said("status", "--runs")
    assert Counter(text.split()) == Counter(wide.split())
    assert max(map(len, text.splitlines())) <= max(width, len(identity_of(0)) + 2)
    assert path.stem in text


def test_a_plans_runs_are_listed_with_their_causes_and_owners(said: Said) -> None:
    lines = said("status", "paper/table").splitlines()
    listed = lines[lines.index("") + 1 :]
    assert listed[0].split() == ["state", "time", "seed", "identity", "label", "note"]
    states = [FINISHED, FINISHED, RUNNING, FAILED, UNFINISHED, LEFT]
    for seed, (line, state) in enumerate(zip(listed[1:], states, strict=False)):
        assert line.split()[0] == state
        assert [str(seed), identity_of(seed)] == line.split()[2 if state == FINISHED else 1 :][:2]
    assert listed[2].split()[1:] == ["0:30", "1", identity_of(1), "odd", "diverged"]
    assert "process 7 on far-away since " in listed[3]
    assert listed[4].endswith("odd    syncline.datasets.errors.DataMissingError: cifar10 not found: no data")


def test_runs_can_be_chosen_by_their_state(said: Said, as_json: AsJson) -> None:
    lines = said("status", "--state", "failed").splitlines()
    assert [line.split()[2] for line in lines[lines.index("") + 2 :]] == [identity_of(3)]
    (plan,) = as_json("status", "paper/table", "--state", "running")["plans"]
    assert [run["identity"] for run in plan["runs"]] == [identity_of(2)]


def test_all_that_runs_at_a_time_shortens_what_is_to_go(results: Path, as_json: AsJson) -> None:
    lock(results, 5, since=time.time())
    (plan,) = as_json("status", "paper/table")["plans"]
    assert (plan["running"], plan["spent_s"], plan["mean_s"]) == (2, 40.0, 20.0)
    assert plan["to_go_s"] == pytest.approx((30 + 10 + 30) / 2, abs=1)


def test_without_a_finished_run_the_time_to_go_is_unknown(results: Path, said: Said) -> None:
    write_plan(results, "paper-new-smoke", [20, 21])
    line = next(line for line in said("status").splitlines() if line.startswith("paper-new"))
    assert line.split()[-2:] == ["0:00", "?"]


def test_a_plan_has_several_names(results: Path, as_json: AsJson) -> None:
    path = str(results / "plans" / "paper-table-smoke.json")
    for asked in ("paper/table", "paper-table", "paper-table-smoke", "paper/table-smoke", path):
        assert [plan["plan"] for plan in as_json("status", asked)["plans"]] == ["paper-table-smoke"]


def test_an_empty_folder_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--results", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out == f"no plans and no records in {tmp_path / 'none'}\n"
    assert main(["status", "dssp/table1", "--results", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith(f"error: no plan in {tmp_path / 'none' / 'plans'}; ")


@pytest.mark.parametrize("file", [f"{identity_of(0)}/summary.json", f"{identity_of(3)}/log.txt"])
def test_a_file_that_cannot_be_read_is_the_cause_of_its_run_alone(results: Path, as_json: AsJson, file: str) -> None:
    (results / file).unlink()
    (results / file).mkdir()
    (plan,) = as_json("status", "paper/table")["plans"]
    found = {run["identity"]: run for run in plan["runs"]}
    assert found[file.partition("/")[0]]["state"] == "failed"
    assert "IsADirectoryError" in found[file.partition("/")[0]]["cause"] or "Is a directory" in str(found)
    assert [run["state"] for run in plan["runs"][1:3]] == ["finished", "running"]


def test_what_is_broken_beside_the_records_is_named_and_hides_nothing(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan, a study and a lock that are cut off, and what Slurm was given."""
    write_plan(results, "paper-cut-smoke", [0])
    submission = results / "plans" / "paper-table-smoke.slurm" / "1" / "job.json"
    for path in (results / "plans" / "paper-cut-smoke.json", results / "studies" / "cut.json", submission):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{")
    (results / f"{identity_of(3)}.lock").write_text("{")
    assert main(["status", "--json", "--results", str(results)]) == 0
    out, err = capsys.readouterr()
    (plan,) = json.loads(out)["plans"]
    assert (plan["plan"], plan["finished"], plan["running"], plan["failed"]) == ("paper-table-smoke", 2, 2, 0)
    assert [line.partition(": ")[0] for line in err.splitlines()] == ["left out"] * 3
    assert all(name in err for name in ("paper-cut-smoke.json", "cut.json", "job.json"))
    assert main(["show", identity_of(0), "--results", str(results)]) == 0


COUNTING = """
import sys
from runners.commands import main
opened = 0
def count(event, about):
    global opened
    opened += event == "open" and str(about[0]).startswith(sys.argv[1])
sys.addaudithook(count)
main(["status", "big", "--results", sys.argv[1]])
print(opened, *sys.modules, file=sys.stderr)
"""


def test_each_file_of_text_is_opened_once_without_heavy_imports(tmp_path: Path) -> None:
    """Of 60 runs, 50 finished and 5 failed: ten thousand are read in a few seconds."""
    write_plan(tmp_path, "big-smoke", range(60), labels=["even", "odd"])
    for seed in range(55):
        (finish if seed < 50 else fail)(tmp_path, seed)
    command = [sys.executable, "-c", COUNTING, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[1].split()[:5] == ["big-smoke", "60", "50", "5", "5"]
    opened, *modules = ended.stderr.split()
    assert 50 * 4 + 5 * 2 <= int(opened) < 50 * 4 + 5 * 2 + 25
    assert not {"torch", "hydra", "omegaconf", "pandas", "scipy", "matplotlib"} & set(modules)
