"""What every process of a run needs to know."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from syncline.config import RunConfig, from_plain
from syncline.live.control import ControlClient
from syncline.live.messages import Hello, Message
from syncline.live.process import Job
from syncline.live.transport import Tls
from syncline.records.store import read_run_config

LATE_FILES_S = 5.0  # for a shared file system to show what was written on another host


@dataclass(frozen=True, slots=True)
class RunContext:
    config: RunConfig
    folder: Path  # of the record
    secret: bytes
    tls: Tls | None
    control_address: str  # of the launcher's control server
    listen_at: str  # address for a shard, or for the first member of a collective
    resume: float | None  # number of the checkpoint to resume from; None: a fresh run

    @classmethod
    def of(cls, job: Job) -> "RunContext":
        """That of a job's processes. Raises FileNotFoundError if the secret is not there."""
        folder = Path(job.folder)
        config = from_plain(read_run_config(folder))
        runner = config.live
        tls = Tls.of(runner.tls_cert, runner.tls_key)
        return cls(
            config, folder, read_secret(folder / job.secret), tls, job.control_address, job.listen_at, job.resume
        )

    def connect_control(self, hello: Hello, on_message: Callable[[Message], None]) -> ControlClient:
        """A connection to the launcher; arguments and errors as `ControlClient`."""
        leave_s = self.config.live.leave_s
        return ControlClient(self.control_address, self.secret, self.tls, hello, on_message, dead_s=leave_s)


def read_secret(path: Path) -> bytes:
    """A secret that may be new: a shared file system shows new files late.

    Raises:
        FileNotFoundError: it is not there.
    """
    ends = time.monotonic() + LATE_FILES_S
    while not path.exists() and time.monotonic() < ends:
        time.sleep(0.2)
    return path.read_bytes()
