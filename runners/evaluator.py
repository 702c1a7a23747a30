"""The process that evaluates the states of a run of real processes; see syncline/live/evaluation.py."""

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from runners.failures import RunFailed, first_failure
from syncline.config import RunConfig
from syncline.live.process import Job
from syncline.live.supervisor import MAX_MESSAGE_BYTES, Supervisor


class Evaluator:
    """Starts the process, and asks it for evaluations.

    Raises:
        RunFailed: it cannot be started, or has failed; the methods raise it likewise.
    """

    def __init__(self, config: RunConfig, folder: Path, supervisor: Supervisor) -> None:
        environment = {"OMP_NUM_THREADS": str(config.threads)}
        job = Job(str(folder.absolute()), secret="", control_address="", cwd=str(Path.cwd()), environment=environment)
        self._folder = folder
        self._line = supervisor.evaluator(job)
        self.about = self._answer()

    def row(self, paths: list[Path], wall_s: float) -> dict[str, Any]:
        row: dict[str, Any] = self._ask("row", list(map(str, paths)), wall_s)
        return row

    def is_finite(self, paths: list[Path]) -> bool:
        return self._ask("is_finite", list(map(str, paths))) is True

    def close(self) -> None:
        with suppress(OSError):  # the process has ended
            self._line.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for an answer
        self._line.close()

    def _ask(self, *request: Any) -> Any:
        with suppress(OSError):  # then there is no answer either
            self._line.sendall(json.dumps(request).encode())
        return self._answer()

    def _answer(self) -> Any:
        message = b""
        with suppress(ConnectionResetError):
            message = self._line.recv(MAX_MESSAGE_BYTES)
        if not message:
            raise first_failure(self._folder) or RunFailed("the process that evaluates was killed")
        return json.loads(message)
