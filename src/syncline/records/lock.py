"""Who makes a run: a file beside its record, so that two processes that start the same run do not both make it.

`<identity>.lock` holds the host, the process and since when; its time of change says when the owner was last alive. Its
creation is exclusive, which also shared file systems keep to. An owner renews it every RENEW_S seconds. It was left
behind by an owner that is dead, which can be seen on the owner's host at once, and elsewhere after STALE_S seconds
without renewal; then the next one takes it over.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
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
    silent_s: float = 0.0  # since it last renewed the lock, by the file system's clock

    @property
    def is_alive(self) -> bool:
        if self.host == socket.gethostname():
            return _born(self.pid) == self.born
        return self.silent_s < STALE_S

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {time.strftime('%H:%M:%S', time.localtime(self.since))}"


def owner_of(folder: Path) -> Owner | None:
    """Who makes the run of this record now, if anybody does."""
    owner = _read(_path(folder), _now(folder.parent))
    return owner if owner is not None and owner.is_alive else None


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """While it is entered, nobody else makes the run of this record.

    Raises:
        Held: somebody does already.
        RecordError: the lock cannot be written.
    """
    path = _path(folder)
    me = Owner(socket.gethostname(), os.getpid(), _born(os.getpid()), time.time())
    ended = threading.Event()
    renewal = threading.Thread(target=_renew, args=(path, ended), daemon=True, name="lock")
    try:  # from here on, since an interrupt may come at any time
        _take(path, me)
        renewal.start()
        yield
    finally:
        ended.set()
        with suppress(OSError, RecordError):
            owner = _read(path, 0.0)
            if owner is not None and (owner.host, owner.pid, owner.since) == (me.host, me.pid, me.since):
                path.unlink()  # else it was never ours, or taken over while this process was stopped for long


def _take(path: Path, me: Owner) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while not _created(path, me):
            owner = _read(path, _now(path.parent))
            if owner is None:
                continue  # gone in this moment
            if owner.is_alive:
                raise Held(f"{path.stem} is being made by {owner}")
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

    Only the holder of the guard removes one, and it looks again before it does.
    """
    guard = path.with_name(f"{path.name}.taking")
    try:
        os.close(os.open(guard, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        with suppress(FileNotFoundError):
            if _now(path.parent) - guard.stat().st_mtime > GUARD_S:
                guard.unlink()
        time.sleep(0.01)
        return
    try:
        owner = _read(path, _now(path.parent))
        if owner is not None and not owner.is_alive:
            path.unlink()
    finally:
        guard.unlink()


def _read(path: Path, now: float) -> Owner | None:
    try:
        content = json.loads(path.read_text())
        return Owner(**{**content, "silent_s": now - path.stat().st_mtime})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise RecordError(f"{path}: broken lock ({type(error).__name__}); remove it if nobody makes this run") from None


def _now(folder: Path) -> float:
    """By the clock that sets the times of files in this folder, which may be another host's."""
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
    try:  # no /proc: a system that is not Linux
        os.kill(pid, 0)
    except ProcessLookupError:
        return -1
    except PermissionError:
        pass
    return 0


def _renew(path: Path, ended: threading.Event) -> None:
    while not ended.wait(RENEW_S):
        with suppress(OSError):  # the next time, then
            os.utime(path)
