"""A study's items: at which values a row is ahead of its baseline, which value it chose, which verdicts were found."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reports.figures import Figure
from reports.site import _largest_tuning
from reports.studies import study_exhibit, tuning_figure
from reports.tables import Table
from syncline.records.store import RecordError
from syncline.records.studies import WrittenStudy, read_study, study_path, write_study

RATES = (0.01, 0.02, 0.04, 0.08, 0.16)


def scores(label: str, means: list[float | None], error: float | None, lower: bool = False) -> list[dict[str, Any]]:
    return [
        {"label": label, "at": at, "mean": mean, "error": error, "metric": "accuracy", "lower_is_better": lower}
        for at, mean in zip(RATES, means, strict=True)
    ]


def written(results: Path, stages: dict[str, list[dict[str, Any]]], *baselines: str | None) -> Path:
    study = WrittenStudy(
        *("tune", "dssp/table1", "smoke", "tune-dssp-table1-smoke", ["tune"]),
        {
            "key": "optimizer.lr",
            "rows": [
                {"label": label, "baseline": baseline, "settings": []}
                for label, baseline in zip(("bsp", "asp"), baselines or ("bsp", "bsp"), strict=True)
            ],
        },
        [{"name": name, "num_trials": 0, "scores": own, "decisions": []} for name, own in stages.items()],
        None,
        {"choices": [{"label": "bsp", "value": 0.04, "score": 0.7}, {"label": "asp", "value": 0.02, "score": 0.65}]},
    )
    path = study_path(results, "tune-dssp-table1-smoke")
    write_study(path, study)
    return path


def order(results: Path, stages: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    table = study_exhibit(written(results, stages))["order"]
    assert isinstance(table, Table)
    return table.texts()


BSP: list[float | None] = [0.5, 0.6, 0.7, 0.6, None]


def test_a_row_is_ahead_equal_or_behind_by_the_standard_error_of_the_difference(tmp_path: Path) -> None:
    """sqrt(0.03^2 + 0.04^2) = 0.05; a run that diverged is behind, and one beside a baseline that diverged is ahead."""
    asp: list[float | None] = [0.56, 0.64, 0.66, 0.54, 0.1]
    full = scores("bsp", BSP, 0.03) + scores("asp", asp, 0.04)
    assert order(tmp_path, {"full 1": full}) == [["asp", "bsp", "full", "0.08", "0.02 to 0.04", "0.01, 0.16"]]
    turned = scores("bsp", BSP, 0.03, lower=True) + scores("asp", asp, 0.04, lower=True)
    assert order(tmp_path, {"full 1": turned}) == [["asp", "bsp", "full", "0.01", "0.02 to 0.04", "0.08 to 0.16"]]


def test_values_that_only_one_of_them_has_are_left_out_and_stages_of_a_kind_count_together(tmp_path: Path) -> None:
    screened = scores("bsp", BSP, None) + scores("asp", [0.4, 0.6, 0.8, None, None], None)
    full = scores("bsp", BSP, 0.0)[1:3] + scores("asp", [0.1] * 5, 0.0)[:2]
    found = order(tmp_path, {"screen 1": screened, "full 1": full[:3], "full 2": full[3:]})
    assert found == [
        ["asp", "bsp", "a share, one seed", "0.01, 0.08", "0.02", "0.04"],
        ["asp", "bsp", "full", "0.02", "—", "—"],
    ]


def test_the_chosen_value_of_each_row_is_marked_at_its_score(tmp_path: Path) -> None:
    stage = scores("bsp", BSP, 0.03) + scores("asp", BSP, 0.04)
    figure = study_exhibit(written(tmp_path, {"screen 1": stage, "full 1": stage}))[""]
    assert isinstance(figure, Figure)
    screening, full = figure.panels
    assert not [series for series in screening.series if series.kind == "points"]
    marks = [(series.colour, *series.x, *series.y) for series in full.series if series.kind == "points"]
    assert marks == [(0, 0.04, 0.7), (1, 0.02, 0.65)]
    assert "A mark is the chosen value of its row." in figure.notes


def test_rows_of_each_baseline_have_panels_of_their_own(tmp_path: Path) -> None:
    stage = scores("bsp", BSP, 0.03) + scores("asp", BSP, 0.04)
    figure = study_exhibit(written(tmp_path, {"screen 1": stage, "full 1": stage}, "bsp", "asp"))[""]
    assert isinstance(figure, Figure)
    shown = [[(series.label, series.colour) for series in panel.series if series.label] for panel in figure.panels]
    assert shown == [[("bsp", 0)], [("asp", 0)]] * 2  # of the screening, then of the full length
    assert figure.columns == 2


def test_of_several_keys_there_is_a_panel_each_with_the_rows_that_have_it(tmp_path: Path) -> None:
    settings = [["optimizer.lr=0.1", "optimizer.momentum=0"], ["optimizer.lr=0.4", "optimizer.momentum=0.5"]]
    rows = [{"label": "bsp", "settings": settings}, {"label": "asp", "settings": [own[:1] for own in settings]}]
    screened = [
        {"label": label, "at": at, "mean": mean, "error": None, "metric": "accuracy"}
        for label, at, mean in (("bsp", 1.0, 0.5), ("bsp", 2.0, 0.6), ("asp", 1.0, 0.7), ("asp", 2.0, None))
    ]
    stage = {"name": "screen 1", "num_trials": 4, "scores": screened, "decisions": []}
    answer = {"choices": [{"label": "bsp", "words": settings[1]}]}
    declaration = {"key": "optimizer.lr optimizer.momentum", "rows": [{**row, "baseline": None} for row in rows]}
    path = study_path(tmp_path, "tune-1")
    write_study(path, WrittenStudy("tune", "tune", "", "tune-1", ["tune"], declaration, [stage], None, answer))
    figure = study_exhibit(path)[""]
    assert isinstance(figure, Figure)
    drawn = {panel.x_label: [(list(each.x), list(each.y)) for each in panel.series] for panel in figure.panels}
    assert drawn == {
        "optimizer.lr": [([0.1, 0.4], [0.5, 0.6]), ([0.1], [0.7])],
        "optimizer.momentum": [([0.0, 0.5], [0.5, 0.6]), ([], [])],
    }
    assert figure.notes == ["bsp: optimizer.lr=0.4 optimizer.momentum=0.5."]


def test_without_a_baseline_there_is_the_figure_alone(tmp_path: Path) -> None:
    assert set(study_exhibit(written(tmp_path, {"screen 1": scores("bsp", BSP, None)}, None, None))) == {""}


def test_a_study_that_judges_is_its_table_of_verdicts(tmp_path: Path) -> None:
    claim = {"claim": "dssp.fc_fast", "verdict": "holds", "because": "inside", "num_seeds": 10, "needs": []}
    study = WrittenStudy("judge", "dssp/fig3", "gpu", "dssp-fig3-gpu", [], {}, [], None, None)
    path = study_path(tmp_path, "judge-dssp-fig3-gpu")
    write_study(path, study)
    with pytest.raises(RecordError, match="has no verdicts yet"):
        study_exhibit(path)
    content = json.loads(path.read_text()) | {"answer": {"num_seeds": 10, "claims": [claim]}}
    path.write_text(json.dumps(content))
    table = study_exhibit(path)[""]
    assert isinstance(table, Table)
    assert table.texts() == [["dssp.fc_fast", "holds", "inside", "10"]]


def test_the_first_page_shows_the_study_that_tunes_the_most_rows() -> None:
    def store(**rows: int) -> Any:
        found = {
            Path(f"{name}.json"): WrittenStudy("tune", "", "", name, [], {"rows": [{}] * num}, [], None, None)
            for name, num in rows.items()
        }
        return SimpleNamespace(studies=lambda: found)

    assert _largest_tuning([store(small=2), store(large=12, other=4)]) == ["large"]
    assert _largest_tuning([store()]) == []


def test_what_all_rows_of_a_panel_share_is_its_title(tmp_path: Path) -> None:
    labels = ["strategy=bsp optimizer.momentum=0.9", "strategy=asp optimizer.momentum=0.9"]
    study = read_study(written(tmp_path, {"screen 1": scores("bsp", [0.1, 0.2, 0.3, 0.2, 0.1], None)}))
    for row, label in zip(study.declaration["rows"], labels, strict=True):
        row |= {"label": label, "baseline": labels[0]}
    (panel,) = tuning_figure(study).panels
    assert panel.title.startswith("optimizer.momentum=0.9, ")
    assert [series.label for series in panel.series] == ["strategy=bsp", "strategy=asp"]
