"""Who makes a run: a file beside its record, so that two processes that start the same run do not both make it.

`<identity>.lock` holds the host, the process and since when; its time of change says when the owner was last alive. Its
creation is exclusive, which also shared file systems keep to. An owner renews it every RENEW_S seconds. It was left
behind by an owner that is dead, which can be seen on the owner's host at once, and elsewhere after STALE_S seconds
without renewal; then the next one takes it over.

Who goes through a plan says so in the same words, in a file beside the plan; of these there may be several.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from syncline.records.store import RecordError, cannot_write

RENEW_S = 20.0
STALE_S = 120.0  # six renewals; a file system may show a change late
GUARD_S = 30.0  # a take-over lasts milliseconds; who died in one has not finished it by then


class Held(RecordError):
    """Somebody else makes this run; the message tells who."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who wrote a lock, and when it was last alive."""

    host: str
    pid: int
    born: int  # of the process, in clock ticks since its host was started: a pid may be given away again
    since: float  # seconds since 1970
    silent_s: float = 0.0  # since it last renewed the lock, by the file system's clock; of owners on other hosts

    @property
    def is_alive(self) -> bool:
        if _can_be_looked_up(self):
            return _born(self.pid) == self.born
        return self.silent_s < STALE_S

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {time.strftime('%H:%M:%S', time.localtime(self.since))}"


def owner_of(folder: Path, clock: Callable[[], float] | None = None) -> Owner | None:
    """Who makes the run of this record now, if anybody does.

    Args:
        clock: `file_clock` of the results, for who asks of many records; read only for owners on other hosts.
    """
    owner = _read(_path(folder), clock or partial(file_clock, folder.parent))
    return owner if owner is not None and owner.is_alive else None


@contextmanager
def announced(plans: Sequence[Path]) -> Iterator[None]:
    """While it is entered, a file beside each of these plans says that this process goes through it.

    Raises:
        RecordError: it cannot be written.
    """
    me = _me()
    paths = [path.with_name(f"{path.stem}.{me.host}.{me.pid}.owner") for path in plans]
    try:
        for path in paths:
            try:
                draft = path.with_suffix(".draft")
                draft.write_text(json.dumps(asdict(me)))
                draft.replace(path)
            except OSError as error:
                raise cannot_write(path, error) from None
        with _renewed(paths):
            yield
    finally:
        for path in paths:
            with suppress(OSError):
                path.unlink()


def at_work_on(plan: Path) -> list[Owner]:
    """Who goes through this plan now."""
    paths = sorted(plan.parent.glob(f"{plan.stem}.*.owner"))
    owners = [_read(path, partial(file_clock, plan.parent)) for path in paths]
    return [owner for owner in owners if owner is not None and owner.is_alive]


def is_here(owner: Owner) -> bool:
    """Whether it is a process of this host."""
    return owner.host == socket.gethostname()


def _can_be_looked_up(owner: Owner) -> bool:
    """Whether this host can tell if the process is alive. Windows has no question that does not disturb it."""
    return is_here(owner) and sys.platform != "win32"


def is_owner_dead(path: Path) -> bool:
    """Whether this file of an owner was left behind."""
    owner = _read(path, partial(file_clock, path.parent))
    return owner is not None and not owner.is_alive


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """While it is entered, nobody else makes the run of this record.

    Raises:
        Held: somebody does already.
        RecordError: the lock cannot be written.
    """
    path = _path(folder)
    me = _me()
    try:  # from here on, since an interrupt may come at any time
        _take(path, me)
        with _renewed([path]):
            yield
    finally:
        with suppress(OSError, RecordError):
            owner = _read(path, lambda: 0.0)
            if _is_same(owner, me):
                path.unlink()  # else it was never ours, or taken over while this process was stopped for long


def _take(path: Path, me: Owner) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while not _created(path, me):
            owner = _read(path, partial(file_clock, path.parent))
            if owner is None:
                continue  # gone in this moment
            if owner.is_alive:
                raise Held(f"{path.stem} is already running in {owner}")
            _remove_stale(path)
    except OSError as error:
        raise cannot_write(path, error) from None


def _path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _created(path: Path, me: Owner) -> bool:
    """Whether the lock is ours now. It gets its name when its content is there: nobody reads half of it."""
    draft = path.with_name(f"{path.name}.{me.host}.{me.pid}")
    draft.write_text(json.dumps(asdict(me)))
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def _remove_stale(path: Path) -> None:
    """Remove a lock that is left behind, unless somebody else has just done so and made one that is not.

    Only the holder of the guard removes one, and it looks again once it knows the owner to be dead: an owner may give
    its lock back and end between our reading it and our looking for its process, and another may then take it.
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
        if _can_be_looked_up(owner):
            return owner
        return replace(owner, silent_s=clock() - path.stat().st_mtime)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise RecordError(f"{path}: broken lock ({type(error).__name__}); remove it if nobody makes this run") from None


def file_clock(folder: Path) -> float:
    """Seconds since 1970 by the clock that sets the times of files in this folder, which may be another host's."""
    probe = folder / f".now.{socket.gethostname()}.{os.getpid()}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return time.time()  # a folder that is only read
    finally:
        with suppress(OSError):
            probe.unlink()


def _born(pid: int) -> int:
    """When a process of this host began, in clock ticks; -1 if there is none such."""
    try:
        # behind the name, in brackets, that may hold anything
        state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return -1 if state in "ZX" else int(numbers[18])  # the dead that nobody has asked after
    except (FileNotFoundError, ProcessLookupError):
        pass
    if Path("/proc/self").exists():
        return -1
    if sys.platform == "win32":  # where os.kill(pid, 0) would be a Ctrl-C
        return 0
    try:  # no /proc: a system that is not Linux
        os.kill(pid, 0)
    except ProcessLookupError:
        return -1
    except PermissionError:
        pass
    return 0


@contextmanager
def _renewed(paths: Sequence[Path]) -> Iterator[None]:
    """While it is entered, the times of these files say that we are alive."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(RENEW_S):
            for path in paths:
                with suppress(OSError):  # the next time, then
                    os.utime(path)

    renewal = threading.Thread(target=renew, daemon=True, name="lock")
    try:
        renewal.start()
        yield
    finally:
        ended.set()
