"""What became of runs: one look at the folder of the results, and at what lies there of each.

finished     its record has a summary
running      somebody alive holds its lock (records/lock.py)
queued       a Slurm job will make it
failed       its record holds the cause
unfinished   it was interrupted; the next start resumes it, or begins it again
left         nothing is there
"""

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from syncline.operations import jobs
from syncline.records.lock import Owner, file_clock, owner_of
from syncline.records.store import FAILED, FINISHED, UNFINISHED

RUNNING, QUEUED, LEFT = "running", "queued", "left"
STATES = (FINISHED, RUNNING, QUEUED, FAILED, UNFINISHED, LEFT)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a finished run came to: of its summary what runs are ranked by."""

    metric: str | None  # that it is judged by; None: nothing was learned
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
    """The state of a run, and what belongs to it."""

    state: str  # one of STATES
    wall_s: float | None = None  # of a finished one: what it took
    ended_by: str = ""  # of a finished one: epochs, target, diverged, ...
    owner: Owner | None = None  # of a running one
    cause: str = ""  # of a failed one, in one line
    outcome: Outcome | None = None  # of a finished one

    def as_dict(self) -> dict[str, Any]:
        owner = self.owner
        by = None if owner is None else {"host": owner.host, "pid": owner.pid, "since": owner.since}
        cause = self.cause or None
        return {"state": self.state, "wall_s": self.wall_s, "ended_by": self.ended_by or None, "by": by, "cause": cause}

    @property
    def note(self) -> str:
        """What is to be said beside the state."""
        if self.owner is not None:
            return str(self.owner)
        return self.cause or (self.ended_by if self.ended_by == "diverged" else "")


def waiting_in(results: Path, stems: Iterable[str]) -> dict[str, str]:
    """Identity -> "queued" or "running", of the runs of these plans that Slurm has not ended.

    Where Slurm cannot be asked, as of results that were copied from a cluster, a line says so.
    """
    try:
        return jobs.waiting(submission for stem in stems for submission in jobs.submissions(results, stem))
    except jobs.NoAnswer as error:
        print(f"what Slurm has queued is not known here: {error}", file=sys.stderr)
        return {}


def look(results: Path, identities: Iterable[str], waiting: Mapping[str, str]) -> dict[str, RunState]:
    """The states of these runs: a file or two are read of each that has a record, nothing is written.

    Args:
        waiting: from `waiting_in`.

    Raises:
        RecordError: a lock is broken.
    """
    there = names(results)
    clock = cache(partial(file_clock, results))
    states = {}
    for identity in identities:
        if f"{identity}.lock" in there and (owner := owner_of(results / identity, clock)) is not None:
            states[identity] = RunState(RUNNING, owner=owner)
            continue
        state = _of_record(f"{results}/{identity}") if identity in there else RunState(LEFT)
        # A task makes its runs one after another: while it runs, what failed has had its turn.
        had_its_turn = state.state == FAILED and waiting.get(identity) == RUNNING
        if identity in waiting and state.state != FINISHED and not had_its_turn:
            state = RunState(QUEUED)
        states[identity] = state
    return states


def names(folder: Path) -> set[str]:
    """What lies in a folder; nothing if it is not there."""
    try:
        return set(os.listdir(folder))
    except FileNotFoundError:
        return set()


def _of_record(folder: str) -> RunState:
    """Of a record that nobody is at work on. Paths are plain strings here: ten thousand are looked at in a second."""
    if (text := _text(f"{folder}/summary.json")) is not None:
        try:
            summary = json.loads(text)
            return RunState(FINISHED, summary["wall_s"], summary["ended_by"], outcome=Outcome.of(summary))
        except (ValueError, KeyError, TypeError) as error:
            return RunState(FINISHED, cause=f"broken record ({type(error).__name__}); rerun=true makes it again")
    if (text := _text(f"{folder}/log.txt")) is not None:
        return RunState(FAILED, cause=first_cause(text))
    return RunState(UNFINISHED)


def first_cause(log: str) -> str:
    """The line of a traceback that names the error; or the first line, where there is no traceback."""
    lines = [line for line in log.splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if starts:
        lines = [line for line in lines[starts[-1] + 1 :] if not line.startswith(" ")]
    return lines[0] if lines else "log.txt is empty"


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
