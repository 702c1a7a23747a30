"""The loop of a study: ask it what is to be run, make that, ask again."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from runners.display import say
from runners.plan import Ended, run_plan
from runners.slurm import show_jobs, submit
from syncline.config import ConfigError, Invocation, RunConfig, SlurmConfig, compose, folders
from syncline.operations.studies import answer_lines
from syncline.operations.tables import terminal_width
from syncline.plan import Entry, Plan
from syncline.records.lock import announced
from syncline.records.outcomes import read_outcome
from syncline.records.plans import plan_path
from syncline.records.store import RecordError
from syncline.records.studies import WrittenStudy, read_study, study_path, write_study
from syncline.studies.study import ABSENT, Answer, Completed, Outcome, Stage, Study, Trial


@dataclass(frozen=True, slots=True)
class Declared:
    """A study and what it is called."""

    study: Study[Any]
    kind: str  # tune, judge, race: the command
    stem: str  # of its file
    name: str  # of the experiment, or of its kind
    plan: Plan  # without its entries; its command goes on with the study


@dataclass(slots=True)
class Made:
    """The records of trials in a folder. Runs that failed before are absent, so that they are made again."""

    results: Path
    since: set[str] | None = None  # identities that count, since others are to be repeated; None: all count
    counts_failures: bool = False  # also those from before
    _configs: dict[tuple[str, ...], RunConfig] = field(default_factory=dict)  # without the seed
    _known: dict[str, Outcome] = field(default_factory=dict)  # by identity

    def entry(self, trial: Trial) -> Entry:
        """Raises ConfigError if the trial is no valid run."""
        *words, seed = trial.overrides
        assert seed.startswith("seed="), seed
        row = tuple(words)
        if row not in self._configs:
            self._configs[row] = compose(row)[0]
        return Entry(trial.name, trial.overrides, replace(self._configs[row], seed=int(seed.removeprefix("seed="))))

    def outcome(self, trial: Trial) -> Outcome:
        identity = self.entry(trial).config.identity
        if self.since is not None and identity not in self.since:
            return ABSENT
        outcome = self._known.get(identity) or read_outcome(self.results / identity)
        if outcome.status == "finished":
            self._known[identity] = outcome
        is_old_failure = outcome.status == "failed" and identity not in self._known
        return ABSENT if is_old_failure and not self.counts_failures else outcome

    def count(self, ended: Ended) -> None:
        """Count these runs. One that failed has failed, also if it left no record, or if an older one stays."""
        self._known |= dict.fromkeys(ended.failed, Outcome("failed"))
        for identity in ended.finished:
            self._known.pop(identity, None)
        if self.since is not None:
            self.since |= ended.finished | ended.failed


def go_on(declared: Declared, invocation: Invocation, follows: int | None) -> WrittenStudy:
    """Make the stages of a study, or submit the present one, and tell the answer.

    Raises:
        ConfigError, RecordError, StopRequested: as `run_study` and `submit_study`.
    """
    if isinstance(invocation.launcher, SlurmConfig):
        study = submit_study(declared, invocation, follows)
    elif follows is not None:
        raise ConfigError("--follows goes with a study in Slurm")
    else:
        study = run_study(declared, invocation)
    tell(study, study_path(Path(invocation.results), declared.stem))
    return study


def tell(study: WrittenStudy, path: Path) -> None:
    """Print the answer of a study, if it has one, with the tables of a race, and where it is."""
    if study.answer is not None:
        print("\n".join(answer_lines(study, terminal_width())))
    if study.answer is not None and study.kind == "race":
        from reports.races import race_tables  # a second: pandas

        for table in race_tables(study.answer).values():
            table.print(Console())
    print("study", path)


def run_study(declared: Declared, invocation: Invocation) -> WrittenStudy:
    """Make the stages of a study on this machine, until its answer.

    With `rerun` all its runs are made again. A run that fails does not end it, but with `fail_fast`; then the study has
    no answer.

    Raises:
        ConfigError: a trial is no valid run.
        RecordError: a stage's runs left no records.
        StopRequested: this process was asked to stop.
    """
    made = Made(Path(invocation.results), set() if invocation.rerun else None)
    before: Stage | None = None
    while isinstance(step := ask(declared, made), Stage):
        if step == before:
            raise RecordError(f"{declared.stem}, {step.name}: its runs left no records in {invocation.results}")
        if before is not None:
            _tell(step.completed[len(before.completed) :])
        if make_stage(declared, step, made, invocation) and invocation.fail_fast:
            break
        before = step
    return read_study(study_path(made.results, declared.stem))


def ask(declared: Declared, made: Made) -> Stage | Answer[Any]:
    """The present stage or the answer, once the study and its plan are written.

    Raises:
        ConfigError: a trial is no valid run.
        RecordError: a record is broken, or the study cannot be written.
    """
    step = declared.study.next(made.outcome)
    _write(declared, step, made)
    _plan(declared, step, made).write(made.results)
    return step


def _tell(completed: Sequence[Completed]) -> None:
    """Say what was decided after stages; where there are scores, `show` has both."""
    for stage in completed:
        for decision in () if stage.scores else stage.decisions:
            say(f"{stage.name}: {decision}")


def make_stage(
    declared: Declared,
    stage: Stage,
    made: Made,
    invocation: Invocation,
    until: float = math.inf,
    about: Callable[[], str] = str,
) -> int:
    """Make the runs of a stage that are not finished. Returns how many failed.

    Args:
        until, about: as of `run_plan`.
    """
    present = _present(declared, stage, made)
    with announced([plan_path(made.results, present.stem)]):
        ended = run_plan(
            present,
            made.results,
            jobs=invocation.jobs,
            fail_fast=invocation.fail_fast,
            rerun=invocation.rerun,
            until=until,
            about=about,
        )
    made.count(ended)
    return len(ended.failed)


def submit_study(declared: Declared, invocation: Invocation, follows: int | None) -> WrittenStudy:
    """Submit the present stage, and a job after it that asks again, and tell both.

    Args:
        follows: number of trials that were made when the job before this was submitted; None: a user asks.

    Raises:
        ConfigError: Slurm refuses the job, or no trial was made since the job before.
    """
    assert isinstance(invocation.launcher, SlurmConfig)
    made = Made(Path(invocation.results), counts_failures=follows is not None)
    step = ask(declared, made)
    written = read_study(study_path(made.results, declared.stem))
    if isinstance(step, Answer):
        return written
    present = _present(declared, step, made)
    num_made = sum(stage.num_trials for stage in step.completed)
    num_made += sum(made.outcome(trial).status != "absent" for trial in step.trials)
    follow_up = [*declared.plan.command, f"--follows={num_made}"]
    if follows is not None and num_made <= follows:
        raise ConfigError(
            f"{present.name}: no run was made since the last job; its output tells why, the same command retries"
        )
    show_jobs(*submit([present], made.results, invocation.launcher, follow_up))
    return written


def _write(declared: Declared, step: Stage | Answer[Any], made: Made) -> None:
    """Write the study as it is now."""
    present = {"name": step.name, "num_trials": len(step.trials)} if isinstance(step, Stage) else None
    answer = asdict(step.result) if isinstance(step, Answer) else None
    written = WrittenStudy(
        declared.kind,
        declared.name,
        declared.plan.scale,
        declared.plan.stem,
        [*declared.plan.command, *folders.words()],
        {key: value for key, value in asdict(declared.study).items() if not callable(value)},
        [asdict(stage) for stage in step.completed],
        present,
        answer,
    )
    write_study(study_path(made.results, declared.stem), written)


def _plan(declared: Declared, step: Stage | Answer[Any], made: Made) -> Plan:
    """The trials of all stages so far; a run that several of them share is made once."""
    trials = (*step.before, *(step.trials if isinstance(step, Stage) else ()))
    return replace(declared.plan, entries=tuple(map(made.entry, trials)))


def _present(declared: Declared, stage: Stage, made: Made) -> Plan:
    """The trials of the stage alone, as they are made and submitted under the name of the study's plan."""
    entries, plan = tuple(map(made.entry, stage.trials)), declared.plan
    return Plan(f"{declared.stem}, {stage.name}", "", entries, {}, declared.plan.command, plan.stem)
