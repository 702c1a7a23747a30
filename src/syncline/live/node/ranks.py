"""The ranks of one node of a torchrun job: which processes of the run they are, and how they find the run.

torchrun's environment says who a rank is. Its store says where the run is: anybody who can reach the store may write to
it, so that it holds the name of the record and of the attempt alone. All else is in files of the record.
"""

import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from syncline.config import ConfigError, LocalConfig, MultinodeConfig, RunConfig
from syncline.live.wire.interfaces import InterfaceError, address_on, address_towards, interface_of, interfaces

KEY = "syncline/run"
STORE_S = 2.0  # for the store to answer
NAMES = re.compile(r"((?=.*[^.])[^/\0]{1,200})/(attempt-(?:none|[0-9a-f]{16}\.json))")  # of folder and attempt


@dataclass(frozen=True)
class Ranks:
    """What torchrun's environment says of the ranks of one node."""

    first: int  # of this node
    local_size: int  # ranks of this node
    world_size: int
    num_nodes: int
    master_address: str
    master_port: int  # of the store
    num_restarts: int  # of this node's ranks by torchrun

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> "Ranks":
        """Raises ConfigError if the rendezvous gives the ranks no store."""
        if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            rule = "torchrun's rendezvous must give its ranks a store: static (the default) or c10d with its own store"
            raise ConfigError(f"{rule}, got another one")
        names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "GROUP_WORLD_SIZE")
        rank, local_rank, local_size, world_size, num_nodes = (int(environment[name]) for name in names)
        address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
        restarts = int(environment["TORCHELASTIC_RESTART_COUNT"])
        return cls(rank - local_rank, local_size, world_size, num_nodes, address, port, restarts)

    def check(self, config: RunConfig) -> None:
        """Check that the run fits the job.

        Raises:
            ConfigError: it does not; the message names the options that do.
        """
        runner = config.runner
        if isinstance(runner, MultinodeConfig):
            rule = f"runner.nodes must be {self.num_nodes}, as many as torchrun's nodes, or null"
            if runner.nodes != self.num_nodes:
                raise ConfigError(f"{rule}, got {runner.nodes}")
        elif not isinstance(runner, LocalConfig) or self.num_nodes > 1:
            allowed = "local" if self.num_nodes == 1 else "multinode"
            raise ConfigError(f"runner must be {allowed}, or left out, inside torchrun: got {runner.name}")
        needed, workers = config.num_ranks, config.cluster.workers
        if needed != self.world_size:
            what = f"cluster.workers={workers}" + (f" and {needed - workers} shards of their own" * (needed != workers))
            rule = f"{what} must have {needed} ranks of torchrun (--nproc-per-node on all nodes)"
            raise ConfigError(f"{rule}, got {self.world_size}")

    def processes(self, config: RunConfig) -> list[tuple[str, int]]:
        """Role and index of the processes of this node: rank i is worker i, after the ranks of shards of their own."""
        ranks = range(self.first, self.first + self.local_size)
        if not config.strategy.has_server:
            return [("member" if config.strategy.neighbours is None else "peer", rank) for rank in ranks]
        shards, apart = range(config.cluster.shards), config.num_ranks - config.cluster.workers
        place = {shard: shard if apart else shard * self.world_size // len(shards) for shard in shards}
        own = [("shard", shard) for shard in shards if place[shard] in ranks]
        return [*own, *(("worker", rank - apart) for rank in ranks if rank >= apart)]

    def listen_at(self, config: RunConfig, control_address: str = "") -> str:
        """Where a process of this node listens: a shard, the first member of a collective, a peer, the coordinator.

        Args:
            control_address: of the coordinator; empty: it is this process.

        Raises:
            InterfaceError: this host has no such interface, or the coordinator none that other hosts can reach.
        """
        runner = config.runner
        if isinstance(runner, LocalConfig):
            is_unix = runner.transport != "tcp" and (config.strategy.collective is None or not control_address)
            return "unix:" if is_unix else "tcp:127.0.0.1:0"
        assert isinstance(runner, MultinodeConfig)
        return f"tcp:{self.own_address(config, control_address)}:{runner.ports or 0}"

    def own_address(self, config: RunConfig, control_address: str = "") -> str:
        """This host's address for the others of the run; arguments and errors as of `listen_at`."""
        runner = config.runner
        if not isinstance(runner, MultinodeConfig):
            return "127.0.0.1"
        if given := address_on(runner.interface):
            return given
        host = control_address.removeprefix("tcp:").rpartition(":")[0] or self.master_address
        address = address_towards(host)
        is_meant = host == "localhost" or host.startswith("127.")
        if control_address or is_meant or not address.startswith("127."):
            return address
        others = [each for each in interfaces().values() if not each.startswith("127.")]
        if len(others) == 1:  # many systems give a host's own name the address 127.0.1.1
            return others[0]
        raise InterfaceError(f"{host} is {address} here; runner.interface must be that of {' or '.join(others)}")

    def variables(self, config: RunConfig, role: str, index: int, control_address: str) -> dict[str, str]:
        """What the environment of a process says of it, as torchrun does; ranks are those of the workers."""
        alike = [each for name, each in self.processes(config) if name == role]
        numbers = {"RANK": index, "LOCAL_RANK": alike.index(index), "LOCAL_WORLD_SIZE": len(alike)}
        found = {name: str(number) for name, number in (numbers | {"WORLD_SIZE": config.cluster.workers}).items()}
        interface = interface_of(self.own_address(config, control_address)) if self.num_nodes > 1 else None
        if interface:
            found |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}
        return found


@dataclass(frozen=True, slots=True)
class Place:
    """Where the coordinator of a run is: on the first node of a job, whose keeper has started it."""

    ranks: Ranks
    words: list[str]  # of torchrun's command line for the run
    line: socket.socket  # to the evaluator


class Announcement:
    """The name of the record's folder and of the attempt under way, in torchrun's store."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._answered_at = time.monotonic()

    def set(self, folder: str, job: str = "attempt-none") -> None:
        """Tell all ranks where the run is; without an attempt, one that has ended."""
        self._store.set(KEY, f"{folder}/{job}")

    def get(self) -> tuple[str, str] | None:
        """Names of folder and attempt; None: there is none yet, or the store does not answer."""
        try:
            text = self._store.get(KEY) if self._store.check([KEY]) else b""
        except RuntimeError:  # its host is lost
            self.__dict__.pop("_store", None)
            return None
        self._answered_at = time.monotonic()
        names = NAMES.fullmatch(text.decode(errors="replace"))
        return None if names is None else (names[1], names[2])

    @property
    def silent_s(self) -> float:
        """Since the store's last answer."""
        return time.monotonic() - self._answered_at

    @cached_property
    def _store(self):  # type: ignore[no-untyped-def]
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        timeout = timedelta(seconds=STORE_S)
        return TCPStore(self._ranks.master_address, self._ranks.master_port, is_master=False, timeout=timeout)
