"""Plans: which runs are made and which are left; and that every value of every experiment file arrives."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from composing import composed, file_of, misses
from hypothesis import given
from hypothesis import strategies as st

from reports.exhibits import SCALES
from runners.planning import experiment_names, experiment_plan, experiment_plans
from syncline.config import CONF, ConfigError, RunConfig, choices, compose
from syncline.plan import Entry, Plan, grid, merged, with_seeds
from syncline.records.plans import plan_path, read_plan, stem_of
from syncline.records.store import RecordError
from syncline.records.studies import read_study, study_path
from syncline.records.writer import RecordWriter
from tests.refusals import refusal

EXPERIMENTS = choices("experiment")
PLANS = pytest.mark.xdist_group("plans")  # one process, which composes each choice once


def experiment(name: str) -> Mapping[str, Any]:
    """An experiment as its file and those it builds on say together."""
    _, invocation = composed(f"+experiment={name}")
    assert isinstance(invocation.experiment, dict)
    return invocation.experiment


EXPERIMENT: dict[str, Any] = {
    "base": ["epochs=1", "batch_size=8"],
    "scales": {"smoke": ["batch_size=16"], "paper": []},
    "runs": {"BSP": ["strategy=bsp"], "SSP": ["strategy=ssp", "batch_size=64"]},
}


def entry_of(seed: int, label: str = "row") -> Entry:
    return Entry(label, (f"seed={seed}",), RunConfig(epochs=1.0, seed=seed))


def plan(*entries: Entry) -> Plan:
    return Plan("dssp/table1", "smoke", entries, {"title": "A table"})


def finish(results: Path, *entries: Entry) -> None:
    for made in entries:
        with RecordWriter(results / made.config.identity, {}, with_events=False) as record:
            record.finish({})


# Runs that are made, and those that are left.


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["a", "b", "c"])), max_size=20))
def test_a_run_that_rows_share_is_made_once_for_the_first_of_them(runs: list[tuple[int, str]]) -> None:
    entries = [entry_of(seed, label) for seed, label in runs]
    first = {entry.config.seed: entry for entry in reversed(entries)}
    assert plan(*entries).unique() == [first[seed] for seed in dict.fromkeys(seed for seed, _ in runs)]


def test_left_is_what_has_no_finished_record(tmp_path: Path) -> None:
    all_of_it = plan(entry_of(1), entry_of(2), entry_of(3), entry_of(4))
    assert all_of_it.left(tmp_path) == list(all_of_it.entries)
    finish(tmp_path, entry_of(2))
    with RecordWriter(tmp_path / entry_of(3).config.identity, {}, with_events=False):
        pass
    with RecordWriter(tmp_path / entry_of(4).config.identity, {}, with_events=False) as record:
        record.fail("it went wrong")
    assert [made.config.seed for made in all_of_it.left(tmp_path)] == [1, 3, 4]
    finish(tmp_path, *all_of_it.entries)
    assert all_of_it.left(tmp_path) == []


def test_with_rerun_everything_is_left_once(tmp_path: Path) -> None:
    all_of_it = plan(entry_of(1), entry_of(2), entry_of(1, "shared"))
    finish(tmp_path, entry_of(1), entry_of(2))
    assert [made.config.seed for made in all_of_it.left(tmp_path, rerun=True)] == [1, 2]


# Plans on disk.


def test_a_plan_is_written_as_json_that_reports_can_read(tmp_path: Path) -> None:
    written = plan(entry_of(1, "BSP"), entry_of(2, "BSP"), entry_of(1, "again"))
    path = written.write(tmp_path / "results")
    assert path == plan_path(tmp_path / "results", stem_of("dssp/table1", "smoke"))
    assert path.name == "dssp-table1-smoke.json"
    content = json.loads(path.read_text())
    assert (content["name"], content["scale"], content["report"]) == ("dssp/table1", "smoke", {"title": "A table"})
    assert [(run["label"], run["seed"]) for run in content["runs"]] == [("BSP", 1), ("BSP", 2), ("again", 1)]
    assert [run["identity"] for run in content["runs"]] == [made.config.identity for made in written.entries]
    for run in content["runs"]:
        assert compose(["epochs=1", *run["overrides"]])[0].seed == run["seed"]


def test_a_plan_written_again_replaces_the_old_one_and_leaves_no_draft(tmp_path: Path) -> None:
    plan(entry_of(1), entry_of(2)).write(tmp_path)
    path = plan(entry_of(3)).write(tmp_path)
    assert [run["seed"] for run in json.loads(path.read_text())["runs"]] == [3]
    assert list(path.parent.iterdir()) == [path]


def test_one_sweep_does_not_replace_another_and_the_same_one_has_the_same_name(tmp_path: Path) -> None:
    def written(*entries: Entry) -> Path:
        return Plan("sweep", "", entries, {}).write(tmp_path)

    assert written(entry_of(1), entry_of(2)) == written(entry_of(2), entry_of(1), entry_of(1, "again"))
    assert written(entry_of(1), entry_of(2)) != written(entry_of(1), entry_of(3))


@pytest.fixture(scope="module")
def psp_plans() -> list[Plan]:
    return experiment_plans(["jobs=2", "+experiment=psp", "scale=smoke"], with_sweeps=False)[0]


def test_a_plan_holds_the_words_that_make_it_again(tmp_path: Path, psp_plans: list[Plan]) -> None:
    swept, _ = experiment_plans(["+experiment=psp/fig3", "scale=smoke", "batch_size=8,16"], with_sweeps=True)
    found = [read_plan(plan.write(tmp_path)) for plan in (*psp_plans, *swept)]
    assert [plan.command for plan in found] == [
        *(["run", "+experiment=psp/" + name, "jobs=2", "scale=smoke"] for name in ("fig2", "fig3", "fig4", "table1")),
        ["run", "-m", "+experiment=psp/fig3", "scale=smoke", "batch_size=8,16"],
    ]
    for plan in (found[0], found[-1]):
        words = [word for word in plan.command[1:] if word != "-m"]
        (again,), _ = experiment_plans(words, "-m" in plan.command)
        assert [entry.config.identity for entry in again.entries] == [run.identity for run in plan.runs]


def test_a_plan_that_cannot_be_written_is_one_line_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    line = refusal(RecordError, plan(entry_of(1)).write, tmp_path / "file")
    assert "cannot write the record" in line
    assert str(tmp_path / "file") in line


# The grid.


def test_the_scale_wins_over_the_base_and_the_run_over_both() -> None:
    made = {label: composed(*words)[0] for label, words in grid(EXPERIMENT, "smoke")}
    assert [(label, config.strategy.name, config.batch_size) for label, config in made.items()] == [
        ("BSP", "bsp", 16),
        ("SSP", "ssp", 64),
    ]
    paper = {label: composed(*words)[0].batch_size for label, words in grid(EXPERIMENT, "paper")}
    assert paper == {"BSP": 8, "SSP": 64}


def test_overrides_of_a_scale_may_be_for_some_labels_only() -> None:
    runs = [{"digits": [], "text": []}, {"bsp": ["strategy=bsp"], "asp": ["strategy=asp"]}]
    scales = {"smoke": {"every": ["epochs=2"], "text": ["epochs=3"], "bsp": ["batch_size=4"]}}
    experiment = EXPERIMENT | {"runs": runs, "scales": scales, "timing": {"every": ["gradients=false"], "asp": ["a=1"]}}
    made = dict(grid(experiment, "smoke"))
    assert made["digits/asp"] == ["epochs=1", "batch_size=8", "epochs=2", "strategy=asp"]
    assert made["text/bsp"] == ["epochs=1", "batch_size=8", "epochs=2", "epochs=3", "batch_size=4", "strategy=bsp"]
    assert made["text/asp/timing"] == ["epochs=1", "batch_size=8", "gradients=false", "a=1", "strategy=asp"]


def test_a_folder_of_experiments_or_all_of_them_are_asked_for_by_name(psp_plans: list[Plan]) -> None:
    names = [name for name in EXPERIMENTS if name.startswith("psp/")]
    assert [plan.name for plan in psp_plans] == names == experiment_names(["psp"])
    assert [plan.name for plan in experiment_plans(["+experiment=glob(psp/*)", "scale=smoke"], False)[0]] == names
    assert experiment_names(["all"]) == EXPERIMENTS
    together = merged(psp_plans)
    assert len(together.entries) == sum(len(plan.entries) for plan in psp_plans)
    shared = len(together.entries) - len(together.unique())
    assert shared >= len(psp_plans[names.index("psp/fig4")].entries), "Figure 4's runs are Table 1's"
    assert together.entries[0].label == f"{names[0]}: {psp_plans[0].entries[0].label}"


def test_an_experiment_may_have_seeds_of_its_own_at_a_scale() -> None:
    """Those of the command line come before."""
    words = ["+experiment=overview/timelines", "scale=laptop"]
    assert {entry.config.seed for entry in experiment_plan(words, False)[0].entries} == {0}
    assert {entry.config.seed for entry in experiment_plan([*words, "scale.seeds=[3,4]"], False)[0].entries} == {3, 4}


def test_a_grid_leaves_its_experiment_as_it_was() -> None:
    before = json.dumps(EXPERIMENT)
    for _, words in grid(EXPERIMENT, "smoke"):
        words.append("seed=1")
    assert json.dumps(EXPERIMENT) == before


def test_a_list_of_mappings_is_one_of_each_in_all_combinations() -> None:
    axes = [
        {"two": ["cluster.workers=2"], "four": ["cluster.workers=4"]},
        {"a": ["seed=1"], "b": ["seed=2", "epochs=3"]},
    ]
    made = grid(EXPERIMENT | {"runs": axes}, "smoke")
    assert [label for label, _ in made] == ["two/a", "two/b", "four/a", "four/b"]
    assert made[1] == (
        "two/b",
        ["epochs=1", "batch_size=8", "batch_size=16", "cluster.workers=2", "seed=2", "epochs=3"],
    )
    alone = grid(EXPERIMENT | {"runs": axes[:1], "timing": ["gradients=false"]}, "paper")
    assert [label for label, _ in alone] == ["two", "four", "two/timing", "four/timing"]


def test_labels_that_are_numbers_and_arms_without_one_for_all_are_as_a_file_may_have_them() -> None:
    runs = {2: ["cluster.workers=2"], 4: ["cluster.workers=4"]}
    arms = {"paper": {"own": {"2": ["optimizer.lr=0.3"]}}}
    made = grid(EXPERIMENT | {"runs": runs, "arms": arms}, "paper")
    assert [label for label, _ in made] == ["2", "4", "2/own"]
    assert [label for label, _ in grid(EXPERIMENT | {"runs": [runs, {"a": []}]}, "paper")] == ["2/a", "4/a"]


ARMS = {"paper": {"same": ["optimizer.lr=0.2"], "own": {"SSP": ["optimizer.lr=0.3"], "other": ["optimizer.lr=0.4"]}}}


def test_arms_are_one_rate_for_all_and_each_rows_own_whose_time_is_not_made_again() -> None:
    made = grid(EXPERIMENT | {"arms": ARMS, "timing": ["gradients=false"]}, "paper")
    assert [label for label, _ in made] == ["BSP", "SSP", "SSP/own", "BSP/timing", "SSP/timing"]
    words = dict(made)
    assert [words[label].count("optimizer.lr=0.2") for label in ("BSP", "SSP", "BSP/timing")] == [1, 1, 0]
    assert words["SSP/own"] == [*words["SSP"], "optimizer.lr=0.3"]
    without = {"smoke": grid(EXPERIMENT | {"arms": ARMS}, "smoke"), "paper": grid(EXPERIMENT, "paper")}
    assert without["smoke"] == grid(EXPERIMENT, "smoke")
    assert grid(EXPERIMENT | {"arms": ARMS}, "paper", arms=False) == without["paper"]


def test_what_a_run_says_itself_comes_after_the_one_rate_for_all() -> None:
    runs = {"BSP": ["strategy=bsp"], "BSP/slow": ["strategy=bsp", "optimizer.lr=0.001"]}
    words = dict(grid(EXPERIMENT | {"runs": runs, "arms": ARMS}, "paper"))
    assert words["BSP/slow"].index("optimizer.lr=0.001") > words["BSP/slow"].index("optimizer.lr=0.2")


def test_rows_that_are_left_out_at_a_scale_have_their_times_alone() -> None:
    content = EXPERIMENT | {"left_out": {"paper": ["SSP"]}, "timing": ["gradients=false"]}
    assert [label for label, _ in grid(content, "paper")] == ["BSP", "BSP/timing", "SSP/timing"]
    assert [label for label, _ in grid(content, "smoke")] == ["BSP", "SSP", "BSP/timing", "SSP/timing"]
    by_part = {"runs": [{"a": []}, {"x": [], "y": []}], "left_out": {"paper": ["x"]}}
    assert [label for label, _ in grid(EXPERIMENT | by_part, "paper")] == ["a/y"]


def test_times_alone_may_be_of_another_size_at_a_scale() -> None:
    timing = {"every": ["gradients=false", "batch_size=9"], "SSP": ["seed=3"], "smoke": ["epochs=2"]}
    at = {scale: dict(grid(EXPERIMENT | {"timing": timing}, scale)) for scale in ("smoke", "paper")}
    base = ["epochs=1", "batch_size=8", "gradients=false", "batch_size=9"]
    assert at["smoke"]["BSP/timing"] == [*base, "epochs=2", "strategy=bsp"]
    assert at["smoke"]["SSP/timing"] == [*base, "epochs=2", "seed=3", "strategy=ssp", "batch_size=64"]
    assert at["paper"]["BSP/timing"] == [*base, "strategy=bsp"]
    assert "epochs=2" not in at["smoke"]["BSP"], "runs with gradients keep their own scale"


def test_more_runs_are_made_at_their_scale_or_at_every_one() -> None:
    more = {"every": {"SSP/other": ["strategy=ssp", "momentum=lr_inside"]}, "paper": [{"a": [], "b": ["seed=3"]}]}
    made = {scale: grid(EXPERIMENT | {"more_runs": more}, scale) for scale in ("smoke", "paper")}
    assert [label for label, _ in made["smoke"]] == ["BSP", "SSP", "SSP/other"]
    assert [label for label, _ in made["paper"]] == ["BSP", "SSP", "SSP/other", "a", "b"]
    assert made["smoke"][2][1] == ["epochs=1", "batch_size=8", "batch_size=16", "strategy=ssp", "momentum=lr_inside"]
    alone = grid(EXPERIMENT | {"more_runs": more, "timing": ["gradients=false"]}, "smoke")
    assert [label for label, _ in alone][3:] == ["BSP/timing", "SSP/timing", "SSP/other/timing"]


def test_an_unknown_scale_is_refused_with_those_of_the_experiment() -> None:
    line = refusal(ConfigError, grid, EXPERIMENT, "gpu")
    assert line == "scale must be one of smoke, paper for this experiment, got 'gpu'"


def test_every_run_is_made_with_every_seed_side_by_side() -> None:
    runs = with_seeds([entry_of(0, "BSP"), entry_of(0, "SSP")], [4, 7])
    assert [(made.label, made.config.seed) for made in runs] == [("BSP", 4), ("BSP", 7), ("SSP", 4), ("SSP", 7)]
    for made in runs:
        assert composed(*made.overrides)[0].seed == made.config.seed  # what is written down makes the run again


# Every experiment file: it composes at every scale, and each value it sets arrives.


def test_a_value_that_does_not_arrive_is_detected() -> None:
    """The check below must be able to fail."""
    words = ["strategy=ssp", "strategy.staleness=5", "cluster=gtx1060_1080ti", "optimizer.schedule.at_epochs=[3,4]"]
    config, invocation = compose(words)
    assert misses(words, config, invocation) == []
    assert misses([*words, "seed=1", "seed=0", "max_updates=null", "dataset.augment=false"], config, invocation) == []
    for wrong in ("seed=1", "strategy=dssp", "strategy.staleness=6", "cluster=laptop", "dataset.augment=true"):
        assert misses([*words, wrong], config, invocation), wrong
    assert misses(["optimizer.schedule.at_epochs=[3]"], config, invocation)
    assert misses(["cluster.jitter={name: exponential}"], config, invocation)
    assert misses(["scenario=slow_worker"], config, invocation)


@PLANS
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_names_known_scales_and_says_each_thing_once(name: str) -> None:
    content = experiment(name)
    assert tuple(content["scales"]) == SCALES
    assert set(SCALES) == set(choices("scale"))
    assert content["title"]
    assert content["source"]
    assert content["runs"]
    assert set(content.get("seeds") or {}) <= set(content["scales"])
    more = content.get("more_runs") or {}
    assert set(more) <= {"every", *content["scales"]}
    axes = [axis for runs in (content["runs"], *more.values()) for axis in ([runs] if isinstance(runs, dict) else runs)]
    parts = {part for axis in axes for label in axis for part in label.split("/")}
    timing = content.get("timing") or []
    layers = [content["base"], timing, *content["scales"].values()]
    lists = [words for axis in axes for words in axis.values()]
    for layer in layers:
        if isinstance(layer, dict):
            scales = set(content["scales"]) if layer is timing else set()
            assert set(layer) <= {"every"} | parts | scales, "overrides for runs that are not there"
        lists += layer.values() if isinstance(layer, dict) else [layer]
    for words in lists:
        keys = [word.partition("=")[0] for word in words]
        assert len(set(keys)) == len(keys), f"a key is set twice in one list: {words}"


@PLANS
@pytest.mark.parametrize(
    "scale", [pytest.param(each, marks=[] if each == "laptop" else pytest.mark.papers) for each in SCALES]
)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_value_that_an_experiment_sets_arrives(name: str, scale: str) -> None:
    """And no two rows are the same run."""
    labels: dict[str, list[str]] = {}
    for label, words in grid(experiment(name), scale):
        config, invocation = composed(*words)
        assert misses(words, config, invocation) == [], label
        assert len({*label.split("/")} - {"own", "timing"}) <= len(experiment(name)["axes"]), label
        if not label.endswith("/timing"):  # rows that differ in what they learn may take the same time
            labels.setdefault(config.identity, []).append(label)
    same = [of_run for of_run in labels.values() if len({label.removesuffix("/own") for label in of_run}) > 1]
    assert same == [], "but for a row and its own rate, no two rows of an experiment are the same run"


TUNED = [
    name for name in EXPERIMENTS if {"tune:", "arms:"} <= set((CONF / f"experiment/{name}.yaml").read_text().split())
]


@PLANS
@pytest.mark.parametrize("name", TUNED)
def test_the_arms_are_what_tuning_chose(name: str) -> None:
    """The study is in the reference: of this experiment, or of one that is based on it.

    The one rate for all is the paper's where the file says so.
    """
    files = {other: file_of("experiment", other) for other in EXPERIMENTS if other.startswith(name.partition("/")[0])}
    based = [other for other, file in files.items() if f"/experiment/{name}" in file.get("defaults", [])]
    for scale in files[name]["arms"]:
        stems = {other: f"tune-{stem_of(other, scale)}" for other in (name, *based)}
        paths = {other: study_path(CONF.parent / "reference", stem) for other, stem in stems.items()}
        (tuned,) = (other for other, path in paths.items() if path.exists())
        answer = read_study(paths[tuned]).answer
        assert answer is not None
        rates = {
            label: [float(word.partition("=")[2]) for word in words if word.startswith(f"{answer['key']}=")][-1]
            for label, words in grid(experiment(tuned), scale)
            if not label.endswith("/timing")
        }
        for choice in answer["choices"]:
            same = rates[choice["label"]]
            own = rates.get(f"{choice['label']}/own", same)
            chosen = same if scale in files[name].get("same_rate", {}) else choice["same"]
            assert (same, own) == (chosen, choice["value"]), choice["label"]


# With times alone, with tuned rates, with seeds of its own, of text, and one that builds on others.
@PLANS
@pytest.mark.parametrize("name", ["dssp/table1", "psp/table1", "overview/timelines", "backup/charlm", "backup/fig3"])
def test_an_experiments_plan_is_its_grid_with_what_the_command_line_asks_for(name: str) -> None:
    """As `make dssp-table1 SCALE=smoke SEEDS=4,9 ARGS="..."` does."""
    scale = SCALES[0]
    words = [f"+experiment={name}", f"scale={scale}", "scale.seeds=[4,9]", "batch_size=7", "results=elsewhere"]
    made, invocation = experiment_plan(words, with_sweeps=False)
    runs = grid(experiment(name), scale)
    assert (made.name, made.scale, invocation.results) == (name, scale, "elsewhere")
    assert [entry.label for entry in made.entries] == [label for label, _ in runs for _ in range(2)]
    assert [entry.config.seed for entry in made.entries] == [4, 9] * len(runs)
    assert {entry.config.batch_size for entry in made.entries} == {7}
    assert len(made.unique()) == 2 * len(runs)
    for which, seed in ((0, 4), (-1, 9)):
        assert made.entries[which].config == composed(*runs[which][1], "batch_size=7", f"seed={seed}")[0]
    assert made.report.items() <= experiment(name).items()
    assert {"title", "source"} <= set(made.report)


def test_a_swept_experiment_makes_each_run_with_each_value_and_a_given_seed_is_the_only_one() -> None:
    name = "dssp/fig4"
    words = [f"+experiment={name}", "scale=smoke", "seed=5", "batch_size=7,9"]
    made, _ = experiment_plan(words, with_sweeps=True)
    labels = [label for label, _ in grid(experiment(name), "smoke")]
    assert [entry.label for entry in made.entries] == [label for label in labels for _ in range(2)]
    assert [entry.config.batch_size for entry in made.entries] == [7, 9] * len(labels)
    assert {entry.config.seed for entry in made.entries} == {5}


def test_pluses_before_a_seed_change_nothing() -> None:
    words = ["+experiment=adasync/fig1b", "scale=smoke"]
    for own in ("seed=7", "scale.seeds=[7]"):
        plan, _ = experiment_plan([*words, f"++{own}"], False)
        assert {entry.config.seed for entry in plan.entries} == {7}, own
