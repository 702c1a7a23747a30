"""The hosts of a run: they start its processes and end them. Here: this host; remote_hosts.py has several hosts."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from syncline.config import LocalConfig, RunConfig
from syncline.live.process import Job
from syncline.live.supervisor import Supervisor
from syncline.live.transport import default_address


class Hosts(Protocol):
    """All hosts of a run, also if it is one."""

    listen_at: str
    """Address at which the launcher listens for the processes."""

    def prepare(self) -> None:
        """Wait until every host is there, and can connect to those that it needs.

        Raises:
            RunFailed: one is not there within runner.start_timeout_s, or cannot connect; the message names it.
        """
        ...

    def start(self, job: Job) -> None:
        """Start all processes; each host is told which of them it starts, and where they listen."""
        ...

    def check(self) -> str | None:
        """Returns why the run cannot continue, if a host says so."""
        ...

    def end(self, wait_s: float) -> None:
        """End all processes, whatever their state, after they had so long to end by themselves."""
        ...

    def close(self) -> None:
        """The run is over on every host."""
        ...

    def where(self, role: str, index: int) -> str:
        """What follows a process's name in a message; empty on one host."""
        ...


class LocalHost:
    """This host: its supervisor is a child of the launcher, and dies with it."""

    def __init__(self, config: RunConfig, supervisor: Supervisor) -> None:
        assert isinstance(config.runner, LocalConfig)
        self.listen_at = {"auto": default_address(), "unix": "unix:", "tcp": "tcp:127.0.0.1:0"}[config.runner.transport]
        has_server = config.strategy.has_server
        self._processes_listen_at = self.listen_at if has_server else "tcp:127.0.0.1:0"  # torch's store needs TCP
        shards = range(config.cluster.shards if has_server else 0)
        self._processes = list_processes(shards, range(config.cluster.workers), has_server)
        self._supervisor = supervisor
        supervisor.begin()

    def prepare(self) -> None:
        pass

    def start(self, job: Job) -> None:
        self._supervisor.start(replace(job, listen_at=self._processes_listen_at, processes=self._processes))

    def check(self) -> str | None:
        ended = self._supervisor.wait(0.0)
        return None if ended is None else ended.why or "all processes ended"

    def end(self, wait_s: float) -> None:
        if self._supervisor.wait(wait_s) is None:
            self._supervisor.kill()
            self._supervisor.wait()

    def close(self) -> None:
        pass

    def where(self, role: str, index: int) -> str:
        return ""


def list_processes(shards: Iterable[int], workers: Iterable[int], has_server: bool) -> list[tuple[str, int]]:
    """Role and index of the processes of one host."""
    role = "worker" if has_server else "member"
    return [*(("shard", shard) for shard in shards), *((role, worker) for worker in workers)]
