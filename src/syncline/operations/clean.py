"""syncline clean: removes what interrupted and failed runs left, and nothing that is running or queued."""

import argparse
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from syncline.operations import jobs
from syncline.operations.states import names, run_states
from syncline.operations.tables import columns, size
from syncline.records.lock import STALE_S, Held, file_clock, held, is_owner_dead, owner_of
from syncline.records.plans import plan_path, plan_stems, read_plan
from syncline.records.store import FAILED, FINISHED, UNFINISHED, RecordError, has_checkpoint, is_identity, status
from syncline.records.writer import is_only_copy

TAKEN = "stays: it is running, or was finished meanwhile"


@dataclass(frozen=True, slots=True)
class Leftover:
    path: Path
    why: str
    num_bytes: int
    record: Path | None  # whose lock must be held while it is removed
    removed: bool = False
    stays: str = ""  # why it was not removed

    def as_dict(self) -> dict[str, Any]:
        return {"path": str(self.path), "why": self.why, "bytes": self.num_bytes, "removed": self.removed}


def main(args: argparse.Namespace) -> int:
    """Returns 1 if something could not be removed."""
    leftovers = sorted(find(args.results, args.orphans), key=lambda leftover: leftover.path)
    if args.yes:
        leftovers = [_remove(leftover) for leftover in leftovers]
    code = 1 if any(leftover.stays not in ("", TAKEN) for leftover in leftovers) else 0
    total = sum(leftover.num_bytes for leftover in leftovers if leftover.removed or not args.yes)
    if args.json:
        things = [leftover.as_dict() for leftover in leftovers]
        print(json.dumps({"results": str(args.results), "bytes": total, "things": things}, indent=1))
        return code
    if leftovers:
        rows = [
            (size(each.num_bytes), str(each.path), "; ".join(filter(None, [each.why, each.stays])))
            for each in leftovers
        ]
        print(columns(rows, right=(0,)))
    if args.yes:
        print(f"{sum(leftover.removed for leftover in leftovers)} removed, {size(total)}")
    else:
        print(f"{len(leftovers)} to remove, {size(total)}; --yes does it")
    return code


def find(results: Path, with_orphans: bool) -> Iterator[Leftover]:
    """Everything that may be removed.

    Args:
        with_orphans: also finished records that no plan names.

    Raises:
        NoAnswer: runs were submitted to Slurm, which does not say whether they are still queued.
        RecordError: a submission is broken; or a plan, whose records would be taken for orphans.
    """
    found = names(results)
    submitted = [path.stem for path in (results / "plans").glob("*.slurm")]
    waiting = jobs.waiting(job for stem in submitted for job in jobs.submissions(results, stem))
    clock = partial(file_clock, results)
    records = [name for name in found if is_identity(name)]
    plans = [read_plan(plan_path(results, stem)) for stem in plan_stems(results)] if with_orphans else []
    planned = {run.identity for plan in plans for run in plan.runs}
    for identity, state in run_states(results, records, waiting).items():
        folder = results / identity
        if state.state in (FAILED, UNFINISHED):
            point = ", with a checkpoint to resume from" if has_checkpoint(folder) else ""
            why = f"{state.state}: {state.cause}" if state.cause else state.state
            yield Leftover(folder, why + point, _size(folder), folder)
        elif state.state == FINISHED and with_orphans and identity not in planned:
            yield Leftover(folder, "finished, of no plan", _size(folder), folder)
    for name in found:
        path = results / name
        identity, _, kind = name.partition(".")
        if not is_identity(identity):
            if name.startswith(".now.") and _is_old(path, clock):
                yield Leftover(path, "draft", _size(path), None)
        elif kind == "lock" and is_owner_dead(path):
            yield Leftover(path, "lock of a dead process", _size(path), results / identity)
        elif kind in ("rerun", "old") and not is_only_copy(path, results / identity):
            yield Leftover(path, "of an interrupted rerun", _size(path), results / identity)
        elif kind.startswith("lock.") and _is_old(path, clock):
            yield Leftover(path, "draft of a lock", _size(path), None)
    for path in (results / "plans").glob("*.*"):
        if path.suffix == ".owner" and is_owner_dead(path):
            yield Leftover(path, "note of a dead process", _size(path), None)
        elif path.suffix == ".draft" and _is_old(path, clock):
            yield Leftover(path, "draft", _size(path), None)
    for path in (results / "studies").glob("*.draft"):
        if _is_old(path, clock):
            yield Leftover(path, "draft", _size(path), None)


def _remove(leftover: Leftover) -> Leftover:
    """Remove it, with the lock of its record. Returns it as removed, or why it stays."""
    try:
        with ExitStack() as locked:
            if leftover.record is not None:
                try:
                    locked.enter_context(held(leftover.record))
                except Held:
                    return replace(leftover, stays=TAKEN)
                except RecordError:  # a full disk, where nobody can begin the run either
                    if owner_of(leftover.record) is not None:
                        return replace(leftover, stays=TAKEN)
            return _remove_held(leftover)
    except OSError as error:
        return replace(leftover, stays=f"stays: {error.strerror or error}")


def _remove_held(leftover: Leftover) -> Leftover:
    """The same while no process makes its run."""
    if leftover.path == leftover.record:
        was_finished = leftover.why.startswith(FINISHED)
        if (status(leftover.path) == FINISHED) != was_finished:
            return replace(leftover, stays=TAKEN)
    elif leftover.record is not None and is_only_copy(leftover.path, leftover.record):
        return replace(leftover, stays=TAKEN)
    if leftover.path.is_dir():
        (leftover.path / "summary.json").unlink(missing_ok=True)  # first: half a record must not look finished
        shutil.rmtree(leftover.path)
    else:
        leftover.path.unlink(missing_ok=True)  # a lock that was taken over is removed on release
    return replace(leftover, removed=True)


def _size(path: Path) -> int:
    """Bytes in a file, or in all files of a folder."""
    with suppress(OSError):
        if not path.is_dir():
            return path.stat().st_size
        return sum(
            os.stat(os.path.join(folder, file), follow_symlinks=False).st_size
            for folder, _, files in os.walk(path)
            for file in files
        )
    return 0


def _is_old(path: Path, clock: Callable[[], float]) -> bool:
    """The process that wrote it has finished with it, or has died."""
    with suppress(FileNotFoundError):
        return clock() - path.stat().st_mtime > STALE_S
    return False
