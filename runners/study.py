"""The loop of a study: ask it what is to be run, make that, ask again."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runners.plan import run_plan
from runners.slurm import FollowUp, Job, submit
from syncline.config import ConfigError, Invocation, RunConfig, SlurmConfig, compose
from syncline.plan import Entry, Plan
from syncline.records.lock import announced
from syncline.records.outcomes import read_outcome
from syncline.records.store import RecordError
from syncline.records.studies import WrittenStudy, read_study, study_path, write_study
from syncline.studies.study import ABSENT, Answer, Outcome, Stage, Study, Trial


@dataclass(frozen=True, slots=True)
class Declared:
    """A study and what it is called."""

    study: Study[Any]
    kind: str  # tune
    stem: str  # of its file
    name: str  # of the experiment, or of its kind
    scale: str  # "": of no experiment
    command: tuple[str, ...]  # arguments of run.py that go on with it


@dataclass(slots=True)
class _Made:
    """The records of trials in a folder."""

    results: Path
    since: set[str] | None = None  # identities that count, since others are to be repeated; None: all count
    _configs: dict[tuple[str, ...], RunConfig] = field(default_factory=dict)

    def entry(self, trial: Trial) -> Entry:
        """Raises ConfigError if the trial is no valid run."""
        if trial.overrides not in self._configs:
            self._configs[trial.overrides] = compose(trial.overrides)[0]
        return Entry(trial.label, trial.overrides, self._configs[trial.overrides])

    def outcome(self, trial: Trial) -> Outcome:
        identity = self.entry(trial).config.identity
        if self.since is not None and identity not in self.since:
            return ABSENT
        return read_outcome(self.results / identity)


def present_stage(declared: Declared, invocation: Invocation) -> Plan | None:
    """The plan of the stage that is to be made now; None: the study has its answer."""
    made = _Made(Path(invocation.results))
    step = declared.study.next(made.outcome)
    return _plan(declared, step, made) if isinstance(step, Stage) else None


def run_study(declared: Declared, invocation: Invocation) -> WrittenStudy:
    """Make the stages of a study on this machine, until its answer.

    With `rerun` all its runs are made again. A run that fails does not end it, but with `fail_fast`; then the study has
    no answer.

    Raises:
        ConfigError: a trial is no valid run.
        RecordError: a stage's runs left no records.
        StopRequested: this process was asked to stop.
    """
    made = _Made(Path(invocation.results), set() if invocation.rerun else None)
    before: Stage | None = None
    while True:
        step = declared.study.next(made.outcome)
        written, plan = _write(declared, step, made)
        if plan is None:
            return written
        if step == before:
            raise RecordError(f"{plan.name}: its runs left no records in {invocation.results}")
        with announced([plan.write(made.results)]):
            num_failed = run_plan(
                plan, made.results, jobs=invocation.jobs, fail_fast=invocation.fail_fast, rerun=invocation.rerun
            )
        if num_failed and invocation.fail_fast:
            return written
        if made.since is not None:
            made.since |= {entry.config.identity for entry in plan.entries}
        assert isinstance(step, Stage)
        before = step


def submit_study(
    declared: Declared, invocation: Invocation, follows: int | None
) -> tuple[WrittenStudy, list[Job], int]:
    """Submit the present stage, and a job after it that asks again.

    Args:
        follows: number of trials that were made when the job before this was submitted; None: a user asks.

    Returns:
        The study, its jobs, and how many runs are queued or running already.

    Raises:
        ConfigError: `rerun`, or Slurm refuses the job, or no trial was made since the job before.
    """
    if invocation.rerun:
        raise ConfigError("rerun=true goes with no study in Slurm: each of its jobs would begin it again")
    assert isinstance(invocation.launcher, SlurmConfig)
    made = _Made(Path(invocation.results))
    step = declared.study.next(made.outcome)
    written, plan = _write(declared, step, made)
    if plan is None:
        return written, [], 0
    assert isinstance(step, Stage)
    num_made = sum(stage.num_trials for stage in step.completed)
    num_made += sum(made.outcome(trial).status != "absent" for trial in step.trials)
    follow_up = FollowUp(f"{declared.stem}-next", [*declared.command, f"--follows={num_made}"])
    if follows is not None and num_made <= follows:
        raise ConfigError(
            f"{plan.name}: no run was made since the last job; its output tells why, the same command retries"
        )
    jobs, num_waiting = submit([plan], made.results, invocation.launcher, False, follow_up)
    return written, jobs, num_waiting


def _write(declared: Declared, step: Stage | Answer[Any], made: _Made) -> tuple[WrittenStudy, Plan | None]:
    """Write the study as it is now; the plan of its stage, if it has one."""
    plan, present, answer = None, None, None
    if isinstance(step, Stage):
        plan = _plan(declared, step, made)
        present = {"name": step.name, "plan": plan.stem, "num_trials": len(step.trials)}
    else:
        answer = asdict(step.result)
    written = WrittenStudy(
        declared.kind,
        declared.name,
        declared.scale,
        list(declared.command),
        asdict(declared.study),
        [asdict(stage) for stage in step.completed],
        present,
        answer,
    )
    path = study_path(made.results, declared.stem)
    write_study(path, written)
    return read_study(path), plan


def _plan(declared: Declared, stage: Stage, made: _Made) -> Plan:
    """The stage as a plan of its own; a run that several trials share is made once."""
    entries = tuple(made.entry(trial) for trial in stage.trials)
    return Plan(f"{declared.stem} {stage.name}".replace(" ", "-"), "", entries, {}, declared.command)
