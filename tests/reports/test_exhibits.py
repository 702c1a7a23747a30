"""A figure is drawn again when its drawing would differ, and only then."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import reports.exhibits
from reports.exhibits import ArtefactStore, written
from reports.figures import FORMATS, Figure, Panel, Series
from runners.commands import main
from syncline.records.studies import WrittenStudy, study_path, write_study

SVG = ["svg"]
FIGURE = Figure("A line", [Panel("virtual time, s", "accuracy", [Series("BSP", [0.0, 1.0], [0.1, 0.9])])])


def sketched(self: Figure, folder: Path, stem: str, formats: Sequence[str]) -> list[Path]:
    """The files of a figure, without its drawing: `test_figures.py` shows that."""
    files = [folder / f"{stem}.{suffix}" for suffix in (*formats, "csv")]
    for path in files:
        path.write_text(self.title)
    return files


@pytest.fixture(autouse=True)
def _without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure, "write", sketched)


def test_what_is_drawn_already_is_not_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = written(FIGURE, tmp_path, "one", FORMATS)
    assert [path.name for path in files] == [f"one.{suffix}" for suffix in (*FORMATS, "csv")]
    assert all(path.exists() for path in files)
    monkeypatch.delattr(Figure, "write")
    assert written(FIGURE, tmp_path, "one", SVG) == files, "the pages offer what there is"


def test_a_figure_is_drawn_in_the_formats_that_are_asked_for(tmp_path: Path) -> None:
    pages = written(FIGURE, tmp_path, "one", SVG)
    assert [path.name for path in pages] == ["one.svg", "one.csv"]
    assert {path.name for path in tmp_path.iterdir()} == {"one.svg", "one.csv", "one.drawn"}
    assert all(path.exists() for path in written(FIGURE, tmp_path, "one", FORMATS))


@pytest.mark.parametrize(
    "other",
    [
        replace(FIGURE, title="Another line"),
        replace(FIGURE, columns=1),
        replace(FIGURE, panels=[replace(FIGURE.panels[0], log_y=True)]),
        replace(FIGURE, panels=[replace(FIGURE.panels[0], series=[Series("BSP", [0.0, 1.0], [0.1, 0.9 + 1e-15])])]),
    ],
)
def test_a_figure_that_shows_something_else_is_drawn(tmp_path: Path, other: Figure) -> None:
    first, *_ = written(FIGURE, tmp_path, "one", SVG)
    first.write_text("old")
    written(other, tmp_path, "one", SVG)
    assert first.read_text() != "old"
    first.write_text("old")
    written(FIGURE, tmp_path, "one", SVG)
    assert first.read_text() != "old", "what lies there is of the other"


@pytest.mark.parametrize("lost", ["one.svg", "one.csv", "one.drawn"])
def test_what_is_not_all_there_is_drawn(tmp_path: Path, lost: str) -> None:
    first, *_ = written(FIGURE, tmp_path, "one", SVG)
    first.write_text("old")
    (tmp_path / lost).unlink()
    assert all(path.exists() for path in written(FIGURE, tmp_path, "one", SVG))
    assert first.read_text() != "old"


def test_an_interrupted_drawing_is_not_taken_for_a_finished_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(FIGURE, tmp_path, "one", SVG)
    other = replace(FIGURE, title="Another line")

    def interrupted(self: Figure, folder: Path, stem: str, formats: Sequence[str]) -> list[Path]:
        (folder / f"{stem}.svg").write_text("half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Figure, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            written(other, tmp_path, "one", SVG)
    first, *_ = written(FIGURE, tmp_path, "one", SVG)
    assert first.read_text() != "half"


def test_with_other_code_all_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = written(FIGURE, tmp_path, "one", SVG)
    first.write_text("old")
    monkeypatch.setattr(reports.exhibits, "_drawing_code", lambda: "another")
    written(FIGURE, tmp_path, "one", SVG)
    assert first.read_text() != "old"


def test_a_broken_study_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = WrittenStudy("race", "race", "smoke", "race-a", [], {}, [], None, {})
    write_study(study_path(tmp_path, "race-a"), study)
    write_study(study_path(tmp_path, "race-c"), study)
    study_path(tmp_path, "race-b").write_text("{")
    store = ArtefactStore(tmp_path, "smoke")
    assert [path.stem for path in store.studies()] == ["race-a", "race-c"]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"left out: {study_path(tmp_path, 'race-b')}: broken study")


def test_what_only_docs_takes_is_refused_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--check", "dssp/table1"]) == 1
    assert capsys.readouterr().err == "error: --check goes with docs\n"
