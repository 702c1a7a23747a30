"""retry makes its plan's stored runs, or says in one line that its command makes others now."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import TIMING, Command, Said, one_error_line

from runners.commands import main
from syncline.operations import retry as operation
from syncline.records.plans import read_plan
from syncline.records.store import FINISHED, status

pytestmark = pytest.mark.usefixtures("pool_here")

Retry = Callable[[Path], Said]


@pytest.fixture
def retry(monkeypatch: pytest.MonkeyPatch, command: Command) -> Retry:
    """What `syncline retry` becomes, in this process."""

    def call(results: Path) -> Said:
        words: list[str] = []
        with monkeypatch.context() as patched:
            patched.setattr(operation.os, "execv", lambda program, started: words.extend(started))
            main(["retry", "sweep", "--results", str(results)])
        return command(*words[words.index("syncline") + 1 :])

    return call


def changes_a_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST_SEED", "7")


def changes_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "cluster" / "mine.yaml").write_text("name: mine\nworkers: 3\n")


@pytest.mark.parametrize("change", [None, changes_a_variable, changes_a_file])
def test_it_makes_the_stored_runs_or_none(
    tmp_path: Path,
    command: Command,
    retry: Retry,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path, pytest.MonkeyPatch], None] | None,
) -> None:
    monkeypatch.setenv("FIRST_SEED", "3")
    results, folder = tmp_path / "results", tmp_path / "mine"
    (folder / "cluster").mkdir(parents=True)
    (folder / "cluster" / "mine.yaml").write_text("name: mine\nworkers: 2\n")
    words = ["-m", "seed=${oc.env:FIRST_SEED},5", "cluster=mine", f"--config-dir={folder}", *TIMING]
    said = command(*words, f"results={results}")
    assert said.code == 0, said
    (path,) = (results / "plans").glob("*.json")
    lost, kept = (results / identity for identity in read_plan(path).once())
    shutil.rmtree(lost)
    if change is None:
        assert retry(results).code == 0
        assert status(lost) == FINISHED
        return
    change(folder, monkeypatch)
    line = one_error_line(retry(results))
    assert line.startswith(f"error: {path}: its command makes other runs now (")
    assert {each.name for each in results.iterdir()} == {"plans", kept.name}
    assert list((results / "plans").iterdir()) == [path]
