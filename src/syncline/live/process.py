"""What torchrun starts: python -m syncline.live.process agent | rank | worker.

    agent    torchrun itself, tied to the launcher's life
    rank     one of its processes: a shard, or a guardian that starts a worker and starts it again when it was killed
    worker   what a guardian starts

Each dies with its parent, at once and whatever its state (Linux), so a run leaves no process behind. A guardian does
not import torch.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NoReturn

from syncline.live.exits import LINE_LOST, RESTART, SHARD_GONE

MOST_RESTARTS = 100  # of one worker
LATE_FILES_S = 5.0  # for a shared file system to show what was written on another host

# What the launcher says by the environment.
FOLDER = "SYNCLINE_FOLDER"  # of the record: config.yaml, secrets, log/
SECRET = "SYNCLINE_SECRET"  # name of its file there
HEADQUARTERS = "SYNCLINE_HEADQUARTERS"  # address
LISTEN = "SYNCLINE_LISTEN"  # address for a shard
ROLES = "SYNCLINE_ROLES"  # of the processes of this host, in order: "shard:0 worker:0 worker:1", or members
RESUME = "SYNCLINE_RESUME"  # number of the checkpoint to go on from; absent: a fresh run


def main(arguments: list[str]) -> int:
    die_with_parent()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a batch system sends it to all; the launcher alone obeys
    role = arguments[0]
    if role == "agent":
        from torch.distributed.run import main as torchrun

        torchrun(arguments[1:])
        return 0
    if role == "worker":
        return _run("worker", int(arguments[1]))
    kind, _, number = _roles()[int(os.environ["LOCAL_RANK"])].partition(":")
    return guard(int(number)) if kind == "worker" else _run(kind, int(number))


def guard(worker: int) -> int:
    """Keep a worker alive until it has done its work. Returns its exit code if that was its own fault."""
    for attempt in range(MOST_RESTARTS):
        code = subprocess.call([sys.executable, "-m", __spec__.name, "worker", str(worker)])
        if code >= 0 and code not in (SHARD_GONE, LINE_LOST):
            return code
        time.sleep(min(0.1 * 2**attempt, 1.0))
    _note_failure("worker", worker, f"it was killed or lost its shards {MOST_RESTARTS} times", "")
    return 1


def _roles() -> list[str]:
    return os.environ[ROLES].split()


def _place(role: str, index: int) -> int:
    """Among those of this role on this host, from 0."""
    return [each for each in _roles() if each.startswith(role)].index(f"{role}:{index}")


def _run(role: str, index: int) -> int:
    """Be this part of the run; what goes wrong is written down for the launcher to show."""
    folder = Path(os.environ[FOLDER])
    _write_output_to(folder / "log" / f"{role}-{index}.txt")
    try:
        return {"shard": _shard, "worker": _worker, "member": _member}[role](index)
    except Exception as error:
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        _note_failure(role, index, said, "" if isinstance(error, ValueError) else traceback.format_exc())
        traceback.print_exc()
        return 1


def _shard(index: int) -> int:
    from syncline.live.shard import ShardProcess

    process = ShardProcess(
        _run_config(),
        Path(os.environ[FOLDER]),
        index,
        os.environ[LISTEN],
        os.environ[HEADQUARTERS],
        _secret(),
        _tls(),
        _resume(),
    )
    return 0 if process.run() else RESTART


def _worker(index: int) -> int:
    from syncline.live.control import Line
    from syncline.live.worker import ShardGone, work

    messages: SimpleQueue[dict[str, Any]] = SimpleQueue()
    secret, tls = _secret(), _tls()
    hello = {"role": "worker", "index": index, "address": ""}
    config = _run_config()
    try:
        line = Line(os.environ[HEADQUARTERS], secret, tls, hello, messages.put, dead_s=config.runner.leave_s)
    except OSError as error:  # this host may be cut off: the guardian tries again
        print(f"no launcher: {error}", file=sys.stderr)
        return LINE_LOST
    addresses = messages.get()["addresses"]
    try:
        work(config, index, addresses, secret, tls, _place("worker", index))
    except (ShardGone, OSError) as error:
        print(f"lost: {error}", file=sys.stderr)
        line.tell("unreachable", why=str(error))
        return SHARD_GONE
    line.tell("done")
    return 0


def _member(index: int) -> int:
    from syncline.live.collective import Member

    member = Member(
        _run_config(),
        Path(os.environ[FOLDER]),
        index,
        _place("member", index),
        len(_roles()),
        os.environ[HEADQUARTERS],
        _secret(),
        _tls(),
        _resume(),
    )
    return 0 if member.run() else RESTART


def _resume() -> float | None:
    return float(os.environ[RESUME]) if RESUME in os.environ else None


def _run_config() -> Any:
    from syncline.config import from_plain

    return from_plain(_config())


def _config() -> dict[str, Any]:
    from syncline.records.store import read_run_config

    return read_run_config(Path(os.environ[FOLDER]))


def _secret() -> bytes:
    return read_secret(Path(os.environ[FOLDER]) / os.environ[SECRET])


def read_secret(path: Path) -> bytes:
    """It may be new, and a shared file system shows new files late.

    Raises:
        FileNotFoundError: it is not there.
    """
    ends = time.monotonic() + LATE_FILES_S
    while not path.exists() and time.monotonic() < ends:
        time.sleep(0.2)
    return path.read_bytes()


def _tls() -> Any:
    from syncline.live.transport import Tls

    runner = _config()["runner"]
    return Tls(runner["tls_cert"], runner["tls_key"]) if runner["tls_cert"] else None


def _note_failure(role: str, index: int, error: str, trace: str) -> None:
    path = Path(os.environ[FOLDER]) / "log" / f"failure-{role}-{index}.json"
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


def die_with_parent() -> None:
    """Be killed when the parent ends. Linux; elsewhere a process ends when it loses its line to the launcher."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() == 1:
            raise SystemExit("the parent is gone")


def command_line() -> NoReturn:
    raise SystemExit(main(sys.argv[1:]))


if __name__ == "__main__":
    command_line()
