"""Where finished runs and their plans are read from: a folder of records, or the reference (records/reference.py)."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from syncline.records.plans import WrittenPlan, plan_of
from syncline.records.store import (
    NO_EVENTS,
    RecordError,
    inspected,
    read_config,
    read_environment,
    read_metrics,
    read_summary,
)

if TYPE_CHECKING:
    import pyarrow as pa

RESULTS, REFERENCE = "results", "reference"
FEW = 2  # commits or machines that are named


class Record(Protocol):
    """One finished run. What is broken raises RecordError when it is read."""

    @property
    def identity(self) -> str: ...

    @property
    def origin(self) -> str:
        """RESULTS or REFERENCE."""

    @property
    def has_events(self) -> bool: ...

    def summary(self) -> dict[str, Any]: ...

    def config(self) -> dict[str, Any]: ...

    def metrics(self) -> list[dict[str, Any]]:
        """Its evaluations, in order."""

    def environment(self) -> dict[str, Any]:
        """Versions, hardware and commit."""

    def date(self) -> float:
        """When it was finished, in seconds since 1970."""

    def events(self) -> "pa.Table":
        """Its event log (records/events.py). Raises RecordError if it has none."""


class Source(Protocol):
    """Plans by the stem of their file, and finished runs by their identity."""

    def plan(self, stem: str) -> WrittenPlan | None:
        """None if there is none. Raises RecordError if it is broken."""

    def record(self, identity: str) -> Record | None:
        """None if there is no such run, or it is not finished, or damaged, which is said."""


@dataclass(frozen=True, slots=True)
class FolderRecord:
    """A record as its run left it: one folder (records/store.py)."""

    folder: Path

    @property
    def identity(self) -> str:
        return self.folder.name

    @property
    def origin(self) -> str:
        return RESULTS

    @property
    def has_events(self) -> bool:
        return (self.folder / "events.arrow").exists()

    def summary(self) -> dict[str, Any]:
        return read_summary(self.folder)

    def config(self) -> dict[str, Any]:
        return read_config(self.folder)

    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.folder)

    def environment(self) -> dict[str, Any]:
        return read_environment(self.folder)

    def date(self) -> float:
        return (self.folder / "summary.json").stat().st_mtime

    def events(self) -> "pa.Table":
        from syncline.records.events import read_events

        if not self.has_events:
            raise RecordError(f"{self.folder}: {NO_EVENTS}")
        return read_events(self.folder / "events.arrow")


@dataclass(frozen=True, slots=True)
class ResultsFolder:
    """The plans and records of a folder of results."""

    results: Path

    def plan(self, stem: str) -> WrittenPlan | None:
        return plan_of(self.results, stem)

    def record(self, identity: str) -> FolderRecord | None:
        folder = self.results / identity
        summary, damage = inspected(folder)
        if damage:
            _tell(f"{folder}: {damage}")
        return None if summary is None or damage else FolderRecord(folder)


@cache
def _tell(line: str) -> None:
    """Say it once."""
    print(line, file=sys.stderr)


def provenance(records: Sequence[Record]) -> str:
    """Commits, machines and dates of runs, in a few words: commit a5754df8aef2, Xeon with 2 cores, 2026-11-23."""
    commits = few([str(record.environment().get("commit") or "unknown") for record in records])
    return f"commit {commits}, {where_and_when(records)}"


def where_and_when(records: Sequence[Record]) -> str:
    """Machines and dates of runs: Xeon with 2 cores, 2026-11-23."""
    machines = few([machine_of(record.environment()) for record in records])
    days = sorted({datetime.fromtimestamp(record.date(), UTC).strftime("%Y-%m-%d") for record in records})
    return f"{machines}, {days[0]}" + (f" to {days[-1]}" if days[1:] else "")


def machine_of(environment: Mapping[str, Any]) -> str:
    """The processor, how many cores of it, and the GPU if there is one."""
    processor, cores = environment.get("processor") or "unknown processor", environment.get("cores", "?")
    return f"{processor} with {cores} cores" + (f" and {environment['gpu']}" if environment.get("gpu") else "")


def few(values: Sequence[str]) -> str:
    """The most frequent two of the distinct values, and how many more there are."""
    counted = [value for value, _ in Counter(values).most_common()]
    return " and ".join(counted[:FEW]) + (f" and {len(counted) - FEW} more" if len(counted) > FEW else "")
