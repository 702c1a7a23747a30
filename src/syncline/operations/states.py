"""The states of runs, as the files of a results folder show them.

finished     its record has a summary, and is not damaged (records/store.py)
running      a live process holds its lock (records/lock.py)
queued       a Slurm job will make it
failed       its record holds the cause, or is damaged; or the output of its Slurm task does
unfinished   it was interrupted; the next start resumes it, or restarts it
left         it has no record
"""

import math
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from syncline.metrics import is_lower_better
from syncline.operations import jobs
from syncline.operations.names import readable
from syncline.records.lock import Owner, file_clock, owner_of
from syncline.records.store import FAILED, FINISHED, UNFINISHED, RecordError, check_format, inspected

RUNNING, QUEUED, LEFT = "running", "queued", "left"
STATES = (FINISHED, RUNNING, QUEUED, FAILED, UNFINISHED, LEFT)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The entries of a finished run's summary by which runs are ranked."""

    metric: str | None  # by which it is judged; None: nothing was learned
    lower_is_better: bool
    target: float | None  # of that metric
    final: float  # of that metric, as `best`; nan: nothing was learned
    best: float
    reached_s: float | None  # when the target was reached
    time_s: float
    time_kind: str  # virtual, wall
    updates: int
    samples: int  # used in updates
    has_diverged: bool

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> "Outcome":
        learned = summary["final"] is not None
        metric = summary["metric"]
        return cls(
            metric if learned else None,
            is_lower_better(summary),
            summary["target"]["value"] if learned else None,
            summary["final"][metric] if learned else math.nan,
            summary["best"][metric]["value"] if learned else math.nan,
            summary["target"]["time_s"],
            summary["time_s"],
            summary["time_kind"],
            summary["updates"],
            summary["samples"],
            summary["status"] == "diverged",
        )


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run, with its details."""

    state: str  # one of STATES
    wall_s: float | None = None  # of a finished one
    ended_by: str = ""  # of a finished one: epochs, target, diverged, ...
    owner: Owner | None = None  # of a running one
    cause: str = ""  # of a failed one, in one line
    outcome: Outcome | None = None  # of a finished one

    def as_dict(self) -> dict[str, Any]:
        by = None if self.owner is None else self.owner.as_dict()
        cause = self.cause or None
        return {"state": self.state, "wall_s": self.wall_s, "ended_by": self.ended_by or None, "by": by, "cause": cause}

    @property
    def note(self) -> str:
        """What is printed beside the state."""
        if self.owner is not None:
            return str(self.owner)
        return self.cause or (self.ended_by if self.ended_by == "diverged" else "")


def slurm_states(results: Path, stems: Iterable[str]) -> dict[str, str | Path]:
    """Of the runs of these plans that were submitted, as of `jobs.waiting`.

    Prints a line if Slurm does not answer, as where results were copied from a cluster, or if a submission is broken.
    """
    submitted = chain.from_iterable(readable(partial(jobs.submissions, results), stems))
    try:
        return jobs.waiting(submitted)
    except jobs.NoAnswer as error:
        print(f"the state of Slurm's queue is unknown: {error}", file=sys.stderr)
        return {}


def run_states(results: Path, identities: Iterable[str], waiting: Mapping[str, str | Path]) -> dict[str, RunState]:
    """The states of these runs; reads the text of each record, writes nothing.

    Args:
        waiting: from `slurm_states`.
    """
    present = names(results)
    clock = cache(partial(file_clock, results))
    states = {}
    for identity in identities:
        if f"{identity}.lock" in present and (owner := owner_of(results / identity, clock)) is not None:
            states[identity] = RunState(RUNNING, owner=owner)
            continue
        state = _of_record(f"{results}/{identity}") if identity in present else RunState(LEFT)
        slurm = waiting.get(identity)
        if isinstance(slurm, Path):
            if state.state in (UNFINISHED, LEFT) and (cause := jobs.cause(slurm, _written(results / identity))):
                state = RunState(FAILED, cause=cause)
        # A task makes its runs one after another: while it runs, a failed run has been made already.
        elif slurm and state.state != FINISHED and not (state.state == FAILED and slurm == RUNNING):
            state = RunState(QUEUED)
        states[identity] = state
    return states


def names(folder: Path) -> set[str]:
    """The names in a folder; empty if it does not exist."""
    try:
        return set(os.listdir(folder))
    except FileNotFoundError:
        return set()


def _written(folder: Path) -> float:
    """When an unfinished record was last written to, in seconds since 1970; 0: there is none."""
    with suppress(OSError):
        return max(path.stat().st_mtime for path in (folder / "config.json", folder / "metrics.jsonl"))
    return 0.0


def _of_record(folder: str) -> RunState:
    """Of a record whose run is not under way. Paths are plain strings for speed."""
    summary, damage = inspected(folder)
    if damage:
        return RunState(FAILED, cause=damage)
    if summary is not None:
        try:
            check_format(summary["format"], Path(folder))
            return RunState(FINISHED, summary["wall_s"], summary["ended_by"], outcome=Outcome.of(summary))
        except RecordError as error:
            return RunState(FINISHED, cause=str(error))
    if (text := _text(f"{folder}/log.txt")) is not None:
        return RunState(FAILED, cause=first_cause(text))
    return RunState(UNFINISHED)


def first_cause(log: str) -> str:
    """The line of a traceback that names the error; without a traceback the first line."""
    lines = [line for line in log.splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if starts:
        lines = [line for line in lines[starts[-1] + 1 :] if not line.startswith(" ")]
    return lines[0] if lines else "log.txt is empty"


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return str(error)
