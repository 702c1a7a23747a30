"""Who starts the processes of a run and ends them: torchrun on this machine, or an agent on each of several hosts."""

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from syncline.config import RunConfig
from syncline.live.process import LISTEN, ROLES
from syncline.live.transport import default_address


class RunFailed(ValueError):
    """A process of the run failed; the message tells which, and why."""


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

    def start(self, environment: Mapping[str, str]) -> None:
        """Start all processes with these variables, and those that tell each what it is to be."""
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

    def output(self) -> list[Path]:
        """What torchrun prints."""
        ...


class ThisMachine:
    """One host: torchrun is a child of the launcher, and dies with it."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self.listen = {"auto": default_address(), "unix": "unix:", "tcp": "tcp:127.0.0.1:0"}[config.runner.transport]
        self._log = folder / "log"
        shards = range(config.cluster.shards if config.strategy.has_server else 0)
        self._roles = roles(shards, range(config.cluster.workers), config.strategy.has_server)

    def prepare(self) -> None:
        pass

    def start(self, environment: Mapping[str, str]) -> None:
        arguments = [
            *("--nnodes=1", "--rdzv-endpoint=localhost:0"),
            *torchrun(len(self._roles), secrets.token_hex(8), self._log / "torchrun"),
        ]
        own = {LISTEN: self.listen, ROLES: " ".join(self._roles)}
        with self._output.open("ab") as output:
            self._torchrun = subprocess.Popen(
                [sys.executable, "-m", "syncline.live.process", "agent", *arguments],
                env={**os.environ, **environment, **own},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a Ctrl-C is for the launcher alone, which ends them in good order
            )

    def check(self) -> str | None:
        return None if self._torchrun.poll() is None else "torchrun ended"

    def end(self, patience_s: float) -> None:
        ends = time.monotonic() + patience_s
        while self._torchrun.poll() is None and time.monotonic() < ends:
            time.sleep(0.01)
        self._torchrun.kill()  # its processes die with it, and theirs with them
        self._torchrun.wait()
        shutil.rmtree(self._log / "torchrun", ignore_errors=True)  # empty: our processes write elsewhere

    def close(self) -> None:
        pass

    def where(self, role: str, index: int) -> str:
        return ""

    def output(self) -> list[Path]:
        return [self._output]

    @property
    def _output(self) -> Path:
        return self._log / "torchrun.txt"


def roles(shards: range | tuple[int, ...], workers: range | tuple[int, ...], has_server: bool) -> list[str]:
    """Of the processes of one host, as `process.ROLES` has them."""
    kind = "worker" if has_server else "member"
    return [*(f"shard:{shard}" for shard in shards), *(f"{kind}:{worker}" for worker in workers)]


def torchrun(num_processes: int, identity: str, log: Path) -> list[str]:
    """Its arguments, but for the hosts and where they meet: so many processes here, none of them started twice."""
    return [
        *(f"--nproc-per-node={num_processes}", "--rdzv-backend=c10d", f"--rdzv-id={identity}", "--max-restarts=0"),
        *(f"--log-dir={log.absolute()}", "-m", "syncline.live.process", "rank"),
    ]
