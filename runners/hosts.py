"""The hosts of a run start its processes and end them: this host, or several with an agent on each.

This module decides which process runs on which host. Agents (syncline/live/host_agent.py) stay over all restarts of the
run; one that lost its connection reconnects by itself.
"""

import queue
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from runners.agent_starter import AgentStarter, allocated_hosts
from runners.display import say
from runners.failures import RunFailed
from syncline.config import ConfigError, LocalConfig, MultinodeConfig, RunConfig
from syncline.config.runners import places
from syncline.live import messages
from syncline.live.control import ControlServer, Lost, Peer
from syncline.live.handshake import make_secret
from syncline.live.host_agent import versions
from syncline.live.interfaces import address_towards
from syncline.live.process import Job
from syncline.live.supervisor import Supervisor
from syncline.live.transport import HANDSHAKE_S, Tls, default_address

END_S = 5.0  # for agents to end their processes, and then themselves


class LocalHost:
    """This host: its supervisor is a child of the launcher, and dies with it."""

    def __init__(self, config: RunConfig, supervisor: Supervisor) -> None:
        assert isinstance(config.runner, LocalConfig)
        # where the launcher listens for the processes
        self.listen_at = {"auto": default_address(), "unix": "unix:", "tcp": "tcp:127.0.0.1:0"}[config.runner.transport]
        has_server = config.strategy.has_server
        self._processes_listen_at = self.listen_at if has_server else "tcp:127.0.0.1:0"  # torch's store needs TCP
        shards = range(config.cluster.shards if has_server else 0)
        self._processes = list_processes(shards, range(config.cluster.workers), has_server)
        self._supervisor = supervisor
        supervisor.begin()

    def prepare(self) -> None:
        """Wait until every host is there, and can connect to those that it needs.

        Raises:
            RunFailed: one is not there within runner.start_timeout_s, or cannot connect; the message names it.
        """

    def start(self, job: Job) -> None:
        """Start the processes; each host learns which of them it starts, and where they listen."""
        self._supervisor.start(
            replace(job, listen_at=self._processes_listen_at, processes=present(self._processes, job))
        )

    def add(self, job: Job, before: int) -> None:
        """Start the workers that became present since there were `before` of them."""
        self._supervisor.add(replace(job, processes=present(self._processes, job, before)))

    def check(self) -> str | None:
        """Returns why the run cannot continue, if a host says so."""
        ended = self._supervisor.wait(0.0)
        return None if ended is None else ended.why or "all processes ended"

    def end(self, wait_s: float) -> None:
        """End all processes, whatever their state, after they had so long to end by themselves."""
        if self._supervisor.wait(wait_s) is None:
            self._supervisor.kill()
            self._supervisor.wait()

    def close(self) -> None:
        """The run is over on every host."""

    def where(self, role: str, index: int) -> str:
        """What follows a process's name in a message; empty on one host."""
        return ""


class RemoteHosts:
    """Several hosts; the methods are those of `LocalHost`.

    Raises:
        ConfigError: no hosts are given, or this one has no such address. InterfaceError: their names are unknown here.
    """

    def __init__(self, config: RunConfig, folder: Path) -> None:
        runner = config.runner
        assert isinstance(runner, MultinodeConfig)
        self._config, self._runner = config, runner
        self.names = names = runner.hosts or allocated_hosts(runner)
        self._has_server = config.strategy.has_server
        num_shards = config.cluster.shards if self._has_server else 0
        self._places = dict(zip(names, places(runner, config.cluster.workers, num_shards), strict=True))
        self.listen_at = f"tcp:{runner.address or address_towards(names)}:{runner.ports or 0}"
        self._secret = folder / "secret-agents"
        secret = make_secret(self._secret)
        try:
            tls = Tls.of(runner.tls_cert, runner.tls_key)
            self._server = ControlServer(self.listen_at, secret, tls, runner.dead_s)
        except OSError as error:
            raise ConfigError(f"runner.address: cannot listen at {self.listen_at} here ({error.strerror})") from None
        self._starter = AgentStarter(runner, folder, self._server.address)
        self._agents: dict[str, Peer] = {}  # by host
        self._listening: dict[str, str] = {}  # by host, the address to which others can connect
        self._started: dict[str, messages.Start] = {}  # by host, what its agent was last asked to start
        self._were_complete = False  # every host was there once
        self._own_versions = versions()

    def prepare(self) -> None:
        ends = time.monotonic() + self._runner.start_timeout_s
        self._listening.clear()
        self._started.clear()
        for agent in self._agents.values():
            agent.send(messages.Listen(str(Path.cwd())))
        self._start_agents()
        while missing := [name for name in self.names if name not in self._listening]:
            for host, message in self._receive(0.1):
                self._handle_while_preparing(host, message)
            is_late = time.monotonic() > ends
            for name in missing:
                error = "" if name in self._agents else self._starter.error_of(name)
                if error and (is_late or not self._were_complete):
                    raise RunFailed(error)
                if is_late:
                    address, limit_s = self._server.address.removeprefix("tcp:"), self._runner.start_timeout_s
                    what = "does not answer" if name in self._agents else f"did not connect to {address}"
                    raise RunFailed(f"host {name}: its agent {what} within {limit_s:g} s")
            if self._were_complete:
                self._start_agents()
        self._were_complete = True
        self._check_connections()

    def start(self, job: Job) -> None:
        for name, place in self._places.items():
            own = list_processes(place.shards, place.workers, self._has_server)
            self._started[name] = messages.Start(replace(job, processes=present(own, job)))
            self._agents[name].send(self._started[name])

    def add(self, job: Job, before: int) -> None:
        for name, place in self._places.items():
            own = list_processes((), place.workers, self._has_server)
            more = present(own, job, before)
            started = self._started[name].job
            self._started[name] = messages.Start(replace(started, processes=[*started.processes, *more]))
            if more and name in self._agents:
                self._agents[name].send(messages.Add(replace(started, processes=more)))

    def check(self) -> str | None:
        self._start_agents()  # of a host whose agent has died while the others continue
        for host, message in self._receive(0.0):
            match message:
                case messages.Hello():
                    say(f"host {host} is connected again")
                    self._agents[host].send(self._started[host])
                case Lost():
                    if not self._is_dispensable(host):
                        return f"host {host} was lost"
                    say(f"host {host} was lost, and with it worker {self._workers(host)}; the others continue")
                case messages.ProcessesEnded(why, lost=True) if self._is_dispensable(host):
                    say(f"host {host}: {why}, and with it worker {self._workers(host)}; the others continue")
                    self._agents[host].send(self._started[host])
                case messages.ProcessesEnded(why) if why:
                    return f"host {host}: {why}"
        return None

    def _is_dispensable(self, host: str) -> bool:
        """Whether the run goes on without the processes of this host."""
        return self._config.strategy.elastic and not self._places[host].shards

    def _workers(self, host: str) -> str:
        return ", ".join(map(str, self._places[host].workers))

    def end(self, wait_s: float) -> None:
        self._wait_for_ends(wait_s, were_requested=False)
        for agent in self._agents.values():
            agent.send(messages.End())
        self._wait_for_ends(END_S, were_requested=True)

    def _wait_for_ends(self, wait_s: float, were_requested: bool) -> None:
        """Wait so long for the processes of every host to end; `were_requested`: only an end on request counts."""
        started = {name for name, start in self._started.items() if start.job.processes}
        running, ends = set(self._agents) & started, time.monotonic() + wait_s
        while running and time.monotonic() < ends:
            for host, message in self._receive(0.05):
                match message:
                    case Lost():
                        running.discard(host)
                    case messages.ProcessesEnded() if message.was_requested or not were_requested:
                        running.discard(host)

    def close(self) -> None:
        for agent in self._agents.values():
            agent.send(messages.Signal.EXIT)
        self._starter.close(END_S)
        for agent in self._agents.values():
            agent.disconnect()
        self._server.close()
        self._secret.unlink(missing_ok=True)

    def where(self, role: str, index: int) -> str:
        for name, place in self._places.items():
            if index in (place.shards if role == "shard" else place.workers):
                return f" on host {name}"
        return ""

    def _start_agents(self) -> None:
        self._starter.start([name for name in self.names if name not in self._agents])

    def _handle_while_preparing(self, host: str, message: messages.Message | Lost) -> None:
        match message:
            case messages.Hello():
                self._agents[host].send(messages.Listen(str(Path.cwd())))
                if self._runner.start == "print":
                    say(f"host {host} is connected ({len(self._agents)} of {len(self.names)})")
            case messages.Listening(address, error):
                if error:
                    raise RunFailed(f"host {host}: {error}")
                self._listening[host] = address

    def _check_connections(self) -> None:
        """Every host tries to connect to those that it needs: all in a collective, else those with shards.

        Raises:
            RunFailed: one cannot; the message names both, the port and why.
        """
        timeout_s = min(HANDSHAKE_S, self._runner.start_timeout_s / 2)
        waiting = set()
        for name in self.names:
            addresses = {other: self._listening[other] for other in self.names if self._needs(name, other)}
            if addresses:
                self._agents[name].send(messages.TryConnect(addresses, timeout_s))
                waiting.add(name)
        ends = time.monotonic() + timeout_s + HANDSHAKE_S
        while waiting:
            for host, message in self._receive(0.1):
                if isinstance(message, Lost):
                    raise RunFailed(f"host {host} was lost while it tried to reach the others")
                if isinstance(message, messages.ConnectResults):
                    waiting.discard(host)
                    for other, why in message.failures.items():
                        address = self._listening[other].removeprefix("tcp:")
                        raise RunFailed(f"host {host} cannot reach host {other} at {address} ({why})")
            if time.monotonic() > ends:
                raise RunFailed(f"host {min(waiting)} does not say whether it can reach the others")

    def _needs(self, name: str, other: str) -> bool:
        """A process of the one host connects to one of the other."""
        if name == other:
            return False
        return not self._has_server or bool(self._places[name].workers and self._places[other].shards)

    def _receive(self, timeout_s: float) -> Iterator[tuple[str, messages.Message | Lost]]:
        """Messages of agents, with their host; wait so long for the first. `_agents` are those at the time of each.

        Raises:
            RunFailed: a host does not belong to the run, or has other versions.
        """
        with suppress(queue.Empty):
            while True:
                peer, message = self._server.messages.get(timeout=timeout_s)
                timeout_s = 0.0
                host = peer.hello.host
                if isinstance(message, messages.Hello):
                    self._connected(host, peer)
                if self._agents.get(host) is not peer:
                    continue  # another agent is there
                if isinstance(message, Lost):
                    del self._agents[host]
                    self._starter.lost(host)
                    self._listening.pop(host, None)
                yield host, message

    def _connected(self, host: str, peer: Peer) -> None:
        if host not in self._places:
            raise RunFailed(f"an agent came from host {host!r}, which is not among {', '.join(self.names)}")
        theirs = peer.hello.versions
        for name, version in self._own_versions.items():
            if theirs.get(name) != version:
                raise RunFailed(
                    f"host {host} has {name} {theirs.get(name)}, the launcher {version}; they must be the same"
                )
        old = self._agents.get(host)
        if old is not None and old.hello.pid != peer.hello.pid and self._runner.start != "print":
            peer.send(messages.Signal.EXIT)  # the other one came back by itself while this one was started
            return
        if old is not None:
            old.send(messages.Signal.EXIT)  # or both would reconnect in turns
            old.disconnect()
        self._agents[host] = peer


Hosts = LocalHost | RemoteHosts


def present(processes: Iterable[tuple[str, int]], job: Job, before: int = 0) -> list[tuple[str, int]]:
    """Those of the workers that are present, and of shards; with `before` only those of workers from this one on."""
    workers = range(before, job.num_present)
    return [(role, index) for role, index in processes if index in workers or (role == "shard" and not before)]


def list_processes(shards: Iterable[int], workers: Iterable[int], has_server: bool) -> list[tuple[str, int]]:
    """Role and index of the processes of one host."""
    role = "worker" if has_server else "member"
    return [*(("shard", shard) for shard in shards), *((role, worker) for worker in workers)]
