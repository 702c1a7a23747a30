"""A tracker shows a record elsewhere, for people who watch many runs. It is a process of its own, which only reads the
record (records/mirror.py): whatever becomes of it, the run is not harmed and hardly slowed down.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

LEAVE_S = 2.0  # for a tracker whose run has not ended well


class Tracker(Protocol):
    """Entered when the record is there, left when it is finished or has failed."""

    def look(self) -> None:
        """There is a new evaluation in the record."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def check_installed(options: Mapping[str, Any]) -> None:
    """Of the config's group `tracker`.

    Raises:
        ValueError: its package is absent; the message tells what to install.
    """
    name = options["name"]
    if name != "none" and find_spec(name) is None:
        raise ValueError(f"tracker={name} needs the package {name}, which is not installed: pip install {name}")


def start_tracker(options: Mapping[str, Any], folder: Path, place: Path, say: Callable[[str], None]) -> Tracker:
    """The tracker that the config's group `tracker` asks for.

    Args:
        folder: of the record.
        place: where it will lie when it is finished.
        say: takes the one line of what went wrong, if something does.
    """
    return NoTracker() if options["name"] == "none" else Mirror(options, folder, place, say)


class NoTracker:
    def look(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class Mirror:
    """The process that follows the record; see `start_tracker`.

    It is told of each evaluation by one byte, which is never waited for, and of the end by the end of the pipe. Then it
    has `wait_s` to tell the rest, or if the run has not ended well `LEAVE_S`, and is killed.
    """

    def __init__(self, options: Mapping[str, Any], folder: Path, place: Path, say: Callable[[str], None]) -> None:
        self._name, self._wait_s, self._place, self._say = options["name"], options["wait_s"], place, say
        self._process: subprocess.Popen[bytes] | None = None
        command = [sys.executable, "-m", "syncline.records.mirror", "--follow", str(folder), str(place)]
        try:
            self._scratch = tempfile.TemporaryDirectory(prefix="syncline-", ignore_cleanup_errors=True)
            self._words = Path(self._scratch.name, "words.txt")
            with self._words.open("wb") as words:
                self._process = subprocess.Popen(
                    command,
                    env=os.environ | {"TMPDIR": self._scratch.name},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=words,
                    start_new_session=True,  # a Ctrl-C is for the run
                )
        except OSError as error:
            self._warn(f"it did not start: {error.strerror}")
            return
        assert self._process.stdin is not None
        self._pipe = self._process.stdin
        os.set_blocking(self._pipe.fileno(), False)

    def look(self) -> None:
        if self._process is None:
            return
        try:
            os.write(self._pipe.fileno(), b"\n")
        except BlockingIOError:
            pass  # it has enough to look at
        except OSError:  # it is dead
            self._end(LEAVE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind:  # that is what is to be told of
            self._say = lambda line: None
        self._end(LEAVE_S if kind else self._wait_s)

    def _end(self, wait_s: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            self._pipe.close()
            code = process.wait(wait_s)
            if code:
                said = re.search("^error: (.*)", self._words.read_text(errors="replace"), re.MULTILINE)
                self._warn(said[1] if said else f"it ended with exit code {code}")
        except subprocess.TimeoutExpired:
            self._warn(f"it was not ready {wait_s:g} s after the run")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it has started
            process.wait()
            self._scratch.cleanup()

    def _warn(self, why: str) -> None:
        again = f"python -m syncline.records.mirror {self._place}"
        self._say(f"tracker={self._name} failed, the run goes its way: {why}; once more when it is over: {again}")
