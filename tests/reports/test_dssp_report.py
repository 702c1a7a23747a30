"""DSSP's table and figure from small records written here: what is published stays, what is ours is computed."""

import json
from pathlib import Path

import pytest
import yaml

from reports.__main__ import main
from reports.dssp import fig4, table1, targets, time_to
from reports.records import load_artefact, published
from syncline.records.store import FORMAT, RecordError

CONFIG = {
    "format": FORMAT,
    "model": {"name": "resnet", "depth": 8},
    "dataset": {"name": "glyphs100", "train_size": 4000},
    "cluster": {"workers": 2, "gradient_s": [0.051, 0.158]},
    "optimizer": {"lr": 0.05, "schedule": {"factor": 0.1, "at_epochs": [2]}},
    "epochs": 3.0,
    "batch_size": 32,
    "eval_every_epochs": 1.0,
    "lr_clock": "samples",
    "async_gradient": "mean",
    "momentum": "torch",
}

CURVES = {  # label -> seed -> (times, accuracies)
    "bsp": {0: ([0, 10, 20, 30], [0.1, 0.2, 0.29, 0.295]), 1: ([0, 10, 20, 30], [0.1, 0.2, 0.3, 0.31])},
    "dssp_s3_r12": {0: ([0, 5, 10, 15], [0.1, 0.2, 0.3, 0.31]), 1: ([0, 5, 10, 15], [0.1, 0.2, 0.25, 0.31])},
}


def write_records(results: Path, scale: str = "laptop", goal: str = "best_of_bsp") -> None:
    runs = []
    for label, by_seed in CURVES.items():
        for seed, (times, accuracies) in by_seed.items():
            folder = results / f"{label}-{seed}"
            folder.mkdir(parents=True)
            (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
            rows = [{"time_s": t, "accuracy": a} for t, a in zip(times, accuracies, strict=True)]
            (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            summary = {
                "format": FORMAT,
                "engine": "simulation",
                "time_kind": "virtual",
                "time_s": times[-1],
                "max_lead": 4,
                "mean_staleness": 0.5,
                "best": {"accuracy": {"value": max(accuracies)}},
            }
            (folder / "summary.json").write_text(json.dumps(summary))
            runs.append({"label": label, "seed": seed, "identity": f"{label}-{seed}", "overrides": []})
    (results / "plans").mkdir()
    for artefact in ("table1", "fig4"):
        plan = {"name": f"dssp/{artefact}", "scale": scale, "report": {"targets": {scale: goal}}, "runs": runs}
        (results / "plans" / f"dssp-{artefact}-{scale}.json").write_text(json.dumps(plan))


@pytest.fixture
def results(tmp_path) -> Path:
    write_records(tmp_path)
    return tmp_path


def test_the_targets_are_the_best_of_bsp_and_a_point_above_it_for_each_seed(results):
    """0.295 is cut to 0.29 as the paper's 0.67 is; the row that first reaches it is at 20 s."""
    assert targets(load_artefact("dssp/table1", "laptop", results)) == {0: (0.29, 0.30), 1: (0.31, 0.32)}


def test_the_times_are_those_of_the_first_evaluation_that_reaches_the_target(results):
    run = load_artefact("dssp/table1", "laptop", results).rows()["dssp_s3_r12"][0]
    assert time_to(run, 0.2) == 5
    assert time_to(run, 0.3) == 10
    assert time_to(run, 0.99) is None


def test_the_table_sets_the_published_beside_ours(results):
    table = table1(load_artefact("dssp/table1", "laptop", results))
    bsp, dssp = table.texts()
    assert bsp[:3] == ["BSP", "6,159.2", "—"]
    assert dssp[:3] == ["DSSP s_L=3, r=12", "3,016.4", "3,046.3"]
    assert bsp[4] == "25.0 ± 7.1"  # 20 and 30 s
    assert dssp[4] == "12.5 ± 3.5"  # 10 and 15 s
    assert dssp[5] == "10.0 (1/2)"
    assert dssp[6] == "0.49"  # 3016.4 / 6159.2
    assert dssp[7] == "0.50 ± 0.00"
    assert any("mean ± sample standard deviation" in note for note in table.notes)
    assert any("make dssp-table1 SCALE=laptop" in note for note in table.notes)


def test_at_the_papers_own_scale_the_targets_are_the_published_ones(tmp_path):
    write_records(tmp_path, "paper", "published")
    assert targets(load_artefact("dssp/table1", "paper", tmp_path)) == {0: (0.67, 0.68), 1: (0.67, 0.68)}


def test_a_missing_run_is_named_in_the_table(results):
    (results / "dssp_s3_r12-1" / "summary.json").unlink()
    artefact = load_artefact("dssp/table1", "laptop", results)
    assert artefact.missing == ["dssp_s3_r12 seed 1"]
    assert any("NOT COMPLETE" in note and "dssp_s3_r12 seed 1" in note for note in table1(artefact).notes)


def test_a_newer_or_broken_record_is_refused(results):
    path = results / "bsp-0" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": FORMAT + 1}))
    with pytest.raises(RecordError, match=f"record format {FORMAT + 1}, this version reads {FORMAT}"):
        load_artefact("dssp/table1", "laptop", results)
    path.write_text("{")
    with pytest.raises(RecordError, match="broken record"):
        load_artefact("dssp/table1", "laptop", results)


def test_the_figure_names_its_axes_and_every_curve_and_is_the_same_each_time(results, tmp_path_factory):
    artefact = load_artefact("dssp/fig4", "laptop", results)
    svg, png = fig4(artefact, results / "reports", "f")
    text = svg.read_text()
    for words in ("virtual time, s", "test accuracy", "BSP", "DSSP s_L=3, r=12", "2 seeds"):
        assert words in text
    assert png.read_bytes().startswith(b"\x89PNG")
    again, _ = fig4(artefact, tmp_path_factory.mktemp("again"), "f")
    assert again.read_text() == text


def test_the_command_writes_and_prints_all_forms(results, capsys):
    assert main(["dssp/table1", "--results", str(results)]) == 0
    assert "6,159.2" in capsys.readouterr().out
    assert {path.suffix for path in (results / "reports").iterdir()} == {".md", ".csv", ".tex"}
    assert main(["dssp/fig4", "--results", str(results)]) == 0
    assert {path.suffix for path in (results / "reports").iterdir()} == {".md", ".csv", ".tex", ".svg", ".png"}


def test_without_a_plan_one_line_says_what_to_do(tmp_path, capsys):
    assert main(["dssp/table1", "--scale", "gpu", "--results", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "make dssp-table1 SCALE=gpu" in said
    assert said.count("\n") == 1


def test_the_published_rows_are_the_papers():
    """dssp.txt, Table I."""
    rows = published("dssp")["table1"]["rows"]
    assert rows["asp"] == [2993.1, 3017.2]
    assert rows["ssp_s15"] == [5564.9, 7255.6]
    assert [label for label, (_, high) in rows.items() if high is None] == ["bsp", "ssp_s3"]
