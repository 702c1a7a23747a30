"""syncline show: one record or study."""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from syncline.installation import reference_folder
from syncline.operations.names import all_plans, find_record, start_of
from syncline.operations.states import run_states, slurm_states
from syncline.operations.studies import study_lines
from syncline.operations.tables import cell, columns, terminal_width, wrapped
from syncline.records.store import RecordError, read_config, read_environment, read_log, read_metrics, read_summary
from syncline.records.studies import find_study, read_study


def main(args: argparse.Namespace) -> int:
    if (path := find_study(args.results, args.reference or reference_folder(), args.record)) is not None:
        study = read_study(path)
        lines = [f"from {path}", *study_lines(args.record, study, terminal_width())]
        print(json.dumps(asdict(study), indent=1) if args.json else "\n".join(lines))
        return 0
    content = about(find_record(args.record, args.results), args.last)
    if args.json:
        print(json.dumps(content, indent=1))
        return 0
    made = content["state"]
    print(f"{content['identity']}: {made['state']}{' ' + made['note'] if made['note'] else ''}")
    for place in content["plans"]:
        print(f"plan {place['plan']}, row {place['label']}")
        print("\n".join(wrapped(start_of(place["started"], place["command"]), terminal_width(), "  ")))
    _section("overrides", {"": " ".join(content["overrides"])} if content["overrides"] else {})
    _section("config", flat(content["config"]) if args.config else {})
    _section("environment", flat(content["environment"]))
    _section("summary", scalars(content["summary"]))
    if content["curve"]:
        keys = list(content["curve"][-1])
        rows = [keys, *([cell(row.get(key)) for key in keys] for row in content["curve"])]
        print(f"\nlast evaluations\n{columns(rows, right=range(len(keys)))}")
    if content["failure"]:
        print(f"\nfailure\n{content['failure'].rstrip()}")
    return 0


def about(folder: Path, last: int) -> dict[str, Any]:
    """The content of `show`; parts that the record lacks are empty, and broken ones are named as its failure."""
    identity, results = folder.resolve().name, folder.resolve().parent
    plans = [plan for plan in all_plans(results) if any(run.identity == identity for run in plan.runs)]
    named = [(plan, run) for plan in plans for run in plan.runs if run.identity == identity]
    made = run_states(results, [identity], slurm_states(results, [plan.stem for plan in plans]))[identity]
    has, broken = {path.name for path in folder.iterdir()}, list[str]()

    def part(name: str, read: Callable[[Path], Any], empty: Any) -> Any:
        try:
            return read(folder) if name in has else empty
        except RecordError as error:
            broken.append(str(error))
            return empty

    environment = part("environment.json", read_environment, {})
    command = environment.get("command", [])
    return {
        "identity": identity,
        "folder": str(folder),
        "state": {**made.as_dict(), "note": made.note},
        "plans": [
            {"plan": plan.stem, "label": run.label, "seed": run.seed, "started": plan.started, "command": plan.command}
            for plan, run in named
        ],
        "overrides": named[0][1].overrides if named else [word for word in command[1:] if "=" in word],
        "config": part("config.json", read_config, {}),
        "environment": environment,
        "summary": part("summary.json", read_summary, {}),
        "curve": part("metrics.jsonl", read_metrics, [])[-last:] if last > 0 else [],
        "failure": "\n".join([*broken, read_log(folder)]),
    }


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys: {"strategy.name": ...}."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def scalars(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The scalar entries of a summary, without histograms and lists by worker."""
    plain = {key: value for key, value in summary.items() if key not in ("format", "staleness")}
    return {key: value for key, value in flat(plain).items() if not isinstance(value, list | dict)}


def _section(title: str, content: Mapping[str, Any]) -> None:
    if content:
        print(f"\n{title}\n{columns([(f'  {key}' if key else ' ', cell(value)) for key, value in content.items()])}")
