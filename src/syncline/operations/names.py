"""The plans and the records that the names on a command line mean."""

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from syncline.records.plans import WrittenPlan, plan_path, plan_stems, read_plan
from syncline.records.store import RecordError

Read = TypeVar("Read")


def find_record(record: str, results: Path) -> Path:
    """The folder of a record, given as such or by its identity. Raises RecordError if it does not exist."""
    for folder in (results / record, Path(record)):
        if any((folder / name).is_file() for name in ("config.json", "summary.json")):
            return folder
    raise RecordError(f"no such record: neither {results / record} nor {record} is the folder of one")


def start_of(started: float, words: Sequence[str]) -> str:
    """When a plan was last started, and by which command, of these words."""
    return f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(started))}  syncline {shlex.join(words)}"


def readable(read: Callable[[str], Read], stems: Iterable[str]) -> list[Read]:
    """What is read of each stem; what is broken is named in a line, and left out."""
    found = []
    for stem in stems:
        try:
            found.append(read(stem))
        except RecordError as error:
            print(f"left out: {error}", file=sys.stderr)
    return found


def all_plans(results: Path) -> list[WrittenPlan]:
    """All plans, sorted by their stems; a broken one is named in a line, and left out."""
    return readable(lambda stem: read_plan(plan_path(results, stem)), plan_stems(results))


def find_plan(results: Path, name: str) -> WrittenPlan:
    """The plan of this name.

    Args:
        name: the experiment with or without its scale (dssp/table1, dssp-table1-laptop), or the plan's file.

    Raises:
        RecordError: no plan, or more than one, has this name, or it is broken.
    """
    if name.endswith(".json") and Path(name).is_file():
        return read_plan(Path(name).absolute())
    known = plan_stems(results)
    if not known:
        raise RecordError(f"no plan in {results / 'plans'}; syncline run with -m or +experiment=<name> writes one")
    stem = name.replace("/", "-")
    meant = [stem] if stem in known else [found for found in known if found.rpartition("-")[0] == stem]
    if not meant:
        raise RecordError(f"no plan {name!r}; there are {', '.join(known)}")
    if len(meant) > 1:
        raise RecordError(f"{name!r} may be any of {', '.join(meant)}; name one")
    return read_plan(plan_path(results, meant[0]))
