"""Starts the agents of several hosts: by ssh, by Slurm's srun, by another command, or by hand."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import syncline
from runners.display import say
from syncline.config import ConfigError, MultinodeConfig
from syncline.live.transport import HANDSHAKE_S
from syncline.operations.jobs import call

CODE = Path(syncline.__file__).parents[1]  # on every host, since they share a file system
TERMINATE_S = 2.0  # for srun to kill its agents
RETRY_S = 5.0  # between two starts of an agent, and for the agent of a lost host to reconnect by itself
ALIVE = ["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]  # of ssh: it notices that the host has gone


@dataclass(frozen=True, slots=True)
class _Start:
    process: subprocess.Popen[bytes]  # ssh, srun, ...; of several hosts by one srun
    output: Path


class AgentStarter:
    """Starts agents, and knows why one did not start.

    Args:
        folder: of the record.
        control_address: of the launcher's control server for agents.
    """

    def __init__(self, runner: MultinodeConfig, folder: Path, control_address: str) -> None:
        self._runner, self._folder, self._control_address = runner, folder, control_address
        self._starts: dict[str, _Start] = {}  # by host, the last one
        self._started_at: dict[str, float] = {}  # by host, the last start, monotonic
        self._lost_at: dict[str, float] = {}  # by host, when its agent was lost since its last start, monotonic

    def start(self, hosts: Collection[str]) -> None:
        """Start the agents of these hosts, except where that was tried a moment ago."""
        now = time.monotonic()
        due = [host for host in hosts if self._is_due(host, now)]
        if not due:
            return
        self._started_at |= dict.fromkeys(due, now)
        if self._runner.start == "print":
            for host in due:
                say(f"on {host}: {shlex.join(self._agent(host))}")
        elif self._runner.start == "srun" and not self._starts:
            self._starts = dict.fromkeys(due, self._spawn(self._srun(due), "agents"))
        else:
            for host in due:
                self._lost_at.pop(host, None)
                self._end_own(host)
                self._starts[host] = self._spawn(self._command(host), f"agent-{host}")

    def lost(self, host: str) -> None:
        """Its agent was there, and is lost."""
        self._lost_at[host] = time.monotonic()

    def error_of(self, host: str) -> str:
        """Why its agent did not start; empty while it may still."""
        start = self._starts.get(host)
        if start is None:
            return ""
        lines = [line for line in start.output.read_text(errors="replace").splitlines() if line.strip()]
        own = [line for line in lines if line.startswith(f"host {host}: ")]
        if own:
            return own[0]
        code = start.process.poll()
        if code is None:
            return ""
        error = next((line for line in lines if "error" in line), lines[0] if lines else f"exit code {code}")
        return f"host {host}: its agent did not start: {error}"

    def close(self, wait_s: float) -> None:
        """Wait so long for the agents to end, then end what started them, and agents that are its own process."""
        self._wait(wait_s)
        for start in self._starts.values():
            start.process.terminate()  # by it srun kills its agents; an agent ignores it
        self._wait(TERMINATE_S)
        for start in self._starts.values():
            start.process.kill()
            start.process.wait()

    def _wait(self, seconds: float) -> None:
        """Until all that started agents has ended, but not longer."""
        ends = time.monotonic() + seconds
        while any(start.process.poll() is None for start in self._starts.values()) and time.monotonic() < ends:
            time.sleep(0.02)

    def _end_own(self, host: str) -> None:
        """Kill what started this host's agent before, unless it serves others, too."""
        old = self._starts.pop(host, None)
        if old is not None and old not in self._starts.values():
            old.process.kill()
            old.process.wait()

    def _is_due(self, host: str, now: float) -> bool:
        if host not in self._started_at:
            return True
        start = self._starts.get(host)
        if start is None:
            return False  # it is started by hand
        if start.process.poll() is not None:
            return now > self._started_at[host] + RETRY_S
        return host in self._lost_at and now > self._lost_at[host] + RETRY_S

    def _agent(self, *host: str) -> list[str]:
        arguments = [str(self._folder.absolute()), self._control_address, *host]
        return ["env", f"PYTHONPATH={CODE}", sys.executable, "-m", "syncline.live.host_agent", *arguments]

    def _command(self, host: str) -> list[str]:
        runner = self._runner
        if runner.start == "command":
            return [*shlex.split(runner.start_command.replace("{host}", host)), *self._agent(host)]
        if runner.start == "srun":
            return self._srun([host], "--overlap")  # the first step still has the node's cores and memory
        timeout = f"ConnectTimeout={max(1, int(min(HANDSHAKE_S, runner.start_timeout_s / 2)))}"
        options = [*runner.start_options, "-o", "BatchMode=yes", "-o", timeout, *ALIVE]
        return ["ssh", *options, host, shlex.join(self._agent(host))]

    def _srun(self, hosts: list[str], *more: str) -> list[str]:
        nodes = [f"--nodes={len(hosts)}", "--ntasks-per-node=1", f"--nodelist={','.join(hosts)}"]
        stay = ["--cpu-bind=none", "--no-kill", "--kill-on-bad-exit=0", "--wait=0"]
        return ["srun", *self._runner.start_options, *nodes, *stay, *more, *self._agent()]

    def _spawn(self, command: list[str], name: str) -> _Start:
        path = self._folder / "log" / f"{name}.txt"
        with path.open("wb") as output:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
            except OSError as error:
                raise ConfigError(f"runner.start={self._runner.start}: {command[0]}: {error.strerror}") from None
        return _Start(process, path)


def allocated_hosts(runner: MultinodeConfig) -> list[str]:
    """The hosts of the Slurm allocation that this process runs in, as many as the config asks for.

    Raises:
        ConfigError: there is none, or it is too small.
        NoAnswer: Slurm does not tell its hosts.
    """
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if runner.start != "srun" or not nodes:
        raise ConfigError("runner.hosts must name the hosts; only start=srun inside a Slurm allocation knows them")
    if runner.nodes is None:
        raise ConfigError("runner.nodes must say how many hosts of the allocation are taken")
    names = call(["scontrol", "show", "hostnames", nodes]).split()
    if len(names) < runner.nodes:
        raise ConfigError(f"runner.nodes must be at most {len(names)}, the allocation's; got {runner.nodes}")
    return names[: runner.nodes]
