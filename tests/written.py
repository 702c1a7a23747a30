"""Runs written by hand, and their plans and records, for the tests of reports: no run is made."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from reports.claims import Verdict, judge
from reports.exhibits import Paper
from reports.records import Artefact, Missing, Run
from runners.planning import chosen_experiment
from syncline.records.sources import FolderRecord
from syncline.records.store import FORMAT, RecordError, write_summary

ENVIRONMENT = {"commit": "0123456789ab", "processor": "A processor", "cores": 2, "command": ["run.py"]}
ABOUT = {"format": FORMAT, "engine": "simulation", "time_kind": "virtual", "status": "finished", "metric": "accuracy"}
RECORD = FolderRecord(Path("in memory"))


@dataclass(frozen=True)
class RunInMemory(Run):
    """A run whose config and evaluations are given."""

    config: Mapping[str, Any] = field(default_factory=dict)  # type: ignore[assignment]
    metrics: list[dict[str, Any]] = field(default_factory=list)  # type: ignore[assignment]


def made_run(
    label: str,
    seed: int,
    config: Mapping[str, Any],
    summary: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]] = (),
) -> RunInMemory:
    """A finished run in virtual time with what is given, on drawn images where its data are not."""
    full_config = {"format": FORMAT, "dataset": {"name": "glyphs10"}, **config}
    return RunInMemory(label, seed, RECORD, {**ABOUT, **summary}, full_config, [dict(row) for row in metrics])


def learned(label: str, seed: int, end: float) -> RunInMemory:
    """On ten classes, from 10 % to `end`."""
    rows = [{"time_s": 0.0, "accuracy": 0.1}, {"time_s": 1.0, "accuracy": end}]
    return made_run(label, seed, {}, {}, rows)


@cache
def axes_of(name: str) -> list[str]:
    """Of an experiment's labels, by its file."""
    return list(chosen_experiment([f"+experiment={name}"]).report["axes"])


def write_records(results: Path, name: str, scale: str, runs: Sequence[RunInMemory], report: Mapping[str, Any]) -> None:
    """A plan of this name with the record of each of its runs."""
    planned = []
    for run in runs:
        identity = f"{run.label}-{run.seed}".replace("/", "-")
        folder = results / identity
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(run.config))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in run.metrics))
        (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
        write_summary(folder, dict(run.summary))
        planned.append({"label": run.label, "seed": run.seed, "identity": identity, "overrides": []})
    (results / "plans").mkdir(exist_ok=True)
    about = {"name": name, "scale": scale, "command": ["run", f"+experiment={name}", f"scale={scale}"]}
    plan = {**about, "report": {"axes": axes_of(name), **report}, "runs": planned}
    (results / "plans" / f"{name.replace('/', '-')}-{scale}.json").write_text(json.dumps(plan))


def artefact_of(
    name: str, runs: Sequence[RunInMemory], report: Mapping[str, Any] | None = None, scale: str = "laptop"
) -> Artefact:
    """What is loaded of such a plan, without files."""
    return Artefact(name, scale, {"axes": axes_of(name), **(report or {})}, list(runs), [])


def without(artefact: Artefact, label: str, *seeds: int) -> Artefact:
    """The artefact as it is when these runs of a row are not finished."""
    lost = [run for run in artefact.runs if run.label == label and run.seed in seeds]
    assert len(lost) == len(seeds), f"{label} has no such runs"
    missing = [Missing(run.label, run.seed) for run in lost]
    return replace(
        artefact, runs=[run for run in artefact.runs if run not in lost], missing=[*artefact.missing, *missing]
    )


def verdict_on(paper: Paper, key: str, *artefacts: Artefact) -> Verdict:
    """Of a claim of the paper, by these artefacts; others have no plan."""
    by_name = {artefact.name: artefact for artefact in artefacts}

    def load(name: str) -> Artefact:
        if name not in by_name:
            raise RecordError(f"{name}: no such plan")
        return by_name[name]

    claim = next(claim for claim in paper.claims if claim.key == key)
    return judge(claim, artefacts[0].scale if artefacts else "laptop", load)
