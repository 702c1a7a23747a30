"""Judging from the command line: what is declared, what is refused, the order of pieces in a budget, small studies."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import Command, one_error_line

from runners import judging
from runners.judging import Piece, declared_judging
from runners.planning import experiment_plan
from runners.slurm import submit
from runners.study import Declared, Made
from syncline.config import ConfigError, SlurmConfig
from syncline.plan import Plan
from syncline.records.plans import plan_path, read_plan
from syncline.records.store import FINISHED, status
from syncline.records.studies import WrittenStudy, read_study, study_path, write_study
from syncline.studies.judge import Judgement, Judging, Row
from syncline.studies.study import Completed, Outcome, Stage, Trial
from tests.refusals import refusal

# Softmax regression of a few glyphs: learns enough to be judged, in a tenth of a second.
TINY = [
    *("dssp/table1", "scale=gpu", "judge.looks=[3,6]", "model=softmax_regression", "epochs=3", "jobs=2"),
    *("dataset=glyphs10", "dataset.augment=false", "dataset.image_size=16", "dataset.test_size=1000", "batch_size=16"),
    *("dataset.train_size=800", "eval_every_epochs=0.25", "optimizer.schedule.at_epochs=[2]"),
]


def declared(*words: str) -> Declared:
    (found,), *_ = declared_judging(words)
    assert isinstance(found.study, Judging)
    return found


# What is declared.


def test_its_first_look_is_the_experiments_own_plan() -> None:
    study = declared("dssp/table1", "scale=workstation")
    plan, _ = experiment_plan(["+experiment=dssp/table1", "scale=workstation"], False)
    assert (study.stem, study.plan.stem, study.plan.report) == ("judge-dssp-table1-workstation", plan.stem, plan.report)
    stage = study.study.next(Made(Path("none")).outcome)
    assert isinstance(stage, Stage)
    made = Made(Path("none"))
    entries = {(one.label, one.config.seed): one for one in map(made.entry, stage.trials)}
    assert entries == {(one.label, one.config.seed): one for one in plan.entries}
    assert len(entries) == len(stage.trials)
    assert (study.study.looks, study.study.seeds) == ((5, 10, 15, 20), tuple(range(20, 40)))


def test_without_looks_there_is_one_at_the_seeds_of_the_experiment() -> None:
    study = declared("adasync/fig6", "scale=workstation").study
    assert (study.looks, study.seeds) == ((8,), tuple(range(8)))


def test_the_command_line_says_the_looks_and_seeds_of_tuning_are_left_out() -> None:
    found = declared("dssp/table1", "scale=laptop", "judge.looks=[3,6]", "scale.seeds=[7,998]")
    assert found.plan.report["looks"]["laptop"] == [3, 6]
    assert found.study.seeds == (7, 998, 999, 1003, 1004, 1005)  # 1000 to 1002 tune this experiment


def test_a_paper_is_a_study_an_experiment_whose_command_goes_on_with_it() -> None:
    found, *_ = declared_judging(["dssp", "scale=laptop", "judge.budget=90m"])
    assert [one.name for one in found] == ["dssp/fig3", "dssp/fig4", "dssp/table1"]
    assert found[0].plan.command == ("judge", "dssp/fig3", "scale=laptop")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["strategy=bsp"], "judge needs the name of an experiment"),
        ([*TINY, "seed=3"], "judge takes no seed=; scale.seeds"),
        ([*TINY, "scale.seeds=[1000,1,1001]"], "scale.seeds must not be seeds that tune, got 1000, 1001"),
        ([*TINY, "judge.budget=6"], "judge.budget must be a time above 0, as 6h or 90m, or null, got 6"),
        ([*TINY, "judge.budget=0h"], "judge.budget must be a time above 0, as 6h or 90m, or null, got 0h"),
        (["dssp/table1", "scale=workstation", "judge.looks=[5]"], "judge.looks: dssp/table1 has looks of"),
        ([*TINY, "judge.looks=[5,6]"], "judge.looks must grow by 3 or more"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_line(words: list[str], line: str) -> None:
    assert line in refusal(ConfigError, declared_judging, words)


def test_a_budget_is_of_this_machine(command: Command) -> None:
    said = command("judge", *TINY, "judge.budget=1h", "runner=slurm", "runner.submit=false")
    assert one_error_line(said) == "error: judge.budget goes with runs on this machine, not with Slurm"
    assert "judge takes no -m; " in one_error_line(command("judge", "-m", *TINY))


# The order of pieces.


def piece(name: str, seconds: float, num_claims: int = 1, is_first: bool = False) -> Piece:
    study = Judging((Row("a", ()),), (0,), (1,), lambda trials: [])
    plan = Plan(name, "laptop", (), {})
    done = () if is_first else (Completed("look 1", 1, (), ()),)
    return Piece(Declared(study, "judge", name, name, plan), Stage("look", (), done), num_claims, seconds)


def test_first_looks_come_first_the_cheapest_first_and_then_claims_an_hour() -> None:
    pieces = [
        piece("many", 1000, 10),
        piece("few", 300, 2),
        piece("long", 500, is_first=True),
        piece("new", math.inf, is_first=True),
        piece("short", 5, is_first=True),
    ]
    ordered = [each.declared.name for each in sorted(pieces, key=lambda each: each.order)]
    assert ordered == ["short", "long", "new", "many", "few"]


class FakeRuns:
    """Runs that take as long as their row says, of a clock that only they move; claims that are never decided.

    Only those of psp/a ask for further looks.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: dict[str, dict[str, float]]) -> None:
        self.now, self.made, self.pieces = 0.0, dict[Trial, float](), list[tuple[str, str, int]]()
        self.studies = [self._declared(name, costs) for name, costs in rows.items()]
        self.costs = rows
        monkeypatch.setattr(judging, "ask", lambda declared, made: declared.study.next(self.records))
        monkeypatch.setattr(judging, "make_stage", self.make)
        monkeypatch.setattr(judging.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(Made, "outcome", lambda made, trial: self.records(trial))
        monkeypatch.setattr(judging, "_estimated_s", self.estimated_s)

    def _declared(self, name: str, costs: dict[str, float]) -> Declared:
        rows = tuple(Row(label, (f"experiment={name}",)) for label in costs)
        verdicts = [Judgement(name, "undecided", "", 0, tuple(costs) if name == "psp/a" else ())]
        study = Judging(rows, tuple(range(20)), (5, 10, 15, 20), lambda trials: verdicts)
        return Declared(study, "judge", f"judge-{name}", name, Plan(name, "laptop", (), {}))

    def estimated_s(self, stage: Stage, made: Any) -> float:
        known = {trial.label: seconds for trial, seconds in self.made.items()}
        return sum(known.get(trial.label, math.inf) for trial in stage.trials if trial not in self.made)

    def records(self, trial: Trial) -> Any:
        return Outcome("finished" if trial in self.made else "absent")

    def make(self, declared: Declared, stage: Stage, made: Any, invocation: Any, until: float, about: Any) -> int:
        assert re.fullmatch(r"\d+ undecided claims?, [\d:]+ of the budget", about())
        absent = [trial for trial in stage.trials if trial not in self.made]
        self.pieces.append((declared.name, stage.name, len(absent)))
        for trial in absent:
            taken = self.costs[declared.name][trial.label]
            if self.now + taken > until:
                self.now = until
                break
            self.now += taken
            self.made[trial] = taken
        return 0


def test_a_budget_is_kept_and_spent_where_claims_are_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRuns(monkeypatch, {"psp/a": {"x": 60.0, "y": 1.0}, "dssp/b": {"x": 10.0}, "adasync/c": {"x": 550.0}})
    _, config, invocation = declared_judging([*TINY, "jobs=1", "judge.budget=1h"])
    failed, left = judging.judge(fake.studies, config, invocation)
    assert (failed, fake.now <= 3600) == (0, True)
    assert fake.pieces == [
        ("psp/a", "look 1", 10),
        ("dssp/b", "look 1", 5),
        ("adasync/c", "look 1", 5),
        ("psp/a", "look 2", 10),
        ("psp/a", "look 3", 10),
    ]
    assert [(one.declared.name, one.stage.name) for one in left] == [("psp/a", "look 3")]
    assert left[0].told == "psp/a look 3: 1 undecided claim"


# Small studies.


@pytest.mark.slow
@pytest.mark.usefixtures("pool_here")
def test_a_study_looks_twice_and_its_answer_is_what_the_report_says(tmp_path: Path, command: Command) -> None:
    words = ["judge", *TINY, f"results={tmp_path}"]
    own = ["+experiment=dssp/table1", *(word for word in words[2:] if not word.startswith("judge."))]
    said = command(*words)
    assert said.code == 0, said.err
    stem = "judge-dssp-table1-gpu"
    study = read_study(study_path(tmp_path, stem))
    assert [stage["name"] for stage in study.stages] == ["look 1", "look 2"]
    assert study.answer is not None
    verdicts = {claim["claim"]: (claim["verdict"], claim["num_seeds"]) for claim in study.answer["claims"]}
    assert verdicts["dssp.hetero_accuracy"][1] == 6
    plan = read_plan(plan_path(tmp_path, "dssp-table1-gpu"))
    assert (plan.name, plan.scale, {run.seed for run in plan.runs}) == ("dssp/table1", "gpu", set(range(6)))
    assert study.plan == plan.stem
    assert "study" in said.out
    assert command(*words).err == ""  # it is not made twice
    assert command(*own, "rerun=false").code == 0
    kept = read_plan(plan.path)
    assert (kept.runs, kept.report) == (plan.runs, plan.report)  # the study's seeds and looks stay
    assert command(*words).code == 0
    assert read_plan(plan.path).runs == plan.runs

    from reports.exhibits import ArtefactStore
    from reports.papers import PAPERS

    board = ArtefactStore(tmp_path, "gpu").verdicts(PAPERS["dssp"])
    of_it = {f"dssp.{one.claim.key}": one.verdict for one in board if one.claim.artefacts == ("dssp/table1",)}
    assert of_it == {claim: verdict for claim, (verdict, _) in verdicts.items()}


@pytest.mark.slow
@pytest.mark.usefixtures("pool_here")
def test_where_runs_failed_the_claims_are_not_run_and_nothing_more_is_made(tmp_path: Path, command: Command) -> None:
    """No data are there; the runs of times alone need none."""
    words = ["dssp/table1", "scale=gpu", "epochs=1", "jobs=2", "dataset=cifar10"]
    places = [f"dataset.root={tmp_path / 'empty'}", f"results={tmp_path}"]
    said = command("judge", *words, "judge.looks=[3,6]", *places)
    assert said.code == 1
    study = read_study(study_path(tmp_path, "judge-dssp-table1-gpu"))
    assert study.answer is not None
    assert {claim["verdict"] for claim in study.answer["claims"]} == {"not run", "paper contradicts itself"}
    assert len(study.stages) == 1


@pytest.mark.usefixtures("pool_here")
def test_a_budget_that_is_over_stops_with_what_is_left(tmp_path: Path, command: Command) -> None:
    said = command("judge", *TINY, "judge.budget=0.005m", "jobs=1", f"results={tmp_path}")
    assert said.code == 0, said.err
    assert "left: dssp/table1 look 1: 3 undecided claims" in said.out
    num_finished = sum(status(path) == FINISHED for path in tmp_path.iterdir())
    assert num_finished < 48
    assert read_study(study_path(tmp_path, "judge-dssp-table1-gpu")).answer is None


def test_the_experiments_own_command_leaves_a_plan_that_a_study_has_grown(tmp_path: Path) -> None:
    words = ["+experiment=dssp/table1", "scale=workstation"]
    plan, _ = experiment_plan(words, False)
    more, _ = experiment_plan([*words, "scale.seeds=[20,21,22,23,24,25]"], False)

    def num_kept(own: Plan) -> int:
        more.write(tmp_path)
        return len(read_plan(own.keep(tmp_path)).runs)

    assert num_kept(plan) == len(plan.entries)  # no study has
    study = WrittenStudy("judge", plan.name, plan.scale, plan.stem, [], {}, [], None, None)
    write_study(study_path(tmp_path, f"judge-{plan.stem}"), study)
    assert num_kept(plan) == num_kept(more) == len(more.entries) > len(plan.entries)
    submit([plan], tmp_path, SlurmConfig(submit=False))
    assert len(read_plan(plan_path(tmp_path, plan.stem)).runs) == len(more.entries)
    looks = {"looks": {"workstation": [3, 6]}}
    more = replace(more, report={**plan.report, **looks})
    renewed = replace(
        plan, report={key: value for key, value in plan.report.items() if key != "looks"} | {"targets": {}}
    )
    assert num_kept(renewed) == len(more.entries), "another report leaves the further seeds"
    assert read_plan(plan_path(tmp_path, plan.stem)).report == {**renewed.report, **looks}
