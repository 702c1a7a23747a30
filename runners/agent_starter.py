"""Starts the agents of several hosts: by ssh, by Slurm's srun, by another command, or by hand."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

import syncline
from runners.display import say
from syncline.config import ConfigError, MultinodeConfig
from syncline.live.transport import HANDSHAKE_S

CODE = Path(syncline.__file__).parents[1]  # on every host, since they share a file system
TERMINATE_S = 2.0  # for srun to kill its agents
RETRY_S = 5.0  # between two starts of an agent, on a host that was lost


class AgentStarter:
    """Starts agents, and knows why one did not start.

    Args:
        folder: of the record.
        control_address: of the launcher's control server for agents.
    """

    def __init__(self, runner: MultinodeConfig, folder: Path, control_address: str) -> None:
        self._runner, self._folder, self._control_address = runner, folder, control_address
        self._starters: dict[str, subprocess.Popen[bytes]] = {}  # by host
        self._started_at: dict[str, float] = {}  # by host, the last start, monotonic

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
        elif self._runner.start == "srun":
            starter = self._spawn(self._srun(due), due[0])
            self._starters |= dict.fromkeys(due, starter)
        else:
            for host in due:
                self._starters[host] = self._spawn(self._command(host), host)

    def error_of(self, host: str) -> str:
        """Why its agent did not start; empty while it may still."""
        starter = self._starters.get(host)
        if starter is None:
            return ""
        first = next(other for other, each in self._starters.items() if each is starter)  # whose output it shares
        lines = [line for line in self._output_of(first).read_text(errors="replace").splitlines() if line.strip()]
        own = [line for line in lines if line.startswith(f"host {host}: ")]
        if own:
            return own[0]
        code = starter.poll()
        if code is None:
            return ""
        error = next((line for line in lines if "error" in line), lines[0] if lines else f"exit code {code}")
        return f"host {host}: its agent did not start: {error}"

    def close(self, wait_s: float) -> None:
        """Wait so long for the agents to end, then end what started them, and agents that are its own process."""
        self._wait(wait_s)
        for starter in self._starters.values():
            starter.terminate()  # by it srun kills its agents; an agent ignores it
        self._wait(TERMINATE_S)
        for starter in self._starters.values():
            starter.kill()
            starter.wait()

    def _wait(self, seconds: float) -> None:
        """Until all that started agents has ended, but not longer."""
        ends = time.monotonic() + seconds
        while any(starter.poll() is None for starter in self._starters.values()) and time.monotonic() < ends:
            time.sleep(0.02)

    def _is_due(self, host: str, now: float) -> bool:
        if host not in self._started_at:
            return True
        starter = self._starters.get(host)
        return starter is not None and starter.poll() is not None and now > self._started_at[host] + RETRY_S

    def _agent(self, *host: str) -> list[str]:
        arguments = [str(self._folder.absolute()), self._control_address, *host]
        return ["env", f"PYTHONPATH={CODE}", sys.executable, "-m", "syncline.live.host_agent", *arguments]

    def _command(self, host: str) -> list[str]:
        runner = self._runner
        if runner.start == "command":
            return [*shlex.split(runner.start_command.replace("{host}", host)), *self._agent(host)]
        timeout = f"ConnectTimeout={max(1, int(min(HANDSHAKE_S, runner.start_timeout_s / 2)))}"
        options = [*runner.start_options, "-o", "BatchMode=yes", "-o", timeout]
        return ["ssh", *options, host, shlex.join(self._agent(host))]

    def _srun(self, hosts: list[str]) -> list[str]:
        nodes = [f"--nodes={len(hosts)}", "--ntasks-per-node=1", f"--nodelist={','.join(hosts)}"]
        stay = ["--cpu-bind=none", "--no-kill", "--kill-on-bad-exit=0", "--wait=0"]
        return ["srun", *self._runner.start_options, *nodes, *stay, *self._agent()]

    def _spawn(self, command: list[str], host: str) -> "subprocess.Popen[bytes]":
        with self._output_of(host).open("wb") as output:
            try:
                return subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
            except OSError as error:
                raise ConfigError(f"runner.start={self._runner.start}: {command[0]}: {error.strerror}") from None

    def _output_of(self, host: str) -> Path:
        return self._folder / "log" / f"agent-{host}.txt"


def allocated_hosts(runner: MultinodeConfig) -> list[str]:
    """The hosts of the Slurm allocation that this process runs in, as many as the config asks for.

    Raises:
        ConfigError: there is none, or it is too small.
    """
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if runner.start != "srun" or not nodes:
        raise ConfigError("runner.hosts must name the hosts; only start=srun inside a Slurm allocation knows them")
    if runner.nodes is None:
        raise ConfigError("runner.nodes must say how many hosts of the allocation are taken")
    command = ["scontrol", "show", "hostnames", nodes]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    if len(names) < runner.nodes:
        raise ConfigError(f"runner.nodes must be at most {len(names)}, the allocation's; got {runner.nodes}")
    return names[: runner.nodes]
