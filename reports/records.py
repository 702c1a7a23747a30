"""From a plan to its records: the only input of every report."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from syncline.records.store import FINISHED, RecordError, read_config, read_metrics, read_summary, status

PUBLISHED = Path(__file__).parent / "published"


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run of a plan."""

    label: str
    seed: int
    summary: Mapping[str, Any]
    config: Mapping[str, Any]
    metrics: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Artefact:
    """A paper's table or figure at one scale: what was planned, and what there is of it."""

    name: str  # "dssp/table1"
    scale: str
    report: Mapping[str, Any]  # what the experiment's file says to its report
    runs: list[Run]
    missing: list[str]  # labels and seeds of runs that are not finished

    def rows(self) -> dict[str, list[Run]]:
        """Label -> its runs, one a seed; in the order of the plan."""
        rows: dict[str, list[Run]] = {}
        for run in self.runs:
            rows.setdefault(run.label, []).append(run)
        return rows

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    @property
    def command(self) -> str:
        """What anybody may type to make it again."""
        return f"make {self.name.replace('/', '-')} SCALE={self.scale}"


def load_artefact(name: str, scale: str, results: Path) -> Artefact:
    """The records of the plan that was written for this artefact.

    Raises:
        RecordError: no such plan, none of its runs is finished, or a record is broken or of a newer format.
    """
    path = results / "plans" / f"{name.replace('/', '-')}-{scale}.json"
    try:
        plan = json.loads(path.read_text())
    except FileNotFoundError:
        raise RecordError(f"{path}: no such plan; make {name.replace('/', '-')} SCALE={scale} makes it") from None
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: broken plan ({type(error).__name__}); make it again") from None
    runs, missing = [], []
    for entry in plan["runs"]:
        folder = results / entry["identity"]
        if status(folder) != FINISHED:
            missing.append(f"{entry['label']} seed {entry['seed']}")
            continue
        summary = read_summary(folder)
        runs.append(Run(entry["label"], entry["seed"], summary, read_config(folder), read_metrics(folder)))
    if not runs:
        raise RecordError(f"{path}: none of its {len(plan['runs'])} runs is finished")
    return Artefact(name, scale, plan["report"], runs, missing)


def published(paper: str) -> Any:
    """The numbers of a paper's text."""
    return yaml.safe_load((PUBLISHED / f"{paper}.yaml").read_text())
