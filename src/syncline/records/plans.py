"""A plan on disk, results/plans/<stem>.json; reading it needs no config.

name, scale   of the experiment; a sweep has no scale
command       the arguments of `syncline` that create exactly this plan
report        options for the report, from the experiment's file
runs          label, seed, identity, overrides, content of the data of each; a run that several rows share is listed
              for each
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncline.records.store import RecordError


@dataclass(frozen=True, slots=True)
class PlannedRun:
    label: str
    seed: int
    identity: str
    overrides: list[str]  # of the defaults
    content: str | None = None  # fingerprint of its data, on the machine where the plan was written


@dataclass(frozen=True, slots=True)
class WrittenPlan:
    path: Path
    name: str
    scale: str
    command: list[str]
    report: dict[str, Any]
    runs: list[PlannedRun]

    @property
    def stem(self) -> str:
        return self.path.stem

    @property
    def results(self) -> Path:
        """The folder of its records."""
        return self.path.parents[1]

    @property
    def started(self) -> float:
        """Last start of its command, in seconds since 1970: each start writes the plan."""
        return self.path.stat().st_mtime

    def once(self) -> dict[str, PlannedRun]:
        """Identity -> the first run that has it, in order."""
        runs: dict[str, PlannedRun] = {}
        for run in self.runs:
            runs.setdefault(run.identity, run)
        return runs


def plan_path(results: Path, stem: str) -> Path:
    """The path of the plan with this stem."""
    return results / "plans" / f"{stem}.json"


def plan_stems(folder: Path) -> list[str]:
    """The stems of all plans, sorted, in results or in a scale of the reference."""
    return sorted(path.stem for path in (folder / "plans").glob("*.json"))


def plan_of(folder: Path, stem: str) -> WrittenPlan | None:
    """The plan with this stem, in results or in a scale of the reference. Raises RecordError if it is broken."""
    path = plan_path(folder, stem)
    return read_plan(path) if path.exists() else None


def stem_of(name: str, scale: str) -> str:
    """The name of the plan and the files of an artefact at a scale."""
    return f"{name.replace('/', '-')}-{scale}"


def read_plan(path: Path) -> WrittenPlan:
    """Read a plan.

    Raises:
        FileNotFoundError: there is none.
        RecordError: it is broken.
    """
    try:
        content = json.loads(path.read_text())
        runs = [PlannedRun(**run) for run in content["runs"]]
        return WrittenPlan(path, content["name"], content["scale"], content["command"], content["report"], runs)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: broken plan ({type(error).__name__}); make it again") from None
