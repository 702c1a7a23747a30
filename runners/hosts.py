"""Several hosts, an agent (syncline/live/agent.py) on each, which are started by ssh, by Slurm, or by hand.

What each process is, and on which host, is decided here. The agents stay from the first start to the end, over all
restarts of the run; one that was cut off comes back by itself.
"""

import os
import queue
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import syncline
from runners.agents import RunFailed, processes
from runners.display import say
from syncline.config import ConfigError, MultinodeConfig, RunConfig
from syncline.config.placement import places
from syncline.live.agent import versions
from syncline.live.control import ControlServer, Message, Peer
from syncline.live.interfaces import address_towards
from syncline.live.process import Job
from syncline.live.transport import HANDSHAKE_S, Tls
from syncline.live.wire import make_secret

CODE = Path(syncline.__file__).parents[1]  # on every host, since its file system is shared
TRY_AGAIN_S = 5.0  # to start an agent, while a host is waited for that was there before
END_S = 5.0  # for agents to end what they started, and then themselves


class Hosts:
    """All hosts of a run.

    Raises:
        ConfigError: no hosts are given, or this one has no such address. InterfaceError: their names are unknown here.
    """

    def __init__(self, config: RunConfig, folder: Path) -> None:
        runner = config.runner
        assert isinstance(runner, MultinodeConfig)
        self._config, self._runner, self._folder = config, runner, folder
        self.names = names = runner.hosts or _allocated(runner)
        self._has_server = config.strategy.has_server
        num_shards = config.cluster.shards if self._has_server else 0
        self._places = dict(zip(names, places(runner, config.cluster.workers, num_shards), strict=True))
        self.listen = f"tcp:{runner.address or address_towards(names)}:{runner.ports or 0}"
        tls = Tls(runner.tls_cert, runner.tls_key) if runner.tls_cert else None
        self._secret = folder / "secret-agents"
        secret = make_secret(self._secret)
        try:
            self._headquarters = ControlServer(self.listen, secret, tls, runner.leave_s)
        except OSError as error:
            raise ConfigError(f"runner.address: cannot listen at {self.listen} here ({error.strerror})") from None
        self._agents: dict[str, Peer] = {}  # by host, who is there
        self._starters: dict[str, subprocess.Popen[bytes]] = {}  # what starts an agent, by host
        self._tried: dict[str, float] = {}  # when it was started last, monotonic
        self._listening: dict[str, str] = {}  # by host, the address at which it can be reached
        self._is_begun = False  # every host was there once
        self._begins: dict[str, Message] = {}  # by host, what it was last told to start
        self._own = versions()

    def prepare(self) -> None:
        ends = time.monotonic() + self._runner.start_timeout_s
        self._listening.clear()
        self._begins.clear()
        for name, agent in self._agents.items():
            self._ask_to_listen(name, agent)
        self._start_agents()
        while missing := [name for name in self.names if name not in self._listening]:
            for host, kind, message in self._heard(0.1):
                if kind == "hello":
                    self._ask_to_listen(host, self._agents[host])
                elif kind == "listening" and "why" in message:
                    raise RunFailed(f"host {host}: {message['why']}")
                elif kind == "listening":
                    self._listening[host] = message["address"]
            late = time.monotonic() > ends
            for name in missing:
                said = "" if name in self._agents else self._why_not(name)
                if said and (late or not self._is_begun):
                    raise RunFailed(said)
                if late:
                    raise RunFailed(self._not_there(name))
            if self._is_begun:
                self._start_agents()
        self._is_begun = True
        self._reach_each_other()

    def start(self, job: Job) -> None:
        for name, place in self._places.items():
            own = processes(place.shards, place.workers, self._has_server)
            self._begins[name] = {"job": asdict(replace(job, processes=own))}
            self._agents[name].tell("start", **self._begins[name])

    def check(self) -> str | None:
        for host, kind, message in self._heard(0.0):
            if kind == "hello":
                say(f"host {host} is there again")
                self._agents[host].tell("start", **self._begins[host])
            elif kind == "lost":
                if not self._config.strategy.elastic or self._places[host].shards:
                    return f"host {host} was lost"
                workers = ", ".join(map(str, self._places[host].workers))
                say(f"host {host} was lost, and with it worker {workers}; the others go on")
            elif kind == "ended" and message["why"]:
                return f"host {host}: {message['why']}"
        return None

    def end(self, patience_s: float) -> None:
        ends = time.monotonic() + patience_s
        running = set(self._agents)
        while running and time.monotonic() < ends:
            running -= {host for host, kind, _ in self._heard(0.05) if kind in ("ended", "lost")}
        running = set(self._agents)
        for agent in self._agents.values():
            agent.tell("end")
        ends = time.monotonic() + END_S
        while running and time.monotonic() < ends:
            heard = self._heard(0.05)
            running -= {host for host, kind, message in heard if kind == "lost" or message.get("asked")}

    def close(self) -> None:
        for agent in self._agents.values():
            agent.tell("bye")
        ends = time.monotonic() + END_S
        while any(starter.poll() is None for starter in self._starters.values()) and time.monotonic() < ends:
            time.sleep(0.02)
        for starter in self._starters.values():
            starter.terminate()
            starter.wait()
        for agent in self._agents.values():
            agent.hang_up()
        self._headquarters.close()
        self._secret.unlink(missing_ok=True)

    def where(self, role: str, index: int) -> str:
        for name, place in self._places.items():
            if index in (place.shards if role == "shard" else place.workers):
                return f" on host {name}"
        return ""

    def _reach_each_other(self) -> None:
        """Every host those that it will need: all in a collective, the shards' where there are any.

        Raises:
            RunFailed: one cannot; the message names both, the port and why.
        """
        timeout_s = min(HANDSHAKE_S, self._runner.start_timeout_s / 2)
        waiting = set()
        for name in self.names:
            needed = [other for other in self.names if other != name and self._is_needed(name, other)]
            if needed:
                addresses = {other: self._listening[other] for other in needed}
                self._agents[name].tell("reach", addresses=addresses, timeout_s=timeout_s)
                waiting.add(name)
        ends = time.monotonic() + timeout_s + HANDSHAKE_S
        while waiting:
            for host, kind, message in self._heard(0.1):
                if kind == "lost":
                    raise RunFailed(f"host {host} was lost while it tried to reach the others")
                if kind == "reached":
                    waiting.discard(host)
                    for other, why in message["failures"].items():
                        place = self._listening[other].removeprefix("tcp:")
                        raise RunFailed(f"host {host} cannot reach host {other} at {place} ({why})")
            if time.monotonic() > ends:
                raise RunFailed(f"host {min(waiting)} does not say whether it can reach the others")

    def _is_needed(self, name: str, other: str) -> bool:
        return not self._has_server or bool(self._places[name].workers and self._places[other].shards)

    def _ask_to_listen(self, host: str, agent: Peer) -> None:
        agent.tell("listen", folder=str(Path.cwd()))

    def _heard(self, timeout_s: float) -> list[tuple[str, str, Message]]:
        """What agents have said: host, kind, message; wait so long for the first.

        Raises:
            RunFailed: a host does not fit.
        """
        heard = list[tuple[str, str, Message]]()
        with suppress(queue.Empty):
            while True:
                peer, message = self._headquarters.messages.get(timeout=0.0 if heard else timeout_s)
                host, kind = peer.about.get("host", ""), message["kind"]
                if kind == "hello":
                    self._met(host, peer)
                elif self._agents.get(host) is not peer:
                    continue  # another one took its place
                elif kind == "lost":
                    del self._agents[host]
                    self._listening.pop(host, None)
                heard.append((host, kind, message))
        return heard

    def _met(self, host: str, peer: Peer) -> None:
        if host not in self._places:
            raise RunFailed(f"an agent came from host {host!r}, which is none of {', '.join(self.names)}")
        theirs = peer.about.get("versions", {})
        for name, version in self._own.items():
            if theirs.get(name) != version:
                raise RunFailed(
                    f"host {host} has {name} {theirs.get(name)}, the launcher {version}; they must be alike"
                )
        old = self._agents.get(host)
        if old is not None:
            old.hang_up()
        self._agents[host] = peer

    # Starting agents

    def _start_agents(self) -> None:
        """On every host that has none, unless that was tried a moment ago."""
        now = time.monotonic()
        missing = [name for name in self.names if name not in self._agents and self._may_try(name, now)]
        if not missing:
            return
        self._tried |= dict.fromkeys(missing, now)
        if self._runner.start == "print":
            for name in missing:
                say(f"on {name}: {shlex.join(self._agent(name))}")
        elif self._runner.start == "srun":
            starter = self._spawn(self._srun(missing), missing[0])
            self._starters |= dict.fromkeys(missing, starter)
        else:
            for name in missing:
                self._starters[name] = self._spawn(self._command(name), name)

    def _may_try(self, name: str, now: float) -> bool:
        if name not in self._tried:
            return True
        starter = self._starters.get(name)
        return starter is not None and starter.poll() is not None and now > self._tried[name] + TRY_AGAIN_S

    def _agent(self, *host: str) -> list[str]:
        words = [str(self._folder.absolute()), self._headquarters.address, *host]
        return ["env", f"PYTHONPATH={CODE}", sys.executable, "-m", "syncline.live.agent", *words]

    def _command(self, name: str) -> list[str]:
        runner = self._runner
        if runner.start == "command":
            return [*shlex.split(runner.start_command.replace("{host}", name)), *self._agent(name)]
        wait = f"ConnectTimeout={max(1, int(min(HANDSHAKE_S, runner.start_timeout_s / 2)))}"
        options = [*runner.start_options, "-o", "BatchMode=yes", "-o", wait]
        return ["ssh", *options, name, shlex.join(self._agent(name))]

    def _srun(self, names: list[str]) -> list[str]:
        nodes = [f"--nodes={len(names)}", "--ntasks-per-node=1", f"--nodelist={','.join(names)}"]
        stay = ["--cpu-bind=none", "--no-kill", "--kill-on-bad-exit=0", "--wait=0"]
        return ["srun", *self._runner.start_options, *nodes, *stay, *self._agent()]

    def _spawn(self, command: list[str], name: str) -> "subprocess.Popen[bytes]":
        with self._said_by(name).open("wb") as output:
            try:
                return subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
            except OSError as error:
                raise ConfigError(f"runner.start={self._runner.start}: {command[0]}: {error.strerror}") from None

    def _said_by(self, name: str) -> Path:
        return self._folder / "log" / f"agent-{name}.txt"

    def _why_not(self, name: str) -> str:
        """Why an agent did not start; empty while it may still."""
        starter = self._starters.get(name)
        if starter is None:
            return ""
        first = next(host for host, each in self._starters.items() if each is starter)  # whose output it shares
        lines = [line for line in self._said_by(first).read_text(errors="replace").splitlines() if line.strip()]
        own = [line for line in lines if line.startswith(f"host {name}: ")]
        if own:
            return own[0]
        code = starter.poll()
        if code is None:
            return ""
        said = next((line for line in lines if "error" in line), lines[0] if lines else f"exit code {code}")
        return f"host {name}: its agent did not start: {said}"

    def _not_there(self, name: str) -> str:
        where = self._headquarters.address.removeprefix("tcp:")
        came = "does not answer" if name in self._agents else f"did not come to {where}"
        return f"host {name}: its agent {came} within {self._runner.start_timeout_s:g} s"


def _allocated(runner: MultinodeConfig) -> list[str]:
    """The hosts of the Slurm allocation that this process runs in, as many as are asked for.

    Raises:
        ConfigError: there is none, or it is too small.
    """
    nodes: Any = os.environ.get("SLURM_JOB_NODELIST")
    if runner.start != "srun" or not nodes:
        raise ConfigError("runner.hosts must name the hosts; only start=srun inside a Slurm allocation knows them")
    if runner.nodes is None:
        raise ConfigError("runner.nodes must say how many hosts of the allocation are taken")
    command = ["scontrol", "show", "hostnames", nodes]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    if len(names) < runner.nodes:
        raise ConfigError(f"runner.nodes must be at most {len(names)}, the allocation's; got {runner.nodes}")
    return names[: runner.nodes]
