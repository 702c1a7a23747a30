"""Plans and records written by hand, for the tests of reports: no run is made."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncline.records.store import FORMAT

ENVIRONMENT = {"commit": "0123456789ab", "processor": "A processor", "cores": 2, "command": ["run.py"]}


@dataclass(frozen=True)
class Written:
    label: str
    seed: int
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]] = field(default_factory=list)


def write_records(results: Path, name: str, scale: str, runs: Sequence[Written], report: Mapping[str, Any]) -> None:
    """A plan of this name with the record of each of its runs."""
    planned = []
    for run in runs:
        identity = f"{run.label}-{run.seed}".replace("/", "-")
        folder = results / identity
        folder.mkdir(parents=True, exist_ok=True)
        config = {"format": FORMAT, "dataset": {"name": "glyphs10"}, **run.config}
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in run.metrics))
        (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
        about = {"format": FORMAT, "engine": "simulation", "time_kind": "virtual"}
        about |= {"status": "finished", "metric": "accuracy"}
        (folder / "summary.json").write_text(json.dumps(about | dict(run.summary)))
        planned.append({"label": run.label, "seed": run.seed, "identity": identity, "overrides": []})
    (results / "plans").mkdir(exist_ok=True)
    plan = {"name": name, "scale": scale, "report": dict(report), "runs": planned}
    (results / "plans" / f"{name.replace('/', '-')}-{scale}.json").write_text(json.dumps(plan))
