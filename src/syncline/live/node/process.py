"""What each process of a run is told, and what it does by its role; keeper.py starts them."""

import json
import os
import secrets
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path

from syncline.live.node.ranks import Ranks
from syncline.records.store import DISK, cannot_write, write_file
from syncline.targets import fault

# Exit codes, beside 0 and 1
RESTART = 75  # the run must restart from its checkpoint
SHARD_LOST = 76  # a worker lost a shard, or cannot connect to one
CONTROL_LOST = 77  # a process lost its coordinator
TRY_AGAIN = (RESTART, SHARD_LOST, CONTROL_LOST)  # the process may be started again

MAX_MESSAGE_BYTES = 1 << 17  # between coordinator and evaluator: enough for the paths of thousands of parts

MODULE_OF = {  # of a role: its `main(job, index, ranks)` is the process, and returns the exit code
    "shard": "syncline.live.shard.server",
    "worker": "syncline.live.worker.trainer",
    "member": "syncline.live.collective.member",
    "peer": "syncline.live.collective.peer",
}


class ControlLost(ConnectionError):
    """The coordinator does not answer, or does not know the run's secret."""


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt at a run, as its coordinator tells it to all processes: a file of the record.

    The file is there while the attempt is under way. It holds the secret, so that its owner alone may read it.
    """

    folder: str  # of the record, as it is seen here
    name: str  # of the file
    words: list[str]  # of the command line that every rank was started with
    secret: str
    control_address: str  # of the coordinator's control server
    resume: float | None = None  # number of the checkpoint to resume from; None: a fresh run
    num_present: int = 0  # workers that are there when the run begins: the first ones

    def write(self) -> None:
        """Raises OSError if it cannot be written."""
        content = asdict(self)
        del content["folder"], content["name"]
        draft = Path(self.folder, f"{self.name}.draft")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(content, file)
        draft.replace(Path(self.folder, self.name))

    def remove(self) -> None:
        Path(self.folder, self.name).unlink(missing_ok=True)

    def grown(self, num_present: int) -> "Job":
        """With more workers, also in its file."""
        job = replace(self, num_present=num_present)
        job.write()
        return job

    @classmethod
    def read(cls, folder: Path, name: str) -> "Job | None":
        """None: there is no such attempt, or it is over."""
        try:
            content = json.loads((folder / name).read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return cls(str(folder), name, **content)


def new_job_name() -> str:
    """Of an attempt; no two have the same."""
    return f"attempt-{secrets.token_hex(8)}.json"


def new_secret() -> str:
    return secrets.token_hex(32)


def run(job: Job, role: str, index: int, ranks: Ranks) -> int:
    """Be this process of the run. Returns the exit code; an error is written down for the coordinator to show."""
    _write_output_to(Path(job.folder) / "log" / f"{role}-{index}.txt")
    try:
        code: int = import_module(MODULE_OF[role]).main(job, index, ranks)
        return code
    except ControlLost as error:  # the attempt may be over, or this host cut off: the keeper tries again
        print(error, file=sys.stderr)
        return CONTROL_LOST
    except Exception as error:
        note_error(Path(job.folder), role, index, error)
        return 1


def note_error(folder: Path, role: str, index: int, error: Exception) -> None:
    """Write an error of a process down, and print it."""
    if isinstance(error, OSError) and error.errno in DISK:
        error = cannot_write(folder, error)
    users = fault(error)
    is_ours = isinstance(error, ValueError) and users is None
    message = str(error) if is_ours else users or f"{type(error).__name__}: {error}"
    with suppress(OSError):  # a full disk takes no note; the coordinator sees that it is full
        note_failure(folder, role, index, message, "" if is_ours or users else traceback.format_exc())
    traceback.print_exc()


def note_failure(folder: Path, role: str, index: int, error: str, trace: str) -> None:
    """Write an error down; the coordinator shows the first one."""
    path = folder / "log" / f"failure-{role}-{index}.json"
    note = {"at": time.time(), "role": role, "index": index, "error": error, "trace": trace}
    write_file(path, json.dumps(note))


def _write_output_to(path: Path) -> None:
    """Redirect all output of this process, also that of C code."""
    sys.stdout.flush()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
