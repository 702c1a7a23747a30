"""What each process of a run does, and what it must know for that; supervisor.py starts them."""

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from syncline.live.exits import LINE_LOST, RESTART, SHARD_GONE

LATE_FILES_S = 5.0  # for a shared file system to show what was written on another host


@dataclass(frozen=True, slots=True)
class Job:
    """The processes of one host, and what they must know."""

    folder: str  # of the record: config.yaml, secrets, log/
    secret: str  # name of its file there
    launcher: str  # its address
    cwd: str  # where the launcher was started
    resume: float | None = None  # number of the checkpoint to go on from; None: a fresh run
    listen: str = ""  # address for the shards, or for the first member of a collective
    processes: Sequence[tuple[str, int]] = ()  # role (shard, worker, member) and index
    environment: dict[str, str] = field(default_factory=dict)

    def alike(self, role: str) -> list[int]:
        """The processes of this role on this host."""
        return [index for kind, index in self.processes if kind == role]

    def place(self, role: str, index: int) -> int:
        """Of this process among them, from 0."""
        return self.alike(role).index(index)

    def variables(self, role: str, index: int) -> dict[str, str]:
        """The environment of a process; as torchrun does, it tells each worker which it is of how many."""
        if role not in ("worker", "member"):
            return self.environment
        own = {"RANK": index, "LOCAL_RANK": self.place(role, index), "LOCAL_WORLD_SIZE": len(self.alike(role))}
        return self.environment | {name: str(number) for name, number in own.items()}


def run(job: Job, role: str, index: int) -> int:
    """Be this process of the run. What goes wrong is written down for the launcher to show.

    Returns:
        The exit code.
    """
    os.chdir(job.cwd)
    os.environ.update(job.variables(role, index))
    _write_output_to(Path(job.folder) / "log" / f"{role}-{index}.txt")
    try:
        return {"shard": _shard, "worker": _worker, "member": _member, "evaluator": _evaluator}[role](job, index)
    except Exception as error:
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        note_failure(job, role, index, said, "" if isinstance(error, ValueError) else traceback.format_exc())
        traceback.print_exc()
        return 1


def _shard(job: Job, index: int) -> int:
    from syncline.live.shard import ShardProcess

    config = _config(job)
    process = ShardProcess(
        config, Path(job.folder), index, job.listen, job.launcher, _secret(job), _tls(config), job.resume
    )
    return 0 if process.run() else RESTART


def _worker(job: Job, index: int) -> int:
    from syncline.live.control import ControlClient
    from syncline.live.worker import ShardGone, work

    messages: SimpleQueue[dict[str, Any]] = SimpleQueue()
    config, secret = _config(job), _secret(job)
    tls = _tls(config)
    hello = {"role": "worker", "index": index, "address": ""}
    try:
        line = ControlClient(job.launcher, secret, tls, hello, messages.put, dead_s=config.live.leave_s)
    except OSError as error:  # this host may be cut off: the supervisor tries again
        print(f"no launcher: {error}", file=sys.stderr)
        return LINE_LOST
    addresses = messages.get()["addresses"]
    try:
        work(config, index, addresses, secret, tls, job.place("worker", index))
    except (ShardGone, OSError) as error:
        print(f"lost: {error}", file=sys.stderr)
        line.tell("unreachable", why=str(error))
        return SHARD_GONE
    line.tell("done")
    return 0


def _member(job: Job, index: int) -> int:
    from syncline.live.collective import Member

    config = _config(job)
    member = Member(
        config,
        Path(job.folder),
        index,
        job.place("member", index),
        len(job.alike("member")),
        job.listen,
        job.launcher,
        _secret(job),
        _tls(config),
        job.resume,
    )
    return 0 if member.run() else RESTART


def _evaluator(job: Job, index: int) -> int:
    from syncline.live.evaluation import serve

    config = _config(job)
    if config.live.evaluate == "during":
        os.nice(19)
    serve(config, socket.socket(fileno=0))
    return 0


def _config(job: Job) -> Any:
    from syncline.config import from_plain
    from syncline.records.store import read_run_config

    return from_plain(read_run_config(Path(job.folder)))


def _secret(job: Job) -> bytes:
    return read_secret(Path(job.folder) / job.secret)


def read_secret(path: Path) -> bytes:
    """It may be new, and a shared file system shows new files late.

    Raises:
        FileNotFoundError: it is not there.
    """
    ends = time.monotonic() + LATE_FILES_S
    while not path.exists() and time.monotonic() < ends:
        time.sleep(0.2)
    return path.read_bytes()


def _tls(config: Any) -> Any:
    from syncline.live.transport import Tls

    return Tls(config.live.tls_cert, config.live.tls_key) if config.live.tls_cert else None


def note_failure(job: Job, role: str, index: int, error: str, trace: str) -> None:
    """For the launcher, whoever it was first."""
    path = Path(job.folder) / "log" / f"failure-{role}-{index}.json"
    note = {"at": time.time(), "role": role, "index": index, "error": error, "trace": trace}
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(note))
    draft.replace(path)


def _write_output_to(path: Path) -> None:
    """From now on, whatever this process prints, also from C."""
    sys.stdout.flush()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
