"""Races from the command line: who takes part, what is refused, and a small one to its answer and its page."""

import json
from pathlib import Path

import pytest
from commands import Command

from runners import plan
from runners.commands import main as syncline
from runners.racing import declared_races
from runners.study import Made, ask
from syncline.config import ConfigError
from syncline.installation import shipped
from syncline.records import environment
from syncline.records.studies import read_study
from syncline.studies.race import Race
from tests.refusals import refusal

TARGET = "target.value=0.9"


def races(*words: str) -> list[Race]:
    found = [declared.study for declared in declared_races([*words])[0]]
    assert all(isinstance(study, Race) for study in found)
    return found  # type: ignore[return-value]


def race(*words: str) -> Race:
    (study,) = races(*words)
    return study


# What is declared.


def test_shares_of_the_workers_and_of_the_length_are_set_and_equal_ones_are_one() -> None:
    study = race(TARGET, "cluster.workers=8")
    labels = [entrant.label for entrant in study.entrants]
    assert {"backup backups=1", "backup backups=2", "k_async k=2", "k_async k=4", "psp c=6 b=75"} <= set(labels)
    assert len(set(labels)) == len(labels)
    assert not study.left
    (shares,) = {entrant.of_length for entrant in study.entrants if entrant.label.startswith("adasync")}
    assert [(key, float(share)) for key, share in shares] == [("strategy.interval", 0.05)]
    assert len(race(TARGET, "cluster.workers=4").entrants) < len(study.entrants)  # a quarter is 1 there


def test_entrants_may_be_left_out_or_changed_and_a_swept_strategy_stands_for_all() -> None:
    study = race(TARGET, "race.entrants={psp: null, ssp: {staleness: [1, 9]}}")
    labels = [entrant.label for entrant in study.entrants]
    assert {"ssp staleness=1", "ssp staleness=9"} <= set(labels)
    assert not [label for label in labels if label.startswith("psp")]
    swept = race(TARGET, "strategy=k_sync,k_async", "strategy.k=1,2", "batch_size=16")
    assert [entrant.label for entrant in swept.entrants] == [
        *("k_sync k=1", "k_sync k=2", "k_async k=1", "k_async k=2")
    ]
    assert {entrant.overrides[0] for entrant in swept.entrants} == {"batch_size=16"}


def test_numbers_of_local_steps_are_values_of_the_entrants() -> None:
    (swept,) = races(TARGET, "strategy=asp,bsp", "local.steps=1,8")
    assert [each.label for each in swept.entrants] == ["asp steps=1", "asp steps=8", "bsp steps=1", "bsp steps=8"]
    assert [(each.steps, each.comparable) for each in swept.entrants] == [(1, True), (8, False)] * 2
    (swept,) = races(TARGET, "strategy=asp", "compress=none,sign")
    assert [(each.label, each.comparable) for each in swept.entrants] == [("asp none", True), ("asp sign", False)]
    (swept,) = races(TARGET, "strategy=asp", "update=mean,gap_aware")
    assert [(each.label, each.comparable) for each in swept.entrants] == [("asp mean", True), ("asp gap_aware", False)]
    (swept,) = races(TARGET, "strategy=asp", "local=none,diloco", "local.steps=1")
    assert [each.comparable for each in swept.entrants] == [True, False], "another optimizer steps at the worker"
    (swept,) = races(TARGET, "strategy=sync_switch", "strategy.scale=1,0.1")
    assert [each.comparable for each in swept.entrants] == [True, False], "the same times at other rates"
    declared = race(TARGET, "race.entrants={bsp: {topology: [server], local.steps: [1, 16], compress: [none, int8]}}")
    assert {"bsp server steps=16 int8", "bsp server steps=1 none"} <= {each.label for each in declared.entrants}
    assert {each.steps for each in race(TARGET, "local=local_sgd").entrants} == {8}, "for all of them, not swept"


def test_who_cannot_run_on_the_cluster_is_left_out_with_the_reason() -> None:
    study = race(TARGET, "cluster.shards=2", "model=mlp")
    assert {"bsp server", "asp", "psp c=3 b=75"} <= {entrant.label for entrant in study.entrants}
    reasons = {left.label: left.reason for left in study.left}
    assert "dssp" in reasons
    assert reasons["dssp"].startswith("it cannot run: ")


def test_only_one_model_whose_times_do_not_follow_from_losses_is_comparable_by_times() -> None:
    entrants = race(TARGET).entrants
    assert {each.label.split()[0] for each in entrants if not each.comparable} == {"ds_sync", "adasync"}
    assert {each.label.split()[0] for each in entrants if not each.foreseeable} == {"adasync"}


def test_a_race_tunes_several_keys_with_as_many_settings_for_each_entrant() -> None:
    study = race(TARGET, "race.tune.keys={optimizer.lr: [0.1, 1], optimizer.momentum: [0, 0.9]}")
    assert {len(entrant.settings) for entrant in study.entrants} == {5}
    assert len({entrant.settings for entrant in study.entrants}) == 1
    steps = race(TARGET, "race.tune.keys={optimizer.lr: [0.1, 1], local.steps: [1, 8]}", "strategy=asp,bsp")
    assert not any(entrant.comparable for entrant in steps.entrants), "their times alone are not those of the race"


def test_the_race_sets_length_target_and_rate() -> None:
    study = race(TARGET, "epochs=3", "optimizer.lr=0.02", "optimizer.momentum=0")
    assert (study.length_s, study.pacemaker) == (
        None,
        ("epochs=3", "optimizer.lr=0.02", "optimizer.momentum=0", "strategy=bsp"),
    )
    assert {entrant.center for entrant in study.entrants} == {0.02}
    keys = {word.partition("=")[0] for entrant in study.entrants for word in entrant.overrides}
    assert not keys & {"epochs", "target.value", "optimizer.lr", "max_time_s"}
    assert "optimizer.momentum" in keys
    assert race(TARGET, "max_time_s=7").length_s == 7.0
    assert race("target.metric=loss", "target.value=0.5").goal.lower_is_better


def test_judging_seeds_are_those_of_the_scale_and_then_the_next_but_never_tuning_seeds() -> None:
    study = race(TARGET, "scale.seeds=[998,999]", "race.looks=[3,6]")
    assert study.seeds == (998, 999, 1002, 1003, 1004, 1005)
    assert study.tuning_seeds == (1000, 1001)
    assert race(TARGET, "race.tune.seeds=[1000,4294967295]").tuning_seeds[1] == 2**32 - 1


def test_several_workloads_are_several_races_with_equal_shares_of_the_budget() -> None:
    found = races(TARGET, "model=mlp,softmax_regression", "race.budget=2h")
    assert len(found) == 2
    assert {study.budget_s for study in found} == {3600.0}
    for declared in declared_races([TARGET, "model=mlp,softmax_regression", "race.budget=2h"])[0]:
        (alone,) = declared_races(declared.plan.command[1:])[0]  # its own words go on with it alone
        assert (alone.stem, alone.study) == (declared.stem, declared.study)


# What it is called, and what its budget counts by.


def stem(*words: str, strategy: str = "bsp,asp") -> str:
    """Of a race with one cluster around its own, whose checks take time."""
    (declared,) = declared_races([TARGET, f"strategy={strategy}", "race.around=null", *words])[0]
    return declared.stem


def test_races_that_differ_in_what_is_made_or_decided_have_names_of_their_own() -> None:
    words = [
        *("scale=workstation", "scale.seeds=[7]", "race.looks=[5,10]", "race.tune.seeds=[2000,2001]"),
        *("race.level=0.01", "race.within=3", "race.margin=0.1", "race.tune.screen=1/2", "race.tune.validation=0.1"),
        *("race.tune.center=0.2", "race.tune.factor=4", "race.tune.points=7", "race.tune.finalists=1"),
    ]
    assert len({stem(), *map(stem, words)}) == 1 + len(words)


def test_shares_of_the_length_are_part_of_the_name() -> None:
    twentieth, tenth = (stem(f"strategy.interval={share}", strategy="adasync") for share in ("T/20", "T/10"))
    assert twentieth != tenth


def test_a_race_that_is_carried_further_keeps_its_name() -> None:
    more = "race.budget=2h", "race.targets=[0.8]", "race.around={slowest: [1, 8]}", "race.confirm=2", "jobs=7"
    assert stem(*more, "race.live='runner=local runner.pace=absolute'") == stem()
    assert stem("race.entrants={psp: null}") == stem(), "strategy= stands for it"


@pytest.mark.slow
def test_the_races_of_the_reference_have_the_names_that_their_commands_give() -> None:
    for path in shipped("reference/studies").glob("race-*.json"):
        study = read_study(path)
        (declared,) = declared_races(study.command[1:])[0]
        assert (path.stem, study.plan) == (declared.stem, declared.stem)
        assert (path.parents[1] / study.scale / "plans" / path.name).exists()


def test_a_budget_counts_by_the_runs_that_are_made_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    monkeypatch.setattr(environment, "cores", lambda: 16)
    monkeypatch.setattr(plan, "has_gpu", lambda: True)
    words = TARGET, "strategy=bsp,asp", f"results={tmp_path}"
    assert race(*words).jobs == 2
    assert race(*words, "device=cpu").jobs == 16
    assert race(*words, "jobs=5").jobs == 5
    ask(declared_races([*words])[0][0], Made(tmp_path))
    monkeypatch.setattr(plan, "has_gpu", lambda: False)
    assert race(*words).jobs == 2, "also where another machine asks"
    assert race(*words, "jobs=5").jobs == 5
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    assert race(*words, "epochs=3").jobs == 3


def test_knobs_that_the_cluster_does_not_have_are_left_out() -> None:
    names = [place.name for place in race(TARGET).around]
    assert len(names) == 12
    assert names[0] == "as it is"
    assert "slowest worker x 4, bandwidth x 0.1, delays of 0.033 s" in names
    unit = race(TARGET, "cluster=unit", "scenario=exponential_20ms")
    assert [place.name for place in unit.around] == ["as it is", "slowest worker x 2", "slowest worker x 4"]
    slowest = race(TARGET, "scenario.slow={1: 5}").around[-1].overrides[0]
    assert slowest == "scenario.slow={1: 20}"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "a race needs target.value="),
        ([TARGET, "seed=1"], "a race takes no seed=; scale.seeds sets the first seeds that judge"),
        ([TARGET, "runner=local", "runner.evaluate=during"], "a race is run in virtual time"),
        ([TARGET, "scale.seeds=[0,1000]"], "race.tune.seeds must not be seeds that judge, got 1000 in both"),
        ([TARGET, "race.targets=[0.95]"], "race.targets must be easier than target.value = 0.9, got 0.95"),
        ([TARGET, "strategy=ssp,dssp", "strategy.staleness=3"], "strategy.staleness: unknown key"),
        ([TARGET, "race.looks=[2,4]"], "race.looks must grow by 3 or more"),
        ([TARGET, "race.around={colour: [1]}"], "race.around must map some of slowest, bandwidth, delay"),
        ([TARGET, "race.entrants={ssp: 3}"], "race.entrants must be {strategy: {key: [values]} or null}"),
        ([TARGET, "optimizer.lr=0.1,0.2"], "optimizer.lr=0.1,0.2: a key that is tuned has one value"),
        ([TARGET, "race.entrants=null"], "race.entrants must name a strategy or more, got none"),
        ([TARGET, "race.entrants={k_async: {k: []}}"], "race.entrants must have a value or more for k_async.k, or "),
        ([TARGET, "race.tune.seeds=[4294967296]"], "race.tune.seeds must be in 0 .. 4,294,967,295, got [4294967296]"),
        (
            [TARGET, 'race.live="runner=local \'a"'],
            "race.live must be words of the command line, got runner=local 'a (",
        ),
        ([TARGET, "race.entrants={bps: {}}"], "race.entrants must name strategies, got bps; there are "),
        ([TARGET, "race.around={slowest: [0.5]}"], "race.around: slowest worker x 0.5: scenario.slow must map workers"),
        ([TARGET, "race.confirm=2", "race.live='runner=lokal'"], "runner must be one of"),
        ([TARGET, "race.confirm=2", "race.live='runner=simulate'"], "race.live must set a runner of real processes"),
        ([TARGET, "race.confirm=2", "race.live='runner=local strategy=bsp'"], "to the race, got strategy=bsp"),
    ],
)
def test_what_makes_no_race_is_one_line(words: list[str], line: str) -> None:
    assert line in refusal(ConfigError, races, *words)


def test_entrants_that_differ_in_shares_of_the_length_alone_are_told_apart_by_them() -> None:
    study = race(TARGET, "strategy=adasync,bsp,bsp", "race.tune.points=3")
    assert [entrant.label for entrant in study.entrants] == ["adasync", "bsp"]
    study = race(TARGET, "strategy=adasync", "strategy.interval=T/20,T/10")
    assert [entrant.label for entrant in study.entrants] == ["adasync interval=T/20", "adasync interval=T/10"]


def test_the_races_of_the_reference_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert syncline(["report", "races", "--scale", "workstation", "--results", str(tmp_path)]) == 0
    assert "Who is first where" in capsys.readouterr().out


# Real races.

SMALL = [
    *("race", "model=softmax_regression", "strategy=bsp,asp", "max_time_s=2", "target.value=0.8"),
    *(
        "eval_every_epochs=0.2",
        "race.tune.points=3",
        "race.tune.keys={optimizer.lr: [0.001, 0.1], optimizer.momentum: [0, 0.9]}",
        "race.looks=[3,6]",
        "race.around={slowest: [1, 4], bandwidth: [], delay: []}",
    ),
]


@pytest.mark.processes
def test_a_small_race_runs_to_its_answer_shows_it_and_is_confirmed_by_real_processes(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    further = "race.confirm=1", "race.budget=6m", "race.targets=[0.7]"
    made = command(*SMALL, *further, f"results={tmp_path}")
    assert made.code == 0, made.err
    (path,) = (tmp_path / "studies").glob("race-softmax_regression-digits-laptop-*.json")
    study = read_study(path)
    answer = study.answer
    assert answer is not None
    assert answer["sentence"] in " ".join(made.out.split())
    assert {each["label"] for each in (*answer["standings"], *answer["left"])} == {"bsp", "asp"}
    assert [there["name"] for there in answer["around"]] == ["as it is", "slowest worker x 4"]
    (live,) = answer["live"]
    assert live["measured"] is not None
    assert "As real processes" in made.out
    assert "syncline report races --scale laptop" in made.out
    assert answer["spent_s"] < 360.0

    again = command(*SMALL, *further, f"results={tmp_path}")
    assert again.code == 0
    assert "runs finished" not in again.err  # nothing was made
    assert read_study(path).answer == answer

    assert syncline(["report", "study", path.stem, "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert answer["sentence"] in " ".join(shown.split())
    files = {file.name for file in (tmp_path / "reports").iterdir()}
    assert {f"{path.stem}.svg", f"{path.stem}-order.md", f"{path.stem}-around.csv", f"{path.stem}-live.tex"} <= files
    assert json.loads(path.read_text())["kind"] == "race"
