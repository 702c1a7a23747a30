"""The run's side of a tracker: it starts the process, notifies it of evaluations, and ends it."""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

ABORT_S = 2.0  # for the tracker to end after a run that failed or was interrupted


class Tracker:
    """The process that follows the record, if the config names a tracker; left when the run has finished or failed.

    One byte through a pipe notifies it of an evaluation, without blocking; closing the pipe, of the end. Then it has
    `wait_s` to write the rest, or `ABORT_S` if the run failed or was interrupted, before it is killed.

    Args:
        options: the config's group `tracker`.
        folder: of the record, which exists.
        place: where the record moves when it is finished.
        say: receives one line if the tracker fails.
    """

    def __init__(self, options: Mapping[str, Any], folder: Path, place: Path, say: Callable[[str], None]) -> None:
        self._wait_s, self._place, self._say = options.get("wait_s", 0.0), place, say
        self._process: subprocess.Popen[bytes] | None = None
        if options["name"] == "none":
            return
        if os.environ.get("WANDB_DISABLED", "").lower() in ("true", "1", "yes"):
            say("tracker=wandb: WANDB_DISABLED is set, so the run is not tracked")
            return
        command = [sys.executable, "-m", "syncline.records.trackers", "--follow", str(folder), str(place)]
        try:
            self._scratch = tempfile.TemporaryDirectory(prefix="syncline-", ignore_cleanup_errors=True)
            self._errors = Path(self._scratch.name, "stderr.txt")
            with self._errors.open("wb") as errors:
                self._process = subprocess.Popen(
                    command,
                    env=os.environ | {"TMPDIR": self._scratch.name},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,  # Ctrl-C is meant for the run
                )
        except OSError as error:
            self._warn(f"it did not start: {error.strerror}")
            return
        assert self._process.stdin is not None
        self._pipe = self._process.stdin
        os.set_blocking(self._pipe.fileno(), False)

    def on_evaluation(self) -> None:
        """The record has a new evaluation."""
        if self._process is None:
            return
        try:
            os.write(self._pipe.fileno(), b"\n")
        except BlockingIOError:
            pass  # it has notifications to process
        except OSError:  # it has ended
            self._end(ABORT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:  # the error of the run is what gets reported
            self._say = lambda line: None
        self._end(ABORT_S if kind else self._wait_s)

    def _end(self, wait_s: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            self._pipe.close()
            code = process.wait(wait_s)
            if code:
                message = re.search("^error: (.*)", self._errors.read_text(errors="replace"), re.MULTILINE)
                self._warn(message[1] if message else f"it ended with exit code {code}")
        except subprocess.TimeoutExpired:
            self._warn(f"it had not ended {wait_s:g} s after the run")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and the processes that it has started
            process.wait()
            self._scratch.cleanup()

    def _warn(self, why: str) -> None:
        again = f"python -m syncline.records.trackers {shlex.quote(str(self._place))}"
        self._say(f"tracker=wandb failed, the run continues: {why}; to repeat it after the run: {again}")
