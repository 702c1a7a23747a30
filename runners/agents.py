"""Who starts the processes of a run and ends them: this machine's supervisor, or an agent on each of several hosts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from syncline.config import LocalConfig, RunConfig
from syncline.live.process import Job
from syncline.live.supervisor import Supervisor
from syncline.live.transport import default_address


class RunFailed(ValueError):
    """A process of the run failed; the message tells which, and why."""


def first_failure(folder: Path) -> RunFailed | None:
    """The first error that a process of the run wrote down."""
    notes = [json.loads(note.read_text()) for note in (folder / "log").glob("failure-*.json")]
    if not notes:
        return None
    first = min(notes, key=lambda note: float(note["at"]))
    trace = f"\n{first['trace']}" if first["trace"] else ""
    return RunFailed(f"{first['role']} {first['index']}: {first['error']}{trace}")


class Restart(Exception):
    """A part was lost that the others cannot do without; the run can begin again from its checkpoint."""


class Agents(Protocol):
    """All hosts of a run, be it one."""

    listen: str
    """Where the launcher is to listen for the processes."""

    def prepare(self) -> None:
        """Every host is there, and can reach those that it must.

        Raises:
            RunFailed: one is not within runner.start_timeout_s, or cannot; the message names it.
        """
        ...

    def start(self, job: Job) -> None:
        """Start all processes; each host is told which are its own, and where they are to listen."""
        ...

    def check(self) -> str | None:
        """See to the hosts. Returns why the run cannot go on, if so."""
        ...

    def end(self, patience_s: float) -> None:
        """No process is left, in whatever state it was; they have so long to end by themselves."""
        ...

    def close(self) -> None:
        """The run is over on every host."""
        ...

    def where(self, role: str, index: int) -> str:
        """What to say behind a process's name; empty on one host."""
        ...


class ThisMachine:
    """One host: its supervisor is a child of the launcher, and dies with it."""

    def __init__(self, config: RunConfig, supervisor: Supervisor) -> None:
        assert isinstance(config.runner, LocalConfig)
        self.listen = {"auto": default_address(), "unix": "unix:", "tcp": "tcp:127.0.0.1:0"}[config.runner.transport]
        has_server = config.strategy.has_server
        self._listen = self.listen if has_server else "tcp:127.0.0.1:0"  # what a collective's store takes
        shards = range(config.cluster.shards if has_server else 0)
        self._processes = processes(shards, range(config.cluster.workers), has_server)
        self._supervisor = supervisor
        supervisor.begin()

    def prepare(self) -> None:
        pass

    def start(self, job: Job) -> None:
        self._supervisor.start(replace(job, listen=self._listen, processes=self._processes))

    def check(self) -> str | None:
        ended = self._supervisor.wait(0.0)
        return None if ended is None else ended.why or "all processes ended"

    def end(self, patience_s: float) -> None:
        if self._supervisor.wait(patience_s) is None:
            self._supervisor.kill()
            self._supervisor.wait()

    def close(self) -> None:
        pass

    def where(self, role: str, index: int) -> str:
        return ""


def processes(
    shards: range | tuple[int, ...], workers: range | tuple[int, ...], has_server: bool
) -> list[tuple[str, int]]:
    """Of one host, as a job has them."""
    kind = "worker" if has_server else "member"
    return [*(("shard", shard) for shard in shards), *((kind, worker) for worker in workers)]
