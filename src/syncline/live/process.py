"""What each process of a run is told, and what it does by its role; supervisor.py starts them."""

import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from syncline.records.store import DISK, cannot_write, write_file
from syncline.targets import fault

# Exit codes, beside 0 and 1
RESTART = 75  # the run must restart from its checkpoint
SHARD_LOST = 76  # a worker lost a shard, or cannot connect to one
CONTROL_LOST = 77  # a process lost its launcher

MODULE_OF = {  # of a role: its `main(job, index)` is the process, and returns the exit code
    "shard": "syncline.live.shard",
    "worker": "syncline.live.worker",
    "member": "syncline.live.collective",
    "evaluator": "syncline.live.evaluation",
}


@dataclass(frozen=True, slots=True)
class Job:
    """The processes of one host, and what they need to know."""

    folder: str  # of the record: config.json, secrets, log/
    secret: str  # name of its file there
    control_address: str  # of the launcher's control server
    cwd: str  # where the launcher was started
    resume: float | None = None  # number of the checkpoint to resume from; None: a fresh run
    listen_at: str = ""  # address for the shards, or for the first member of a collective
    processes: Sequence[tuple[str, int]] = ()  # role (shard, worker, member) and index
    num_present: int = 0  # workers that are there when the run begins, on all hosts: the first ones
    environment: dict[str, str] = field(default_factory=dict)

    def on_host(self, role: str) -> list[int]:
        """The indices of this host's processes of this role; the position of a process is its local rank."""
        return [index for each, index in self.processes if each == role]

    def variables(self, role: str, index: int) -> dict[str, str]:
        """The environment of a process; ranks are named as by torchrun."""
        if role not in ("worker", "member"):
            return self.environment
        alike = self.on_host(role)
        ranks = {"RANK": index, "LOCAL_RANK": alike.index(index), "LOCAL_WORLD_SIZE": len(alike)}
        return self.environment | {name: str(number) for name, number in ranks.items()}


def run(job: Job, role: str, index: int) -> int:
    """Be this process of the run. Returns the exit code; an error is written down for the launcher to show."""
    os.chdir(job.cwd)
    os.environ.update(job.variables(role, index))
    _write_output_to(Path(job.folder) / "log" / f"{role}-{index}.txt")
    try:
        code: int = import_module(MODULE_OF[role]).main(job, index)
        return code
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK:
            error = cannot_write(Path(job.folder), error)
        is_ours = isinstance(error, ValueError)
        users = fault(error)
        message = str(error) if is_ours else users or f"{type(error).__name__}: {error}"
        with suppress(OSError):  # a full disk takes no note; the launcher sees that it is full
            note_failure(job, role, index, message, "" if is_ours or users else traceback.format_exc())
        traceback.print_exc()
        return 1


def note_failure(job: Job, role: str, index: int, error: str, trace: str) -> None:
    """Write an error down; the launcher shows the first one."""
    path = Path(job.folder) / "log" / f"failure-{role}-{index}.json"
    note = {"at": time.time(), "role": role, "index": index, "error": error, "trace": trace}
    write_file(path, json.dumps(note))


def _write_output_to(path: Path) -> None:
    """Redirect all output of this process, also that of C code."""
    sys.stdout.flush()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
