"""Which plans there are, and which one a person means."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from syncline.records.plans import WrittenPlan, plan_path, read_plan
from syncline.records.store import RecordError


def start_of(started: float, command: Sequence[str]) -> str:
    """When a plan was last started, and by which command, where its file tells."""
    line = f"  python run.py {shlex.join(command)}" if command else ""
    return f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(started))}{line}"


def stems(results: Path) -> list[str]:
    """Of all plans of these results."""
    return sorted(path.stem for path in (results / "plans").glob("*.json"))


def all_plans(results: Path) -> list[WrittenPlan]:
    """
    Raises:
        RecordError: one is broken.
    """
    return [read_plan(plan_path(results, stem)) for stem in stems(results)]


def find_plan(results: Path, asked: str) -> WrittenPlan:
    """The plan of this name.

    Args:
        asked: the experiment with or without its scale (dssp/table1, dssp-table1-laptop), or the plan's file.

    Raises:
        RecordError: there is none, or there are several, or it is broken.
    """
    if asked.endswith(".json") and Path(asked).is_file():
        return read_plan(Path(asked).absolute())
    there = stems(results)
    if not there:
        raise RecordError(f"no plan in {results / 'plans'}; run.py with -m or +experiment=<name> writes one")
    stem = asked.replace("/", "-")
    meant = [stem] if stem in there else [found for found in there if found.rpartition("-")[0] == stem]
    if not meant:
        raise RecordError(f"no plan {asked!r}; there are {', '.join(there)}")
    if len(meant) > 1:
        raise RecordError(f"{asked!r} may be any of {', '.join(meant)}; name one")
    return read_plan(plan_path(results, meant[0]))
