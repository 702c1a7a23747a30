"""python -m syncline clean: removes what interrupted and failed runs left. What is running or queued stays."""

import argparse
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from syncline.operations.arguments import Commands
from syncline.operations.plans import all_plans
from syncline.operations.states import look, names, waiting_in
from syncline.operations.tables import columns, size
from syncline.records.lock import STALE_S, Held, file_clock, held, is_owner_dead
from syncline.records.store import FAILED, FINISHED, UNFINISHED, is_identity, status

EXAMPLES = """\
examples:
  python -m syncline clean             what would be removed, with sizes
  python -m syncline clean --yes       remove it
  python -m syncline clean --orphans   also finished records that no plan names
A failed or unfinished record may hold a checkpoint that the next start would
resume from: then the list says so.
"""


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that may go."""

    path: Path
    why: str
    num_bytes: int
    record: Path | None  # whose lock is to be held meanwhile
    removed: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {"path": str(self.path), "why": self.why, "bytes": self.num_bytes, "removed": self.removed}


def add_to(commands: Commands) -> None:
    what = "remove what interrupted and failed runs left: records, stale locks, drafts; only lists it without --yes"
    parser = commands.add("clean", run, what, EXAMPLES)
    parser.add_argument("--yes", action="store_true", help="remove it")
    parser.add_argument("--orphans", action="store_true", help="also finished records that no plan names")


def run(asked: argparse.Namespace) -> int:
    things = sorted(find(asked.results, asked.orphans), key=lambda thing: thing.path)
    if asked.yes:
        things = [replace(thing, removed=_remove(thing)) for thing in things]
    total = sum(thing.num_bytes for thing in things if thing.removed or not asked.yes)
    if asked.json:
        content = {"results": str(asked.results), "bytes": total, "things": [thing.as_dict() for thing in things]}
        print(json.dumps(content, indent=1))
        return 0
    if things:
        rows = [(size(thing.num_bytes), str(thing.path), _said(thing, asked.yes)) for thing in things]
        print(columns(rows, right=(0,)))
    gone = sum(thing.removed for thing in things)
    print(f"{gone} removed, {size(total)}" if asked.yes else f"{len(things)} to remove, {size(total)}; --yes does it")
    return 0


def find(results: Path, with_orphans: bool) -> Iterator[Thing]:
    """What may go."""
    there, plans = names(results), all_plans(results)
    clock = partial(file_clock, results)
    records = [name for name in there if is_identity(name)]
    planned = {run.identity for plan in plans for run in plan.runs}
    for identity, state in look(results, records, waiting_in(results, [plan.stem for plan in plans])).items():
        folder = results / identity
        if state.state in (FAILED, UNFINISHED):
            point = ", with a checkpoint to resume from" if any(folder.glob("checkpoint/*")) else ""
            yield Thing(folder, state.state + point, _size(folder), folder)
        elif state.state == FINISHED and with_orphans and identity not in planned:
            yield Thing(folder, "finished, of no plan", _size(folder), folder)
    for name in there:
        path = results / name
        identity, _, kind = name.partition(".")
        if not is_identity(identity):
            if name.startswith(".now.") and _is_old(path, clock):
                yield Thing(path, "draft", _size(path), None)
        elif kind == "lock" and is_owner_dead(path):
            yield Thing(path, "lock of a dead process", _size(path), results / identity)
        elif kind in ("rerun", "old"):
            yield Thing(path, "of an interrupted rerun", _size(path), results / identity)
        elif kind.startswith("lock.") and _is_old(path, clock):
            yield Thing(path, "draft of a lock", _size(path), None)
    for path in (results / "plans").glob("*.*"):
        if path.suffix == ".owner" and is_owner_dead(path):
            yield Thing(path, "note of a dead process", _size(path), None)
        elif path.suffix == ".draft" and _is_old(path, clock):
            yield Thing(path, "draft", _size(path), None)


def _said(thing: Thing, was_asked: bool) -> str:
    stays = "; stays: it is running, or was finished meanwhile" if was_asked and not thing.removed else ""
    return thing.why + stays


def _remove(thing: Thing) -> bool:
    """Whether it is gone. A record is removed only while nobody else can begin to make it."""
    if thing.record is None:
        thing.path.unlink(missing_ok=True)
        return True
    was_finished = thing.why.startswith(FINISHED)
    with suppress(Held), held(thing.record):
        if thing.path.suffix == ".lock":
            return True  # it was taken over, and goes with us
        if thing.path == thing.record and (status(thing.path) == FINISHED) != was_finished:
            return False
        (thing.path / "summary.json").unlink(missing_ok=True)  # first, lest half a record be taken for a finished one
        shutil.rmtree(thing.path)
        return True
    return False


def _size(path: Path) -> int:
    """Bytes in a file, or in all files of a folder."""
    with suppress(FileNotFoundError):
        if not path.is_dir():
            return path.stat().st_size
        return sum(
            os.stat(os.path.join(folder, file), follow_symlinks=False).st_size
            for folder, _, files in os.walk(path)
            for file in files
        )
    return 0


def _is_old(path: Path, clock: Any) -> bool:
    """Whoever made it has finished with it, or is dead."""
    with suppress(FileNotFoundError):
        return bool(clock() - path.stat().st_mtime > STALE_S)
    return False
