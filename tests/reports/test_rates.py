"""Accuracy against the rate of rows that were tuned: where a row's edge is, and how far edges are apart."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from written import made_run, write_records

from reports.rates import KEPT, TunedRow, rates
from reports.tables import Table
from syncline.records.sources import ResultsFolder
from syncline.records.store import RecordError
from syncline.records.studies import WrittenStudy

GRID = [0.001 * 2.0**step for step in range(12)]


def test_the_edge_lies_between_two_rates_where_a_fifth_is_lost() -> None:
    skills = dict(zip(GRID, [0.5, 0.9, 1.0, 0.9, 0.7, 0.1, *[0.0] * 6], strict=True))
    found = TunedRow("dssp/fig3 (bsp)", 1.0, 0.9, skills)
    assert found.best == GRID[2]
    assert found.edge == pytest.approx(GRID[3] * 2.0 ** ((0.9 - KEPT) / 0.2))
    assert found.scale == pytest.approx(20.0)


def test_a_row_whose_grid_ends_before_has_no_edge() -> None:
    rising = {rate: rate / GRID[-1] for rate in GRID}
    assert TunedRow("dssp/fig3 (bsp)", 0.0, 0.9, rising).edge is None


def test_without_a_study_of_rates_one_line_says_so() -> None:
    with pytest.raises(RecordError, match="no study has tuned the rates of several rows"):
        rates([], [])


def tuned(results: Path, rows: Mapping[str, Sequence[float | None]], config: Mapping[str, Any]) -> WrittenStudy:
    """A study of rows by their scores along GRID, with a run of each row."""
    curve = [{"time_s": 0.0, "accuracy": 0.2}, {"time_s": 1.0, "accuracy": 0.5}]
    summary = {"mean_staleness": 1.0}
    runs = [made_run(f"{label}/optimizer.lr={GRID[0]}/screen", 1000, config, summary, curve) for label in rows]
    write_records(results, "dssp/table1", "laptop", runs, {})
    declared = [{"label": label, "baseline": None, "settings": []} for label in rows]
    scores = [
        {"label": label, "at": at, "mean": mean}
        for label, means in rows.items()
        for at, mean in zip(GRID, means, strict=False)
    ]
    declaration, stages = {"key": "optimizer.lr", "rows": declared}, [{"name": "screen 1", "scores": scores}]
    return WrittenStudy("tune", "net", "laptop", "dssp-table1-laptop", ["tune"], declaration, stages, None, {})


SGD = {"optimizer": {"momentum": 0.0}, "model": {"name": "net"}}
RISEN = [0.6, 1.0, 0.4]


def edges(results: Path, rows: Mapping[str, Sequence[float | None]], config: Mapping[str, Any]) -> list[Any]:
    shown = rates([tuned(results, rows, config)], [ResultsFolder(results)])[""]
    assert isinstance(shown, Table)
    return shown.rows


def test_rows_are_compared_where_they_have_learned_on_data_that_are_not_ours_too(tmp_path: Path) -> None:
    config = {**SGD, "dataset": {"name": "waves"}}  # whose classes nobody knows: chance is before training
    found = edges(tmp_path, {"bsp": RISEN, "asp": RISEN, "ssp": [None, None, None]}, config)
    assert [row[:3] for row in found] == [
        [name, kind, 2.0] for name in ("net on waves", "all") for kind in ("all rows", "with staleness")
    ]


def test_rates_of_adam_have_no_such_number(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no study has tuned"):
        edges(tmp_path, {"bsp": RISEN, "asp": RISEN, "ssp": RISEN}, {**SGD, "optimizer": {"name": "adam"}})


def test_numbers_of_settings_are_no_rates(tmp_path: Path) -> None:
    study = tuned(tmp_path, {"bsp": RISEN, "asp": RISEN, "ssp": RISEN}, SGD)
    study.declaration["rows"][0]["settings"] = [["optimizer.lr=0.1"]]
    with pytest.raises(RecordError, match="no study has tuned"):
        rates([study], [ResultsFolder(tmp_path)])
