"""clean: lists first, removes only what no process makes, keeps finished runs unless asked."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from full_disk import files_no_larger_than
from operations.planned import age, fail, finish, identity_of, interrupt, lock, lock_of_the_dead

from runners.commands import main
from syncline.operations import clean, jobs
from syncline.records.lock import STALE_S, held

Said, AsJson = Callable[..., str], Callable[..., Any]
OLD_S = STALE_S + 1


@pytest.fixture
def littered(results: Path) -> Path:
    """With every kind of leftover, old and, beside each draft, one that may be in use."""
    (interrupt(results, 6) / "checkpoint").mkdir()
    (results / identity_of(6) / "checkpoint" / "state").write_text("x" * 5000)
    lock_of_the_dead(results, 7)
    (results / f"{identity_of(0)}.rerun").mkdir()
    (results / "studies").mkdir()
    for name in (
        f"{identity_of(0)}.lock.host.1",
        f"{identity_of(0)}.lock.taking",
        ".now.host.1",
        "plans/a.draft",
        "studies/a.draft",
    ):
        (results / name).touch()
        age(results / name, OLD_S)
    for name in (f"{identity_of(1)}.lock.host.1", ".now.host.2", "plans/b.draft", "studies/b.draft"):
        (results / name).touch()
    lock_of_the_dead(results, 8).rename(results / "plans" / "paper-table-smoke.host.1.owner")
    (results / "site").mkdir()  # of the reports
    (results / "notes.txt").touch()
    return results


GOES = {
    identity_of(3): "failed: syncline.datasets.errors.DataMissingError: cifar10 not found: no data",
    identity_of(4): "unfinished",
    identity_of(6): "unfinished, with a checkpoint to resume from",
    f"{identity_of(4)}.lock": "lock of a dead process",
    f"{identity_of(7)}.lock": "lock of a dead process",
    f"{identity_of(0)}.rerun": "of an interrupted rerun",
    f"{identity_of(0)}.lock.host.1": "draft of a lock",
    f"{identity_of(0)}.lock.taking": "draft of a lock",
    ".now.host.1": "draft",
    "plans/a.draft": "draft",
    "studies/a.draft": "draft",
    "plans/paper-table-smoke.host.1.owner": "note of a dead process",
}


def everything(results: Path) -> set[str]:
    return {str(path.relative_to(results)) for path in results.rglob("*")}


def test_without_yes_it_only_lists(littered: Path, said: Said, as_json: AsJson) -> None:
    before = everything(littered)
    content = as_json("clean")
    assert {os.path.relpath(thing["path"], littered): thing["why"] for thing in content["things"]} == GOES
    assert not any(thing["removed"] for thing in content["things"])
    assert content["bytes"] == sum(thing["bytes"] for thing in content["things"]) > 5000
    assert said("clean").splitlines()[-1] == f"12 to remove, {content['bytes'] / 1000:.1f} kB; --yes does it"
    assert everything(littered) == before


def test_with_yes_that_goes_and_nothing_else(littered: Path, said: Said, as_json: AsJson) -> None:
    before = everything(littered)
    assert said("clean", "--yes").splitlines()[-1].startswith("12 removed, ")
    gone = before - everything(littered)
    assert {name for name in gone if name in GOES or name.partition("/")[0] not in GOES} == set(GOES)
    assert said("clean").splitlines() == ["0 to remove, 0 B; --yes does it"]
    (plan,) = as_json("status", "paper/table")["plans"]
    assert [run["state"] for run in plan["runs"]] == ["finished", "finished", "running", "left", "left", "left"]


def test_finished_records_of_no_plan_are_removed_only_on_request(results: Path, said: Said) -> None:
    assert identity_of(9) not in said("clean")
    assert "finished, of no plan" in said("clean", "--orphans")
    said("clean", "--orphans", "--yes")
    finished = [(results / identity_of(seed)).exists() for seed in (0, 1, 9)]
    assert finished == [True, True, False]


def test_what_is_queued_stays(results: Path, as_json: AsJson, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "waiting", lambda submissions: {identity_of(seed): "queued" for seed in (3, 4)})
    assert [thing["why"] for thing in as_json("clean")["things"]] == ["lock of a dead process"]


def test_nothing_is_removed_while_slurm_does_not_say_what_is_queued(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = results / "plans" / "paper-table-smoke.slurm" / "1"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"job_id": "7", "submitted": 1.5, "tasks": {0: [identity_of(4)]}}))
    monkeypatch.setenv("PATH", "/nowhere")
    before = everything(results)
    assert main(["clean", "--yes", "--results", str(results)]) == 1
    line = "error: squeue is not on this machine's PATH: Slurm is not installed here\n"
    assert capsys.readouterr().err == line
    assert everything(results) == before


def test_what_was_begun_or_finished_since_it_was_listed_stays(
    results: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = clean.find

    def find_and_then(folder: Path, with_orphans: bool) -> Any:
        yield from list(find(folder, with_orphans))
        lock(results, 3)
        finish(results, 4)

    monkeypatch.setattr(clean, "find", find_and_then)
    text = said("clean", "--yes")
    assert text.count("stays: it is running, or was finished meanwhile") == 2
    assert (results / identity_of(3)).exists()
    assert (results / identity_of(4) / "summary.json").exists()


def test_finished_copies_stay_while_their_place_is_empty(results: Path, said: Said) -> None:
    """A rerun was killed between two renames."""
    record = results / identity_of(0)
    beside = [record.with_name(f"{record.name}.{kind}") for kind in ("rerun", "old")]
    record.rename(beside[0])
    finish(results, 0).rename(beside[1])
    before = everything(beside[0]), everything(beside[1])
    said("clean", "--yes")
    assert (everything(beside[0]), everything(beside[1])) == before
    assert not clean._remove(clean.Leftover(beside[0], "of an interrupted rerun", 0, record)).removed


def test_on_a_full_disk_space_is_freed_without_a_lock_that_cannot_be_written(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock(results, 4)
    with files_no_larger_than(0):
        assert main(["clean", "--yes", "--results", str(results)]) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[-1].partition(",")[0], err) == ("1 removed", "")
    assert not (results / identity_of(3)).exists()
    assert (results / identity_of(4)).exists(), "a process makes it"


def test_what_cannot_be_removed_is_named_and_the_rest_is_removed(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = shutil.rmtree

    def refused(path: Path) -> None:
        if path.name == identity_of(3):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        real(path)

    monkeypatch.setattr("shutil.rmtree", refused)
    assert main(["clean", "--yes", "--results", str(results)]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if identity_of(3) in line]
    assert line.endswith("; stays: Read-only file system")
    assert not (results / identity_of(4)).exists()


def test_a_broken_plan_hides_no_leftovers_and_makes_no_orphans(
    results: Path, said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    (results / "plans" / "paper-table-smoke.json").write_text("{")
    assert identity_of(3) in said("clean")
    before = everything(results)
    assert main(["clean", "--orphans", "--yes", "--results", str(results)]) == 1
    assert "paper-table-smoke.json: broken plan" in capsys.readouterr().err
    assert everything(results) == before


def test_an_interrupted_removal_leaves_nothing_that_looks_finished(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        clean._remove(clean.Leftover(results / identity_of(9), "finished, of no plan", 0, results / identity_of(9)))
    assert not (results / identity_of(9) / "summary.json").exists()


def test_no_process_can_begin_a_run_while_its_record_is_removed(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(results, 30)
    seen = []
    monkeypatch.setattr("shutil.rmtree", lambda path: seen.append((results / f"{identity_of(30)}.lock").exists()))
    leftover = clean.Leftover(results / identity_of(30), "failed", 0, results / identity_of(30))
    assert clean._remove(leftover).removed
    with held(results / identity_of(30)):
        assert not clean._remove(leftover).removed
    assert seen == [True]
