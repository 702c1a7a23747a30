"""Locks: a file beside a record names the process that executes the run, so that no other does at the same time.

`<identity>.lock` holds host, process and start time; its modification time shows when the owner was last alive. It is
created exclusively, also on shared file systems, and renewed every RENEW_S seconds. A lock is stale if its owner is
dead, which is visible on the owner's host immediately, elsewhere after STALE_S seconds without renewal; then another
process takes it over.

A process that executes a plan writes the same information to a file beside the plan; a plan may have several.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from syncline.records.store import RecordError, cannot_write, write_file

RENEW_S = 20.0
STALE_S = 120.0  # six renewals; a file system may show a change late
GUARD_S = 30.0  # a take-over takes milliseconds; after this time its process has died


class Held(RecordError):
    """Another process executes this run; the message names it."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that wrote a lock, and when it was last alive."""

    host: str
    pid: int
    born: int  # start of the process, in clock ticks since its host booted: pids are reused
    since: float  # seconds since 1970
    silent_s: float = 0.0  # since its last renewal, by the file system's clock; for owners on other hosts

    @property
    def is_alive(self) -> bool:
        if self.is_here:
            return _born(self.pid) == self.born
        return abs(self.silent_s) < STALE_S  # a renewal dated in the future is none

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this host."""
        return self.host == socket.gethostname()

    def as_dict(self) -> dict[str, str | int | float]:
        return {"host": self.host, "pid": self.pid, "since": self.since}

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {time.strftime('%H:%M:%S', time.localtime(self.since))}"


def owner_of(folder: Path, clock: Callable[[], float] | None = None) -> Owner | None:
    """The process that executes the run of this record now, if there is one.

    Args:
        clock: a cached `file_clock` of the results, for many records; used only for owners on other hosts.
    """
    owner = _read(_path(folder), clock or partial(file_clock, folder.parent))
    return owner if owner is not None and owner.is_alive else None


@contextmanager
def announced(plans: Sequence[Path]) -> Iterator[None]:
    """Within the context, a file beside each of these plans names this process as executing it.

    Raises:
        RecordError: it cannot be written.
    """
    me = _me()
    paths = [path.with_name(f"{path.stem}.{me.host}.{me.pid}.owner") for path in plans]
    try:
        for path in paths:
            try:
                write_file(path, json.dumps(asdict(me)))
            except OSError as error:
                raise cannot_write(path, error) from None
        with _renewed(paths):
            yield
    finally:
        for path in paths:
            with suppress(OSError):
                path.unlink()


def at_work_on(plan: Path) -> list[Owner]:
    """The processes that execute this plan now."""
    paths = sorted(plan.parent.glob(f"{plan.stem}.*.owner"))
    owners = [_read(path, partial(file_clock, plan.parent)) for path in paths]
    return [owner for owner in owners if owner is not None and owner.is_alive]


def is_owner_dead(path: Path) -> bool:
    """Whether the owner in this file is dead."""
    owner = _read(path, partial(file_clock, path.parent))
    return owner is not None and not owner.is_alive


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Within the context, no other process executes the run of this record.

    Raises:
        Held: another process does already.
        RecordError: the lock cannot be written.
    """
    path = _path(folder)
    me = _me()
    try:  # before the lock is taken, as an interrupt may come at any time
        _take(path, me)
        with _renewed([path]):
            yield
    finally:
        with suppress(OSError, RecordError):
            owner = _read(path, lambda: 0.0)
            if _is_same(owner, me):
                path.unlink()  # else it was never ours, or was taken over while this process was stopped


def _take(path: Path, me: Owner) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while not _created(path, me):
            owner = _read(path, partial(file_clock, path.parent))
            if owner is None:
                continue  # just released
            if owner.is_alive:
                raise Held(f"{path.stem} is already running in {owner}")
            _remove_stale(path)
    except OSError as error:
        raise cannot_write(path, error) from None


def _path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _created(path: Path, me: Owner) -> bool:
    """Whether the lock is ours now. It gets its name once its content is complete, so no one reads half of it."""
    draft = path.with_name(f"{path.name}.{me.host}.{me.pid}")
    try:
        draft.write_text(json.dumps(asdict(me)))
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


def _remove_stale(path: Path) -> None:
    """Remove a stale lock, unless another process has just replaced it.

    Only the holder of the guard removes locks, and it reads the lock again after it has found the owner dead: an owner
    may release its lock and end between our reading it and our check of its process, and another may then take it.
    """
    guard = path.with_name(f"{path.name}.taking")
    try:
        os.close(os.open(guard, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        with suppress(FileNotFoundError):
            if file_clock(path.parent) - guard.stat().st_mtime > GUARD_S:
                guard.unlink()
        time.sleep(0.01)
        return
    try:
        clock = partial(file_clock, path.parent)
        owner = _read(path, clock)
        if owner is not None and not owner.is_alive and _is_same(_read(path, clock), owner):
            path.unlink()
    finally:
        guard.unlink(missing_ok=True)


def _is_same(one: Owner | None, other: Owner) -> bool:
    return one is not None and (one.host, one.pid, one.since) == (other.host, other.pid, other.since)


def _me() -> Owner:
    return Owner(socket.gethostname(), os.getpid(), _born(os.getpid()), time.time())


def _read(path: Path, clock: Callable[[], float]) -> Owner | None:
    try:
        owner = Owner(**json.loads(path.read_text()))
        if owner.is_here:
            return owner
        return replace(owner, silent_s=clock() - path.stat().st_mtime)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):  # cut off by a failure of power, say: its age decides
        written = path.stat().st_mtime
        return Owner("an unknown host (broken lock)", 0, 0, written, clock() - written)


def file_clock(folder: Path) -> float:
    """Seconds since 1970 by the clock of the file system of this folder, which may be another host's."""
    probe = folder / f".now.{socket.gethostname()}.{os.getpid()}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return time.time()  # a read-only folder
    finally:
        with suppress(OSError):
            probe.unlink()


def _born(pid: int) -> int:
    """Start of a process of this host, in clock ticks since boot; -1 if it does not exist."""
    try:
        # the fields after the name, which is in brackets and may contain anything
        state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return -1 if state in "ZX" else int(numbers[18])  # zombies
    except (FileNotFoundError, ProcessLookupError):
        pass
    if Path("/proc/self").exists():
        return -1
    try:  # no /proc: a system that is not Linux
        os.kill(pid, 0)
    except ProcessLookupError:
        return -1
    except PermissionError:
        pass
    return 0


@contextmanager
def _renewed(paths: Sequence[Path]) -> Iterator[None]:
    """Within the context, these files are touched regularly."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(RENEW_S):
            for path in paths:
                with suppress(OSError):  # retried at the next renewal
                    os.utime(path)

    renewal = threading.Thread(target=renew, daemon=True, name="lock")
    try:
        renewal.start()
        yield
    finally:
        ended.set()
