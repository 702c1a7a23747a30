"""From a plan to its records: what is loaded, when, and what is refused."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from written import ENVIRONMENT, RunInMemory, made_run, write_records
from written import artefact_of as made_of

from reports.exhibits import ArtefactStore, Picture
from reports.papers import PAPERS
from reports.records import Missing, artefact_of, load_artefact
from reports.settings import settings
from syncline.operations.reference import add
from syncline.records.plans import PlannedRun, read_plan
from syncline.records.reference import Reference
from syncline.records.store import RecordError
from tests.refusals import refusal

CONFIG = {
    "strategy": {"name": "dssp", "bound": "paper"},
    "model": {"name": "lenet"},
    "dataset": {"name": "glyphs10", "train_size": 6000, "root": "/secret"},
    "cluster": {"name": "laptop", "workers": 4, "gradient_s": [0.05]},
    "scenario": {"name": "none"},
    "epochs": 2.0,
    "batch_size": 32,
}
SUMMARY = {"time_s": 4.0, "updates": 10}
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
METRICS = [{"time_s": 0.0, "accuracy": 0.1, "loss": 2.0}, {"time_s": 2.0, "accuracy": 0.5, "loss": 1.0}]


MADE_BY = f"commit {ENVIRONMENT['commit']}, {ENVIRONMENT['processor']} with {ENVIRONMENT['cores']} cores, 2026-11-23"


def referred(results: Path, folder: Path) -> Reference:
    """The reference of what is in the results, all of it finished on one day; one plan, of scale smoke."""
    for path in results.glob("*/summary.json"):
        os.utime(path, (NOON, NOON))
    for path in (results / "plans").glob("*.json"):
        add(read_plan(path), folder / "reference")
    return Reference(folder / "reference" / "smoke")


def written(label: str, seed: int, **changes: object) -> RunInMemory:
    return made_run(label, seed, CONFIG | changes, SUMMARY, METRICS)


def test_runs_come_by_label_and_seed_and_what_is_missing_is_named(tmp_path: Path):
    write_records(tmp_path, "dssp/fig3", "smoke", [written(label, seed) for label in "ab" for seed in (0, 1)], {})
    (tmp_path / "b-1" / "summary.json").unlink()
    artefact = load_artefact("dssp/fig3", "smoke", tmp_path)
    assert {label: [run.seed for run in runs] for label, runs in artefact.rows().items()} == {"a": [0, 1], "b": [0]}
    assert [str(missing) for missing in artefact.missing] == ["b seed 1"]
    assert artefact.sample(artefact.rows()["b"], lambda run: run.summary["time_s"]).values == (4.0, None)


def test_a_damaged_run_is_named_and_the_reference_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_records(tmp_path, "dssp/fig3", "smoke", [written("a", seed) for seed in (0, 1)], {})
    reference = referred(tmp_path, tmp_path)
    (tmp_path / "a-1" / "metrics.jsonl").write_text("")
    artefact = load_artefact("dssp/fig3", "smoke", tmp_path, reference)
    assert [run.record.origin for run in artefact.runs] == ["results", "reference"]
    assert f"{tmp_path}/a-1: damaged record: metrics.jsonl " in capsys.readouterr().err
    alone = load_artefact("dssp/fig3", "smoke", tmp_path)
    assert [str(missing) for missing in alone.missing] == ["a seed 1"]


def test_a_row_of_the_frame_has_a_value_of_each_axis():
    """Labels end with the arm or `timing`; of an axis that a label does not name the value is empty."""
    labels = ("alexnet/asp", "alexnet/asp/clock", "alexnet/asp/own", "alexnet/asp/timing")
    made = made_of("dssp/fig3", [made_run(label, seed, CONFIG, SUMMARY) for label in labels for seed in (0, 1)])
    frame = made.frame.drop(columns=["run", "seed"]).drop_duplicates()
    assert [list(row) for row in frame.itertuples(index=False)] == [
        ["alexnet/asp", "alexnet", "asp", "", "same", False],
        ["alexnet/asp/clock", "alexnet", "asp", "clock", "same", False],
        ["alexnet/asp/own", "alexnet", "asp", "", "own", False],
        ["alexnet/asp/timing", "alexnet", "asp", "", "", True],
    ]
    found = made.by("paradigm", "reading", timed=False, arm="same")
    assert {key: [run.label for run in runs] for key, runs in found.items()} == {
        ("asp", ""): ["alexnet/asp"] * 2,
        ("asp", "clock"): ["alexnet/asp/clock"] * 2,
    }
    assert list(made.by("paradigm", timed=True)) == ["asp"]
    assert made.by("paradigm", network="resnet50") == {}


def test_a_label_with_more_parts_than_axes_is_named():
    made = made_of("dssp/table1", [made_run("alexnet/asp", 0, CONFIG, SUMMARY)])
    with pytest.raises(RecordError, match=r"^dssp-table1-laptop: .*alexnet/asp; make dssp-table1"):
        _ = made.frame


def test_a_plan_of_a_sweep_is_no_artefact() -> None:
    """One run would stand for all of a row's."""
    planned = [PlannedRun("bsp", 0, f"rate-{rate}", []) for rate in (0.1, 0.2)]
    with pytest.raises(RecordError, match="dssp-fig3-smoke: its plan is of a sweep: bsp has several runs of seed 0"):
        artefact_of("dssp/fig3", "smoke", {}, planned, [])


@pytest.mark.parametrize(
    ("name", "label"),
    [("dssp/table1", "bsp/timing"), ("dssp/fig4", "bsp/timing"), ("dssp/fig3", "bsp/timing"), ("backup/charlm", "x")],
)
def test_an_artefact_whose_runs_are_not_enough_is_one_line(tmp_path: Path, name: str, label: str) -> None:
    write_records(tmp_path, name, "smoke", [written(label, 0, gradients=False)], {})
    paper, _, own = name.partition("/")
    line = refusal(RecordError, PAPERS[paper].exhibit, own, ArtefactStore(tmp_path, "smoke").artefact(name))
    assert line.startswith(f"{paper}-{own}-smoke: not complete, or not part of this scale: ")


def test_a_store_loads_an_artefact_once(tmp_path: Path):
    write_records(tmp_path, "dssp/fig3", "smoke", [written("a", 0)], {})
    store = ArtefactStore(tmp_path, "smoke")
    assert store.artefact("dssp/fig3") is store.artefact("dssp/fig3")
    with pytest.raises(RecordError, match="make dssp-table1 SCALE=smoke"):
        store.artefact("dssp/table1")


def test_configs_and_curves_are_read_when_they_are_asked_for(tmp_path: Path):
    """Most of a thousand runs are shown by their summaries alone."""
    write_records(tmp_path, "dssp/fig3", "laptop", [written("a", 0)], {})
    (run,) = load_artefact("dssp/fig3", "laptop", tmp_path).runs
    (tmp_path / "a-0" / "config.json").unlink()
    with pytest.raises(RecordError):
        _ = run.config
    (tmp_path / "a-0" / "metrics.jsonl").write_text('{"time_s": 1.0, "accuracy": 0.9}\n')
    assert run.metrics == [{"time_s": 1.0, "accuracy": 0.9}]


def test_settings_tell_what_is_shared_and_what_differs_and_the_readings(tmp_path: Path):
    hard = {"strategy": {"name": "dssp", "bound": "hard"}}
    alone = {"gradients": False, "epochs": 200.0, "cluster": {"name": "v100", "workers": 16}}
    runs = [written("a", 0), written("a", 1), written("b", 0, **hard), written("b/timing", 0, **hard, **alone)]
    write_records(tmp_path, "dssp/fig3", "smoke", runs, {})
    rows = dict(settings(load_artefact("dssp/fig3", "smoke", tmp_path)).texts())
    assert rows["runs"] == "3 with gradients, 1 of times alone"
    assert rows["network"] == "lenet"
    assert rows["data"] == "glyphs10 (train_size 6000)", "where data lie says nothing of the run"
    assert rows["epochs"] == "2"
    assert rows["seeds"] == "0, 1"
    assert rows["reading: strategy.bound"].startswith("paper; hard (")
    assert "reading: strategy.tag" not in rows


def test_what_the_results_lack_is_of_the_reference_run_by_run(tmp_path: Path) -> None:
    results, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    write_records(elsewhere, "dssp/fig3", "smoke", [written(label, seed) for label in "ab" for seed in (0, 1)], {})
    reference = referred(elsewhere, tmp_path)
    whole = load_artefact("dssp/fig3", "smoke", results, reference)
    assert (len(whole.runs), whole.missing) == (4, [])
    assert whole.origins == f"Runs: 0 from results, 4 from the reference ({MADE_BY})"
    assert f"{whole.origins}." in whole.closing_notes
    own = [made_run("a", 0, CONFIG, SUMMARY | {"time_s": 8.0}, METRICS), written("c", 0)]
    write_records(results, "dssp/fig3", "smoke", own, {})
    mixed = load_artefact("dssp/fig3", "smoke", results, reference)
    assert list(mixed.rows()) == ["a", "c"], "the plan of the results counts"
    assert mixed.runs[0].time_s == 8.0, "and so does its run"
    assert mixed.origins == "Runs: 2 from results, 0 from the reference"
    write_records(results, "dssp/fig3", "smoke", [written("a", seed) for seed in (0, 1, 2)], {})
    for seed in (1, 2):
        (results / f"a-{seed}" / "summary.json").unlink()
    partial = load_artefact("dssp/fig3", "smoke", results, reference)
    assert [(run.seed, run.record.origin) for run in partial.runs] == [(0, "results"), (1, "reference")]
    assert partial.missing == [Missing("a", 2)]
    assert partial.origins == f"Runs: 1 from results, 1 from the reference ({MADE_BY})"


def test_a_store_shows_the_reference_of_its_scale_alone(tmp_path: Path) -> None:
    write_records(tmp_path / "elsewhere", "dssp/fig3", "smoke", [written("a", 0)], {})
    referred(tmp_path / "elsewhere", tmp_path)
    smoke, laptop = (ArtefactStore(tmp_path / "none", scale, tmp_path / "reference") for scale in ("smoke", "laptop"))
    assert (smoke.has_plans, laptop.has_plans) == (True, False)
    assert (smoke.origins(), laptop.origins()) == ("", "")
    assert len(smoke.artefact("dssp/fig3").runs) == 1
    assert smoke.origins() == smoke.origins("dssp") == f"Runs: 0 from results, 1 from the reference ({MADE_BY})"
    assert smoke.origins("psp") == ""
    with pytest.raises(RecordError, match="make dssp-fig3 SCALE=laptop"):
        laptop.artefact("dssp/fig3")


def test_a_timeline_needs_its_log(tmp_path: Path) -> None:
    write_records(tmp_path / "elsewhere", "dssp/fig3", "smoke", [written("a", 0)], {})
    for reference in (None, referred(tmp_path / "elsewhere", tmp_path)):
        (run,) = load_artefact("dssp/fig3", "smoke", tmp_path / ("none" if reference else "elsewhere"), reference).runs
        with pytest.raises(RecordError, match="event"):
            Picture("who waits", run)
