"""What a scale has to show, and the words that ask for it."""

from pathlib import Path

import pytest

from reports.exhibits import ArtefactStore
from runners.commands import main
from syncline.records.studies import WrittenStudy, study_path, write_study


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
