"""A record that is not as its run left it: named by every command alike, beside all that is whole; made again by its
own command."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import made, without_wall_time

from runners.commands import main
from runners.one import run_one
from syncline.config import compose
from syncline.plan import Entry, Plan
from syncline.records.events import read_events
from syncline.records.outcomes import read_outcome
from syncline.records.sources import ResultsFolder
from syncline.records.store import FAILED, FINISHED, RecordError, read_metrics, read_summary, status

WORDS = ["dataset=digits", "model=mlp", "max_updates=4", "cluster.workers=2", "eval_every_epochs=0.01"]
RUNS = {name: [*WORDS, f"strategy={name}"] for name in ("asp", "bsp")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a plan of two runs."""
    results = tmp_path_factory.mktemp("whole")
    for words in RUNS.values():
        made(results, *words)
    entries = [Entry(name, tuple(words), compose(words)[0]) for name, words in RUNS.items()]
    Plan("sweep", "", tuple(entries), {}).write(results)
    return results


@pytest.fixture
def results(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "results"))


def record(results: Path, name: str) -> Path:
    return results / compose(RUNS[name])[0].identity


def cut(name: str) -> Callable[[Path], object]:
    """The last line of a file is lost."""

    def damage(folder: Path) -> None:
        lines = (folder / name).read_bytes().splitlines(keepends=True)
        (folder / name).write_bytes(b"".join(lines[:-1]))

    return damage


def changed(name: str, old: bytes, new: bytes) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        assert old in content
        (folder / name).write_bytes(content.replace(old, new))

    return damage


def replaced(folder: Path) -> None:
    """By the record of the other run."""
    shutil.rmtree(folder)
    shutil.copytree(record(folder.parent, "bsp"), folder)


LATER = "is not as it was when the run finished"
DAMAGES = {
    "of another run": (replaced, "it is the record of bsp-"),
    "summary cut off": (cut("summary.json"), "summary.json is broken (JSONDecodeError)"),
    "summary changed": (changed("summary.json", b'"updates": 4', b'"updates": 5'), f"summary.json {LATER}"),
    "config missing": (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
    "curve missing": (lambda folder: (folder / "metrics.jsonl").unlink(), "metrics.jsonl is missing"),
    "curve cut off": (cut("metrics.jsonl"), f"metrics.jsonl {LATER}"),
    "curve changed": (changed("metrics.jsonl", b'"epoch": 0.0,', b'"epoch": 1.0,'), f"metrics.jsonl {LATER}"),
    "events cut off": (lambda folder: (folder / "events.arrow").write_bytes(b"x"), f"events.arrow {LATER}"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_named_by_every_command_and_mended_by_the_runs_own(
    results: Path,
    damage: Callable[[Path], object],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    folder, other = record(results, "asp"), record(results, "bsp")
    before = without_wall_time([read_summary(folder), *read_metrics(folder)])
    damage(folder)

    def said(*command: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main([*command, "--results", str(results)]) == code
        return "".join(capsys.readouterr())

    assert (status(folder), status(other)) == (FAILED, FINISHED)
    with pytest.raises(RecordError, match="damaged record"):
        read_summary(folder)
    (plan,) = json.loads(said("status", "--runs", "--json"))["plans"]
    states = {run["identity"]: (run["state"], words in (run["cause"] or "")) for run in plan["runs"]}
    assert states == {folder.name: ("failed", True), other.name: ("finished", False)}
    shown = said("show", folder.name)
    assert shown.startswith(f"{folder.name}: failed damaged record: ")
    assert words in shown
    assert words in said("clean")
    if (folder / "config.json").exists():
        assert words in said("compare", folder.name, other.name, code=1)
    assert read_outcome(folder).status == "failed"
    assert ResultsFolder(results).record(folder.name) is None
    assert words in capsys.readouterr().err

    run_one(compose(RUNS["asp"])[0], results, lambda progress: None)
    assert words in capsys.readouterr().err
    assert status(folder) == FINISHED
    assert without_wall_time([read_summary(folder), *read_metrics(folder)]) == before


def test_a_large_file_is_compared_when_it_is_read(results: Path) -> None:
    path = record(results, "asp") / "events.arrow"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    assert status(path.parent) == FINISHED
    with pytest.raises(RecordError, match=rf"events.arrow: {LATER[3:]}; rerun=true"):
        read_events(path)


def test_a_summary_that_does_not_list_its_files_is_damaged(results: Path) -> None:
    folder = record(results, "asp")
    summary = json.loads((folder / "summary.json").read_text())
    del summary["files"]
    (folder / "summary.json").write_text(json.dumps(summary))
    assert status(folder) == FAILED
