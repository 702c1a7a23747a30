"""Tuning from the command line: which rows, what is refused, and small studies to their answer."""

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from commands import Command, one_error_line, started, wait_for, without_wall_time
from studies.made import SMALL, finish

from reports.__main__ import main as reports
from runners.study import Made, ask
from runners.tuning import declared_tuning
from syncline.__main__ import main
from syncline.config import ConfigError, compose
from syncline.plan import grid
from syncline.records.plans import read_plan
from syncline.records.reference import Reference
from syncline.records.store import FINISHED, read_metrics, status
from syncline.records.studies import read_study
from syncline.studies.study import Stage
from syncline.studies.tune import Tuning


def tuning(*words: str) -> Tuning:
    study = declared_tuning(["+tune=rate", *words])[0].study
    assert isinstance(study, Tuning)
    return study


def only_study(results: Path) -> Path:
    (path,) = (results / "studies").glob("*.json")
    return path


# What is declared.


def test_the_rows_of_a_sweep_are_its_combinations() -> None:
    study = tuning("strategy=ssp,bsp", "model=lenet,resnet8", "optimizer.lr=0.02", "seed=5", "results=/x", "jobs=2")
    assert [(row.label, row.baseline) for row in study.rows] == [
        ("strategy=ssp model=lenet", "strategy=bsp model=lenet"),
        ("strategy=ssp model=resnet8", "strategy=bsp model=resnet8"),
        ("strategy=bsp model=lenet", "strategy=bsp model=lenet"),
        ("strategy=bsp model=resnet8", "strategy=bsp model=resnet8"),
    ]
    assert study.rows[0].overrides == ("strategy=ssp", "model=lenet", "optimizer.lr=0.02")
    assert {(row.center, row.epochs) for row in study.rows} == {(0.02, 30.0)}


def test_options_of_slurm_are_no_part_of_a_row() -> None:
    words = ("strategy=bsp", "runner=slurm", "runner.partition=gpu")
    assert tuning(*words).rows[0].overrides == ("strategy=bsp",)
    assert declared_tuning(["+tune=rate", *words])[1].launcher.partition == "gpu"  # type: ignore[union-attr]


def test_an_experiments_file_declares_and_the_command_line_has_the_last_word() -> None:
    study = tuning("+experiment=dssp/table1", "scale=workstation")
    assert [row.label for row in study.rows] == ["bsp", "asp", "ssp_s3", "dssp_s3_r12"]
    assert {row.baseline for row in study.rows} == {"bsp"}
    assert study.seeds == (1000, 1001)
    assert {row.epochs for row in study.rows} == {15.0}
    study = tuning("+experiment=dssp/table1", "scale=workstation", "tune.rows=[asp]", "tune.center={asp: 0.3}")
    assert [(row.label, row.center, row.baseline) for row in study.rows] == [("asp", 0.3, None)]


def test_rows_of_times_alone_are_not_tuned_and_a_baseline_is_of_its_own_group() -> None:
    study = tuning("+experiment=dssp/fig3", "scale=smoke")
    assert len(study.rows) > 10
    assert not [row.label for row in study.rows if row.label.endswith("/timing")]
    for row in study.rows:
        if row.baseline is not None:
            assert row.baseline.rpartition("/")[0] == row.label.rpartition("/")[0]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("tune.seeds=[0,7]", "tune.seeds must not be seeds that judge, got 0 in both"),
        ("seed=999,1000,1001", "tune.seeds must not be seeds that judge, got 1000, 1001 in both"),
        ("scale.seeds=[1002]", "tune.seeds must not be seeds that judge, got 1002 in both"),
        ("tune.baseline=psp", "tune.baseline must be of strategy=ssp, strategy=bsp; got psp"),
        ("tune.rows=[x]", "tune.rows must be of strategy=ssp, strategy=bsp; got x"),
        ("tune.center={x: 0.1}", "tune.center must be of parts of strategy=ssp, strategy=bsp; got x"),
        ("gradients=false", "+tune needs runs that learn: all of these have gradients=false"),
        ("tune.points=4", "tune.points must be odd and >= 3, got 4"),
        ("tune.screen=2", "tune.screen must be in (0, 1], as 1/3, got 2"),
        ("tune.screen=soon", "tune.screen must be in (0, 1], as 1/3, got soon"),
        ("tune.finalists=8", "tune.finalists must be in 1 .. 7, got 8"),
        ("tune.center=-1", "tune.center must be a number > 0, {part of a label: number} or null, got -1"),
        (
            "tune.key=optimizer.weight_decay",
            "tune.key must be a key with a number > 0, or tune.center be set: "
            "optimizer.weight_decay of strategy=ssp is 0.0",
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_line(words: str, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        tuning("strategy=ssp,bsp", words)
    assert str(error.value) == line


def test_the_seeds_of_further_looks_are_seeds_that_judge() -> None:
    for seed in (5, 19):
        with pytest.raises(ConfigError, match=rf"tune.seeds must not be seeds that judge, got {seed} in both"):
            tuning("+experiment=psp/table1", "scale=workstation", f"tune.seeds=[{seed},1003]")
    assert tuning("+experiment=psp/table1", "scale=workstation", "tune.seeds=[20]").seeds == (20,)


def test_a_plus_before_a_seed_changes_nothing() -> None:
    with pytest.raises(ConfigError, match="got 1000 in both"):
        tuning("strategy=ssp,bsp", "+seed=1000", "tune.seeds=[1000]")
    assert tuning("strategy=ssp,bsp", "+seed=0") == tuning("strategy=ssp,bsp", "seed=0")


def test_the_seeds_of_an_experiment_at_any_scale_are_seeds_that_judge() -> None:
    assert 4 in compose(["+experiment=dssync/table2"])[1].experiment["seeds"]["paper"]
    with pytest.raises(ConfigError, match="got 4 in both"):
        tuning("+experiment=dssync/table2", "scale=smoke", "tune.seeds=[4,1000]")


def test_tuning_takes_one_experiment(command: Command) -> None:
    said = command("+tune=rate", "+experiment=dssp", "scale=smoke")
    assert one_error_line(said) == "error: +tune goes with one experiment, got dssp; --help lists them"


# Small studies.


def answer_of(results: Path) -> dict[str, Any]:
    answer = read_study(only_study(results)).answer
    assert answer is not None
    return answer


def test_a_study_ends_with_a_table_and_words_to_paste_and_is_not_made_twice(tmp_path: Path, command: Command) -> None:
    words = [*SMALL, f"results={tmp_path}", "jobs=1"]
    said = command(*words)
    assert said.code == 0, said.err
    assert re.search(r"^tune-\w+, screen 1: 6 runs, 0 finished before, 6 to make$", said.err, re.M)
    answer = answer_of(tmp_path)
    assert [choice["label"] for choice in answer["choices"]] == ["strategy=bsp", "strategy=asp"]
    values = [choice["value"] for choice in answer["choices"]]
    assert {choice["same"] for choice in answer["choices"]} == {values[0]}
    for strategy, value in zip(("bsp", "asp"), values, strict=True):
        line = f"strategy={strategy} model=softmax_regression epochs=3 optimizer.lr={value:g}"
        assert line in said.out.splitlines()
        compose(line.split())
    assert f"arm same: optimizer.lr={values[0]:g}" in said.out.splitlines()

    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/summary.json")}
    again = command(*words)
    assert (again.code, again.out) == (0, said.out)
    assert "to make" not in again.err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/summary.json")} == before
    assert command("-m", *words, "--status").out.endswith("has its answer\n")

    repeated = command(*words, "rerun=true")
    assert (repeated.code, repeated.out) == (0, said.out)
    assert all(path.stat().st_mtime_ns > then for path, then in before.items())


def test_a_run_judges_by_held_out_training_data_and_never_by_a_seed_of_its_own(
    tmp_path: Path, command: Command
) -> None:
    assert command(*SMALL, f"results={tmp_path}", "jobs=1").code == 0
    for path in (tmp_path / "plans").glob("*.json"):
        for planned in json.loads(path.read_text())["runs"]:
            config, _ = compose(planned["overrides"])
            assert (config.dataset.validation, config.target.value) == (0.2, None)
            assert config.seed in (7, 8)


def test_a_screening_run_is_the_beginning_of_the_full_one(tmp_path: Path, command: Command) -> None:
    """Its schedule is not compressed: the rate drops within the second of six epochs, the last one of the screening."""
    words = [*SMALL, "strategy=asp", "epochs=6", "optimizer.schedule.at_epochs=[1.5]", f"results={tmp_path}", "jobs=1"]
    assert command(*words).code == 0
    short, full = {}, {}
    for path in (tmp_path / "plans").glob("*.json"):
        for planned in json.loads(path.read_text())["runs"]:
            config, _ = compose(planned["overrides"])
            found = short if config.epochs == 2 else full
            found[config.optimizer.lr, config.seed] = without_wall_time(read_metrics(tmp_path / planned["identity"]))
    both = set(short) & set(full)
    assert both
    for place in both:
        assert [row["learning_rate"] / place[0] for row in short[place]] == pytest.approx([1.0, 1.0, 0.1])
        assert short[place] == full[place][:3]


def test_rows_that_are_the_same_run_are_made_once(tmp_path: Path, command: Command) -> None:
    words = [*SMALL[:1], "batch_size=32,32.0", *SMALL[2:], "tune.seeds=[7]", f"results={tmp_path}", "jobs=1"]
    said = command(*words)
    assert said.code == 0, said
    assert re.search(r", screen 1: 3 runs, 0 finished before", said.err)
    first, second = answer_of(tmp_path)["choices"]
    assert (first["value"], first["score"]) == (second["value"], second["score"])


@pytest.mark.slow
def test_the_same_command_makes_runs_that_failed_again(tmp_path: Path, command: Command) -> None:
    root = tmp_path / "data"
    results = tmp_path / "results"
    words = [*SMALL, "dataset=mnist", f"dataset.root={root}", "jobs=1", f"results={results}"]
    assert command(*words).code == 1
    assert {choice["value"] for choice in answer_of(results)["choices"]} == {None}
    root.mkdir()
    images = np.random.default_rng(0).integers(0, 256, (200, 28, 28), dtype=np.uint8)
    labels = np.arange(200, dtype=np.int64) % 10
    np.savez(root / "mnist.npz", x_train=images, y_train=labels, x_test=images[:50], y_test=labels[:50])
    assert command(*words).code == 0
    assert answer_of(results)["choices"][0]["value"] is not None


def test_status_is_of_the_present_stage_and_starts_nothing(tmp_path: Path, command: Command) -> None:
    said = command(*SMALL, f"results={tmp_path}", "--status")
    assert said.code == 0
    first, *runs = said.out.splitlines()
    assert first.endswith(", screen 1")
    assert [line.split()[0] for line in runs] == ["left"] * 6
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "data",
    [["dataset=cifar10", "dataset.root=empty"], ["dataset=glyphs10", "dataset.train_size=1000000000"]],
    ids=["there are no data", "no memory, and no record"],
)
def test_a_failed_run_is_worst_and_with_fail_fast_the_study_stops(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, data: list[str]
) -> None:
    """Every run fails, and no row has a value."""
    monkeypatch.chdir(tmp_path)
    words = [*SMALL, *data, "jobs=1", "tune.finalists=1"]
    said = command(*words, "fail_fast=true", f"results={tmp_path / 'fast'}")
    assert said.code == 1
    assert read_study(only_study(tmp_path / "fast")).answer is None
    said = command(*words, f"results={tmp_path / 'all'}")
    assert said.code == 1
    assert "strategy=bsp: every value diverged or failed" in said.out
    assert {choice["value"] for choice in answer_of(tmp_path / "all")["choices"]} == {None}


@pytest.mark.slow
def test_a_study_that_is_repeated_gives_no_answer_from_old_records(tmp_path: Path, command: Command) -> None:
    """The data are gone since: every run fails, and its old record stays."""
    words = ["dataset=cifar10", f"dataset.root={tmp_path / 'empty'}", "jobs=1", f"results={tmp_path}"]
    declared, _ = declared_tuning([*SMALL, "tune.finalists=1", *words])
    while isinstance(step := ask(declared, Made(tmp_path)), Stage):
        for trial in step.trials:
            finish(tmp_path, Made(tmp_path).entry(trial).config)
    assert None not in {choice["value"] for choice in answer_of(tmp_path)["choices"]}
    assert command(*SMALL, "tune.finalists=1", *words, "rerun=true").code == 1
    assert {choice["value"] for choice in answer_of(tmp_path)["choices"]} == {None}


@pytest.mark.processes
def test_a_study_that_is_interrupted_goes_on_where_it_was_to_the_same_answer(
    tmp_path: Path, command: Command, ended_at_last: list["subprocess.Popen[str]"]
) -> None:
    words = [*SMALL, "jobs=1"]
    cut = tmp_path / "cut"
    process = started(*words, f"results={cut}")
    ended_at_last.append(process)
    wait_for(lambda: any("/full" in path.read_text() for path in (cut / "plans").glob("*.json")), process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "rerun this command to resume: python run.py +tune=rate" in err
    finished = {path.name for path in cut.iterdir() if status(path) == FINISHED}
    assert len(finished) >= 6
    written = read_study(only_study(cut))
    assert (written.answer, written.present and written.present["name"]) == (None, "full 1")
    assert main(["status", "--results", str(cut)]) == 0

    resumed = command(*words, f"results={cut}")
    assert resumed.code == 0, resumed.err
    assert "screen 1" not in resumed.err
    assert command(*words, f"results={tmp_path / 'whole'}").code == 0
    assert answer_of(cut) == answer_of(tmp_path / "whole")


def test_an_experiments_answer_is_the_block_of_its_file(
    tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["+experiment=dssp/table1", "scale=smoke", "epochs=1", "tune.points=3", "tune.seeds=[77]", "jobs=1"]
    said = command("+tune=rate", *words, "tune.rows=[bsp,asp]", "model=softmax_regression", f"results={tmp_path}")
    assert said.code == 0, said.err
    (line,) = [line for line in said.out.splitlines() if line.startswith("arms: ")]
    experiment = {**compose(words[:1])[1].experiment, **yaml.safe_load(line)}
    answer = answer_of(tmp_path)
    made = dict(grid(experiment, "smoke"))
    for choice in answer["choices"]:
        rates = [word for word in made[choice["label"]] if word.startswith("optimizer.lr=")]
        assert rates[-1] == f"optimizer.lr={choice['same']:g}"
        assert made[f"{choice['label']}/own"][-1] == f"optimizer.lr={choice['value']:g}"
    stem = only_study(tmp_path).stem
    assert stem == "tune-dssp-table1-smoke"

    # Its runs are one plan, which the reference takes with the study; a fresh clone shows both.
    (path,) = (tmp_path / "plans").glob("*.json")
    plan = read_plan(path)
    assert (path.stem, plan.name, plan.scale) == (stem, "tune-dssp/table1", "smoke")
    assert len(plan.runs) == read_study(only_study(tmp_path)).num_trials
    assert len({(run.label, run.seed) for run in plan.runs}) == len(plan.runs)
    assert "bsp/optimizer.lr=0.05/screen" in {run.label for run in plan.runs}
    reference, clone = tmp_path / "reference", tmp_path / "clone"
    places = ["--reference", str(reference), "--results"]
    assert main(["reference", "add", stem, *places, str(tmp_path)]) == 0
    assert set(Reference(reference / "smoke").identities) == set(plan.once())
    capsys.readouterr()
    assert main(["show", stem, *places, str(clone)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"from {reference}/studies/{stem}.json\n")
    assert line in out.splitlines()
    assert reports(["study", stem, *places, str(clone)]) == 0
    assert f"from {reference}/studies/{stem}.json\n" in capsys.readouterr().out
    assert reports(["site", "--scale", "smoke", *places, str(clone)]) == 0
    page = (clone / "site" / "studies.html").read_text()
    assert f"From {reference}/studies/{stem}.json" in page
    assert "Where rows are ahead of their baselines, by optimizer.lr" in page
    assert (clone / "site" / "files" / f"{stem}.svg").exists()
