"""A study that judges the claims of an experiment, as the command line and the experiment's file declare it."""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from runners.planning import chosen_experiment, experiment_names, names_and_words
from runners.study import Declared, Made, ask, go_on, make_stage, tell
from syncline.config import (
    ConfigError,
    Invocation,
    JudgeConfig,
    SlurmConfig,
    apart,
    compose_study,
    divided,
    seconds,
    split,
)
from syncline.config.folders import use
from syncline.operations.tables import counted, duration
from syncline.plan import Plan
from syncline.records.plans import PlannedRun
from syncline.records.store import FINISHED, RecordError, read_summary, status
from syncline.records.studies import read_study, study_path
from syncline.studies.judge import Judgement, Judging, Row
from syncline.studies.study import Stage, Trial


def main(asked: argparse.Namespace) -> int:
    """`syncline judge`: goes on with studies, to their answers, to the end of the budget, or to their submission."""
    use(*asked.config_dir)
    studies, config, invocation = declared_judging(asked.words)
    if isinstance(invocation.launcher, SlurmConfig):
        if config.budget:
            raise ConfigError("judge.budget goes with runs on this machine, not with Slurm")
        for declared in studies:
            go_on(declared, invocation, asked.follows)
        return 0
    num_failed, left = judge(studies, config, invocation)
    for declared in studies:
        path = study_path(Path(invocation.results), declared.stem)
        tell(read_study(path), path)
    for piece in left:
        print("left:", piece.told)
    return 1 if num_failed else 0


def declared_judging(words: Sequence[str]) -> tuple[list[Declared], JudgeConfig, Invocation]:
    """The studies that these words declare, one for each experiment.

    Raises:
        ConfigError: no experiment is named, or an unknown one, or there is a seed, or a seed that tunes.
    """
    names, words = names_and_words(words)
    if not names:
        raise ConfigError("judge needs the name of an experiment, of a paper, or all")
    of_study, overrides = apart("judge", words)
    if any(split(word)[0] == "seed" for word in overrides):
        raise ConfigError("judge takes no seed=; scale.seeds sets those of the first look")
    config = compose_study(JudgeConfig, "judge", "claims", of_study)
    command = [word for word in words if split(word)[0] != "judge.budget"]
    from reports.papers import SHOWN

    chosen = experiment_names(names)
    if names == ["all"]:  # of the papers: of an experiment of the user's own no claim is known
        chosen = [name for name in chosen if name.partition("/")[0] in SHOWN]
    made = [_declared(name, config, overrides, ("judge", name, *command)) for name in chosen]
    return [declared for declared, _ in made], config, made[0][1]


def _declared(
    name: str, judge: JudgeConfig, overrides: Sequence[str], command: tuple[str, ...]
) -> tuple[Declared, Invocation]:
    chosen = chosen_experiment([f"+experiment={name}", *overrides])
    invocation, scale = chosen.invocation, chosen.invocation.scale.name
    report = chosen.report
    declared = (report.get("looks") or {}).get(scale)
    if declared and judge.looks:
        raise ConfigError(f"judge.looks: {chosen.name} has looks of its own at scale {scale}, {declared}")
    looks = judge.looks or declared
    if looks:
        report["looks"] = {**(report.get("looks") or {}), scale: looks}
    looks = looks or [len(chosen.seeds)]
    seeds = chosen.judging_seeds(looks[-1])
    if both := sorted({*seeds} & {*chosen.tuning_seeds}):
        raise ConfigError(f"scale.seeds must not be seeds that tune, got {', '.join(map(str, both))} in both")
    plan = Plan(chosen.name, scale, (), report, command)
    own, _ = divided(chosen.own)
    rows = tuple(Row(label, (*words, *own)) for label, words in chosen.rows())
    verdicts = _verdicts(plan, Path(invocation.results))
    study = Judging(rows, tuple(seeds), tuple(looks), verdicts)
    return Declared(study, "judge", f"judge-{plan.stem}", chosen.name, plan), invocation


def _verdicts(plan: Plan, results: Path) -> Callable[[Sequence[Trial]], Sequence[Judgement]]:
    """The verdicts by the records of trials."""
    made = Made(results)

    def planned(trials: Sequence[Trial]) -> Iterator[PlannedRun]:
        for trial in trials:
            config = made.entry(trial).config
            yield PlannedRun(trial.label, config.seed, config.identity, list(trial.overrides))

    def verdicts(trials: Sequence[Trial]) -> Sequence[Judgement]:
        from reports.judging import judgements

        return list(judgements(plan.name, plan.scale, plan.report, list(planned(trials)), results))

    return verdicts


@dataclass(frozen=True, slots=True)
class Piece:
    """The next look of an experiment."""

    declared: Declared
    stage: Stage
    num_claims: int  # that it may decide
    seconds: float  # that its runs take one after the other; inf: a row was never made

    @property
    def order(self) -> tuple[bool, float]:
        """The first looks come before others, the cheapest first; then claims an hour count."""
        is_first = not self.stage.completed
        return not is_first, self.seconds if is_first else self.seconds / self.num_claims

    @property
    def told(self) -> str:
        """One line on what it is."""
        return f"{self.declared.name} {self.stage.name}: {counted(self.num_claims, 'undecided claim')}"


def judge(studies: Sequence[Declared], config: JudgeConfig, invocation: Invocation) -> tuple[int, list[Piece]]:
    """Judge the claims of experiments, piece by piece, until none is left or the budget is spent.

    Each call has the whole budget. Runs under way at its end are stopped with checkpoints, and the next call goes on.

    Returns:
        How many runs failed, and what is left.

    Raises:
        ConfigError, RecordError, StopRequested: as `run_study`.
    """
    until, num_failed = time.monotonic() + (seconds("judge.budget", config.budget) or math.inf), 0
    made = Made(Path(invocation.results), set() if invocation.rerun else None)
    left = list(_pieces(studies, made))
    while left and time.monotonic() < until:
        piece = min(left, key=lambda each: each.order)

        def about(piece: Piece = piece) -> str:
            time_left = "" if math.isinf(until) else f", {duration(max(0.0, until - time.monotonic()))} of the budget"
            return f"{counted(piece.num_claims, 'undecided claim')}{time_left}"

        num_before = len(_absent(piece.stage, made))
        failed = make_stage(piece.declared, piece.stage, made, invocation, until, about)
        if len(_absent(piece.stage, made)) == num_before and time.monotonic() < until:
            raise RecordError(f"{piece.declared.stem}, {piece.stage.name}: its runs left no records in {made.results}")
        num_failed += failed
        if failed and invocation.fail_fast:
            break
        paper = piece.declared.name.partition("/")[0]  # claims may rest on several of its experiments
        again = [declared for declared in studies if declared.name.startswith(f"{paper}/")]
        left = [*(each for each in left if each.declared not in again), *_pieces(again, made)]
    return num_failed, left


def _pieces(studies: Sequence[Declared], made: Made) -> Iterator[Piece]:
    """The next look of each study that has no answer yet."""
    from reports.judging import num_claims

    for declared in studies:
        study, step = declared.study, ask(declared, made)
        if isinstance(step, Stage):
            assert isinstance(study, Judging)
            num = study.num_asking(step) if step.completed else num_claims(declared.name)
            yield Piece(declared, step, num, _estimated_s(step, made))


def _absent(stage: Stage, made: Made) -> list[Trial]:
    return [trial for trial in stage.trials if made.outcome(trial).status == "absent"]


def _estimated_s(stage: Stage, made: Made) -> float:
    """Wall seconds of the runs of a stage that are not made yet, by the mean of those of their rows that are."""
    taken: dict[str, list[float]] = {}
    for trial in (*stage.before, *stage.trials):
        folder = made.results / made.entry(trial).config.identity
        if status(folder) == FINISHED:
            taken.setdefault(trial.label, []).append(float(read_summary(folder)["wall_s"]))
    return sum(fmean(taken.get(trial.label, [math.inf])) for trial in _absent(stage, made))
