"""The plans of a results folder, and how a user names one."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from syncline.records.plans import WrittenPlan, plan_path, read_plan
from syncline.records.store import RecordError


def start_of(started: float, command: Sequence[str]) -> str:
    """When a plan was last started, and by which command if its file holds it."""
    line = f"  python run.py {shlex.join(command)}" if command else ""
    return f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(started))}{line}"


def stems(results: Path) -> list[str]:
    """The stems of all plan files, sorted."""
    return sorted(path.stem for path in (results / "plans").glob("*.json"))


def all_plans(results: Path) -> list[WrittenPlan]:
    """All plans, sorted by their stems. Raises RecordError if one is broken."""
    return [read_plan(plan_path(results, stem)) for stem in stems(results)]


def find_plan(results: Path, name: str) -> WrittenPlan:
    """The plan of this name.

    Args:
        name: the experiment with or without its scale (dssp/table1, dssp-table1-laptop), or the plan's file.

    Raises:
        RecordError: no plan, or more than one, has this name, or it is broken.
    """
    if name.endswith(".json") and Path(name).is_file():
        return read_plan(Path(name).absolute())
    known = stems(results)
    if not known:
        raise RecordError(f"no plan in {results / 'plans'}; run.py with -m or +experiment=<name> writes one")
    stem = name.replace("/", "-")
    meant = [stem] if stem in known else [found for found in known if found.rpartition("-")[0] == stem]
    if not meant:
        raise RecordError(f"no plan {name!r}; there are {', '.join(known)}")
    if len(meant) > 1:
        raise RecordError(f"{name!r} may be any of {', '.join(meant)}; name one")
    return read_plan(plan_path(results, meant[0]))
