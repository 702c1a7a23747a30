"""Tuning from the command line: which rows, what is refused, and small studies to their answer."""

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from commands import Command, Said, one_error_line, without_wall_time
from studies.made import finish

from reports.exhibits import ArtefactStore
from runners.commands import main
from runners.commands import main as syncline
from runners.study import Made, ask
from runners.tuning import declared_tuning
from syncline.assembly import memory
from syncline.config import ConfigError, RunConfig, compose
from syncline.plan import grid
from syncline.records.plans import read_plan
from syncline.records.reference import Reference
from syncline.records.store import read_metrics
from syncline.records.studies import read_study
from syncline.studies.study import Stage
from syncline.studies.tune import Tuning
from tests.refusals import refusal

pytestmark = pytest.mark.usefixtures("pool_here")


def tuning(*words: str) -> Tuning:
    study = declared_tuning(words)[0].study
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
    assert declared_tuning(words)[1].launcher.partition == "gpu"  # type: ignore[union-attr]


def test_an_experiments_file_declares_and_the_command_line_has_the_last_word() -> None:
    study = tuning("dssp/table1", "scale=workstation")
    assert [row.label for row in study.rows] == ["bsp", "asp", "ssp_s3", "dssp_s3_r12"]
    assert {row.baseline for row in study.rows} == {"bsp"}
    assert study.seeds == (1000, 1001, 1002)
    assert {row.epochs for row in study.rows} == {15.0}
    study = tuning("dssp/table1", "scale=workstation", "tune.rows=[asp]", "tune.center={asp: 0.3}")
    assert [(row.label, row.center, row.baseline) for row in study.rows] == [("asp", 0.3, None)]


def test_rows_of_times_alone_are_not_tuned_and_a_baseline_is_of_its_own_group() -> None:
    study = tuning("dssp/fig3", "scale=smoke")
    assert len(study.rows) > 10
    assert not [row.label for row in study.rows if row.label.endswith("/timing")]
    for row in study.rows:
        if row.baseline is not None:
            assert row.baseline.rpartition("/")[0] == row.label.rpartition("/")[0]


def test_settings_of_several_keys_lie_in_their_ranges_evenly_and_rows_share_those_of_the_keys_they_have() -> None:
    ranges = {"optimizer.lr": (0.01, 1.0), "strategy.staleness": (2, 9), "optimizer.momentum": (0.0, 0.8)}
    keys = ", ".join(f"{key}: [{low}, {high}]" for key, (low, high) in ranges.items())
    study = tuning("strategy=ssp,bsp", f"tune.keys={{{keys}}}", "tune.points=32")
    assert study.key.split() == [*ranges]
    ssp, bsp = ([dict(word.split("=") for word in setting) for setting in row.settings] for row in study.rows)
    assert bsp == [{key: text for key, text in setting.items() if key != "strategy.staleness"} for setting in ssp]
    for key, (low, high) in ranges.items():
        values = [float(setting[key]) for setting in ssp]
        assert len(values) == 32
        assert low <= min(values) < max(values) <= high
        middle = (low * high) ** 0.5 if low else high / 2
        assert abs(sum(value < middle for value in values) - 16) <= 4, "as many below the middle as above it"
    assert {setting["strategy.staleness"] for setting in ssp} == {str(number) for number in range(2, 10)}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("tune.seeds=[0,7]", "tune.seeds must not be seeds that judge, got 0 in both"),
        ("seed=999,1000,1001", "tune.seeds must not be seeds that judge, got 1000, 1001 in both"),
        ("scale.seeds=[1002]", "tune.seeds must not be seeds that judge, got 1002 in both"),
        ("tune.baseline=psp", "tune.baseline must be of strategy=ssp, strategy=bsp; got psp"),
        ("tune.rows=[x]", "tune.rows must be of strategy=ssp, strategy=bsp; got x"),
        ("tune.center={x: 0.1}", "tune.center must be of parts of strategy=ssp, strategy=bsp; got x"),
        ("gradients=false", "tune needs runs that learn"),
        ("tune.points=4", "tune.points must be odd and >= 3, got 4"),
        ("tune.screen=2", "tune.screen must be in (0, 1], as 1/3, got 2"),
        ("tune.finalists=8", "tune.finalists must be in 1 .. 7, got 8"),
        ("tune.center=-1", "tune.center must be a number > 0"),
        ("tune.key=optimizer.weight_decay", "tune.key must be a key with a number > 0, or tune.center be set"),
        ("tune.keys={optimizer.lr: [1, 0.1]}", "tune.keys must be {key: [least, largest]}, numbers >= 0, or null"),
        ("optimizer.lr=0.1,0.2", "optimizer.lr=0.1,0.2: a key that is tuned has one value"),
        ("tune.keys={}", "tune.keys must be {key: [least, largest]}, numbers >= 0, or null"),
        ("tune.keys={optimizer.x: [0, 1]}", "got optimizer.x: strategy=ssp has none"),
        ("tune.keys={optimizer.momentum: [0, 3]}", "optimizer.momentum must be in [0, 1), got 1.5"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_line(words: str, line: str) -> None:
    assert line in refusal(ConfigError, tuning, "strategy=ssp,bsp", words)


def test_the_seeds_of_further_looks_are_seeds_that_judge() -> None:
    words = ("psp/table1", "scale=workstation", "scale.seeds=[30,31]")  # and at the last look 30 to 49
    with pytest.raises(ConfigError, match=r"tune.seeds must not be seeds that judge, got 49 in both"):
        tuning(*words, "tune.seeds=[49,1003]")
    assert tuning(*words, "tune.seeds=[50]").seeds == (50,)


def test_the_seeds_of_an_experiment_at_any_scale_are_seeds_that_judge() -> None:
    assert 4 in compose(["+experiment=dssync/table2"])[1].experiment["seeds"]["paper"]
    with pytest.raises(ConfigError, match="got 4 in both"):
        tuning("dssync/table2", "scale=smoke", "tune.seeds=[4,1000]")


def test_tuning_takes_one_experiment(command: Command) -> None:
    said = command("tune", "dssp", "scale=smoke")
    assert one_error_line(said) == "error: tune takes one experiment, got dssp; syncline run --help lists them"


# Small studies.

TINY = [
    *("tune", "strategy=bsp,asp", "model=softmax_regression", "epochs=3", "dataset.train_size=300"),
    *("optimizer.schedule.at_epochs=[0.5]", "tune.points=3", "tune.finalists=1", "tune.seeds=[7,8]", "jobs=1"),
    *("tune.center=0.001", "tune.factor=4"),  # the best is no end of the first grid
]


def answer_of(results: Path) -> dict[str, Any]:
    answer = read_study(only_study(results)).answer
    assert answer is not None
    return answer


def planned(results: Path) -> list[tuple[RunConfig, Path]]:
    """Config and record of each run of its plans."""
    runs = [run for path in (results / "plans").glob("*.json") for run in json.loads(path.read_text())["runs"]]
    return [(compose(run["overrides"])[0], results / run["identity"]) for run in runs]


@pytest.fixture
def made(tmp_path: Path, pool_here: None, command: Command) -> Said:
    """A study, from its beginning to its answer."""
    said = command(*TINY, f"results={tmp_path}")
    assert said.code == 0, said.err
    return said


def test_a_study_ends_with_a_table_and_words_to_paste_and_is_not_made_twice(
    made: Said, tmp_path: Path, command: Command
) -> None:
    assert re.search(r"^tune-\w+, screen 1: 6 runs, 0 finished before, 6 to make$", made.err, re.M)
    answer = answer_of(tmp_path)
    assert [choice["label"] for choice in answer["choices"]] == ["strategy=bsp", "strategy=asp"]
    values = [choice["value"] for choice in answer["choices"]]
    assert {choice["same"] for choice in answer["choices"]} == {values[0]}
    shared = shlex.join(word for word in TINY[2:] if not word.startswith(("tune.", "jobs=")))
    for strategy, value in zip(("bsp", "asp"), values, strict=True):
        line = f"strategy={strategy} {shared} optimizer.lr={value:g}"
        assert line in made.out.splitlines()
        compose(shlex.split(line))
    assert f"arm same: optimizer.lr={values[0]:g}" in made.out.splitlines()

    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/summary.json")}
    again = command(*TINY, f"results={tmp_path}")
    assert (again.code, again.out) == (0, made.out)
    assert "to make" not in again.err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/summary.json")} == before

    repeated = command(*TINY, f"results={tmp_path}", "rerun=true")
    assert (repeated.code, repeated.out) == (0, made.out)
    assert all(path.stat().st_mtime_ns > then for path, then in before.items())


@pytest.mark.usefixtures("made")
def test_its_runs_judge_by_held_out_training_data_and_its_screening_runs_are_beginnings(tmp_path: Path) -> None:
    """No seed is one that judges. The schedule of the first of three epochs is not compressed."""
    short, full = {}, {}
    for config, record in planned(tmp_path):
        assert (config.dataset.validation, config.target.value) == (0.2, None)
        assert config.seed in (7, 8)
        rows = short if config.epochs == 1 else full
        rows[config.strategy.name, config.optimizer.lr, config.seed] = without_wall_time(read_metrics(record))
    both = set(short) & set(full)
    assert both
    for place in both:
        assert [row["learning_rate"] / place[1] for row in short[place]] == pytest.approx([1.0, 0.1])
        assert short[place] == full[place][:2]


def test_rows_that_are_the_same_run_are_made_once(tmp_path: Path, command: Command) -> None:
    words = [*TINY[:1], "eval_every_epochs=1,1.0", *TINY[2:], f"results={tmp_path}"]
    said = command(*words)
    assert said.code == 0, said
    assert re.search(r", screen 1: 3 runs, 0 finished before", said.err)
    first, second = answer_of(tmp_path)["choices"]
    assert (first["value"], first["score"]) == (second["value"], second["score"])


def test_failed_runs_are_worst_with_fail_fast_the_study_stops_and_the_same_command_makes_them_again(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For want of memory, which leaves no record: every run fails, and no row has a value."""
    words = [*TINY, f"results={tmp_path}"]
    with monkeypatch.context() as patched:
        patched.setattr(memory, "_memory_bytes", lambda: 1.0)
        assert command(*words, "fail_fast=true").code == 1
        assert read_study(only_study(tmp_path)).answer is None
        said = command(*words)
    assert said.code == 1
    assert "strategy=bsp: every value diverged or failed" in said.out
    assert {choice["value"] for choice in answer_of(tmp_path)["choices"]} == {None}
    assert command(*words).code == 0
    assert answer_of(tmp_path)["choices"][0]["value"] is not None


@pytest.mark.slow
def test_a_study_that_is_repeated_gives_no_answer_from_old_records(tmp_path: Path, command: Command) -> None:
    """The data are gone since: every run fails, and its old record stays."""
    words = [*TINY, "dataset=cifar10", f"dataset.root={tmp_path / 'empty'}", f"results={tmp_path}"]
    declared, _ = declared_tuning(words[1:])
    while isinstance(step := ask(declared, Made(tmp_path)), Stage):
        for trial in step.trials:
            finish(tmp_path, Made(tmp_path).entry(trial).config)
    assert None not in {choice["value"] for choice in answer_of(tmp_path)["choices"]}
    assert command(*words, "rerun=true").code == 1
    assert {choice["value"] for choice in answer_of(tmp_path)["choices"]} == {None}


@pytest.mark.slow
def test_an_experiments_answer_is_the_block_of_its_file(
    tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["dssp/table1", "scale=smoke", "epochs=1", "tune.points=3", "tune.finalists=1", "tune.seeds=[77]", "jobs=1"]
    said = command("tune", *words, "tune.rows=[bsp,asp]", "model=softmax_regression", f"results={tmp_path}")
    assert said.code == 0, said.err
    (line,) = [line for line in said.out.splitlines() if line.startswith("arms: ")]
    experiment = {**compose([f"+experiment={words[0]}"])[1].experiment, **yaml.safe_load(line)}
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
    assert syncline(["report", "study", stem, *places, str(clone)]) == 0
    assert f"from {reference}/studies/{stem}.json\n" in capsys.readouterr().out

    from reports.site import study_sections

    drawn = SimpleNamespace(submit=lambda exhibit, stem: [(item, None) for item in exhibit.values()])
    (section,) = study_sections(ArtefactStore(clone, "smoke", reference), drawn)  # type: ignore[arg-type]
    assert (section.name, section.missing) == (stem, "")
    assert section.origins == f"From {reference}/studies/{stem}.json"
    titles = [one.item.title for one in section.shown if one.kind == "table"]  # type: ignore[union-attr]
    assert "Where rows are ahead of their baselines, by optimizer.lr" in titles
