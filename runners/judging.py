"""A study that judges the claims of an experiment, as the command line and the experiment's file declare it."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from runners.plan import num_jobs
from runners.planning import chosen_experiment, experiment_names, is_experiment
from runners.study import Declared, Made, ask, make_stage
from syncline.config import ConfigError, Invocation, JudgeConfig, divided, split
from syncline.operations.tables import counted, duration
from syncline.plan import Plan
from syncline.records.plans import PlannedRun
from syncline.records.store import FINISHED, RecordError, read_summary, status
from syncline.studies.judge import Judgement, Judging, Row
from syncline.studies.study import Stage, Trial


def declared_judging(overrides: Sequence[str]) -> tuple[list[Declared], Invocation]:
    """The studies that these words declare, one for each experiment.

    Raises:
        ConfigError: there is no experiment among the words, or an unknown one, a seed, or a seed that tunes.
    """
    words = [word for word in overrides if is_experiment(word)]
    if not words:
        raise ConfigError("+judge goes with +experiment=<name>, a paper or all")
    if any(split(word)[0] == "seed" for word in overrides):
        raise ConfigError("+judge goes with no seed=; scale.seeds sets those of the first look")
    others = [word for word in overrides if word not in words]
    made = [_declared([f"+experiment={name}", *others]) for name in experiment_names(words)]
    return [declared for declared, _ in made], made[0][1]


def _declared(overrides: Sequence[str]) -> tuple[Declared, Invocation]:
    chosen = chosen_experiment(overrides)
    invocation, scale = chosen.invocation, chosen.invocation.scale.name
    judge = invocation.judge
    assert isinstance(judge, JudgeConfig)
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
    command = tuple(word for word in overrides if split(word)[0] != "judge.budget")
    plan = Plan(chosen.name, scale, (), report, command)
    own, _ = divided(chosen.own)
    rows = tuple(Row(label, (*words, *own)) for label, words in chosen.rows())
    verdicts = _verdicts(plan, Path(invocation.results))
    study = Judging(rows, tuple(seeds), tuple(looks), verdicts)
    return Declared(study, "judge", f"judge-{plan.stem}", chosen.name, scale, command, plan), invocation


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
    seconds: float | None  # that its runs take; None: a row was never made

    @property
    def is_first(self) -> bool:
        return not self.stage.completed

    @property
    def told(self) -> str:
        """One line on what it is."""
        about = "never made" if self.seconds is None else f"about {duration(self.seconds)}"
        claims = counted(self.num_claims, "undecided claim")
        return f"{self.declared.name} {self.stage.name}: {claims}, {about}"


def chosen(pieces: Sequence[Piece], left_s: float) -> Piece | None:
    """The piece that is made next: the first looks before others, the cheapest first; then by claims an hour.

    A piece that does not fit into the time left is not begun. The time of one that was never made is unknown: it comes
    after the other first looks, to be measured.

    Args:
        left_s: may be inf.

    Returns:
        None if no piece fits.
    """
    fit = [piece for piece in pieces if (piece.seconds or 0.0) <= left_s and left_s > 0.0]

    def order(piece: Piece) -> tuple[bool, float]:
        seconds = math.inf if piece.seconds is None else piece.seconds
        return not piece.is_first, seconds if piece.is_first else seconds / piece.num_claims

    return min(fit, key=order, default=None)


def judge(studies: Sequence[Declared], invocation: Invocation) -> tuple[int, list[Piece]]:
    """Judge the claims of experiments, piece by piece, until none is left or the budget is spent.

    Each call has the whole budget. Runs under way at its end are stopped with checkpoints, and the next call goes on.

    Returns:
        How many runs failed, and what is left.

    Raises:
        ConfigError, RecordError, StopRequested: as `run_study`.
    """
    config = invocation.judge
    assert isinstance(config, JudgeConfig)
    budget_s = math.inf if config.budget_s is None else config.budget_s
    until, num_failed = time.monotonic() + budget_s, 0
    made = Made(Path(invocation.results), set() if invocation.rerun else None)
    costs = Costs(made, invocation.jobs)
    left = list(_pieces(studies, made, costs))
    while piece := chosen(left, until - time.monotonic()):

        def about(piece: Piece = piece) -> str:
            time_left = "" if math.isinf(until) else f", {duration(max(0.0, until - time.monotonic()))} of the budget"
            return f"{counted(piece.num_claims, 'undecided claim')}{time_left}"

        stage = piece.stage if piece.seconds is not None or math.isinf(until) else costs.sample(piece.stage)
        num_before = costs.num_absent(stage)
        failed = make_stage(piece.declared, stage, made, invocation, until, about)
        if costs.num_absent(stage) == num_before and time.monotonic() < until:
            raise RecordError(f"{piece.declared.stem}, {stage.name}: its runs left no records in {made.results}")
        num_failed += failed
        if failed and invocation.fail_fast:
            break
        paper = piece.declared.name.partition("/")[0]  # claims may rest on several of its experiments
        again = [declared for declared in studies if declared.name.startswith(f"{paper}/")]
        others = [piece for piece in left if piece.declared not in again]
        left = [*others, *_pieces(again, made, costs)]
    return num_failed, left


def _pieces(studies: Sequence[Declared], made: Made, costs: "Costs") -> Iterator[Piece]:
    """The next look of each study that has no answer yet."""
    from reports.judging import num_claims

    for declared in studies:
        study, step = declared.study, ask(declared, made)
        if isinstance(step, Stage):
            assert isinstance(study, Judging)
            num = study.num_asking(step) if step.completed else num_claims(declared.name)
            yield Piece(declared, step, num, costs.seconds(step))


@dataclass(slots=True)
class Costs:
    """What runs take, from the wall seconds of those that were made."""

    made: Made
    jobs: int | None  # at a time; None: as many as a plan's
    _wall_s: dict[str, float] = field(default_factory=dict)  # by identity

    def seconds(self, stage: Stage) -> float | None:
        """Of the runs of a stage that are not made yet; None: of a row of theirs none was ever finished."""
        means, absent = self._means(stage), self._absent(stage)
        if not absent:
            return 0.0
        if any(trial.label not in means for trial in absent):
            return None
        taken = [means[trial.label] for trial in absent]
        at_a_time = self.jobs or num_jobs([self.made.entry(trial) for trial in absent])
        return max(max(taken), sum(taken) / at_a_time)

    def sample(self, stage: Stage) -> Stage:
        """One run of each row whose time is unknown."""
        means = self._means(stage)
        unknown = {trial.label: trial for trial in reversed(self._absent(stage)) if trial.label not in means}
        return replace(stage, trials=tuple(reversed(unknown.values())))

    def num_absent(self, stage: Stage) -> int:
        return len(self._absent(stage))

    def _absent(self, stage: Stage) -> list[Trial]:
        return [trial for trial in stage.trials if self.made.outcome(trial).status == "absent"]

    def _means(self, stage: Stage) -> dict[str, float]:
        """Mean wall seconds of a run by row."""
        taken: dict[str, list[float]] = {}
        for trial in (*stage.before, *stage.trials):
            if (wall_s := self._wall_s_of(trial)) is not None:
                taken.setdefault(trial.label, []).append(wall_s)
        return {label: fmean(own) for label, own in taken.items()}

    def _wall_s_of(self, trial: Trial) -> float | None:
        """None: it is not finished."""
        identity = self.made.entry(trial).config.identity
        folder = self.made.results / identity
        if identity not in self._wall_s and status(folder) == FINISHED:
            self._wall_s[identity] = float(read_summary(folder)["wall_s"])
        return self._wall_s.get(identity)
