"""The control connections between the coordinator of a run and its processes.

A process reads from its record what the run is. It first synchronises its clock with the coordinator's, then says
hello; see wire/control_messages.py for the rest.
"""

import contextlib
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import msgspec

import syncline
from syncline.config import RunConfig, from_plain
from syncline.live.node.process import CONTROL_LOST, ControlLost, Job
from syncline.live.node.ranks import Ranks
from syncline.live.wire.clock import answer_clock, measure_clock
from syncline.live.wire.control_messages import ControlMessage, Hello, decode, encode
from syncline.live.wire.frames import receive_json, send_json
from syncline.live.wire.handshake import Listener, connect
from syncline.live.wire.sockets import WireError, address_of, listen
from syncline.records.store import read_run_config


@dataclass(frozen=True, slots=True)
class Lost:
    why: str


@dataclass(eq=False)
class Peer:
    """A process of the run, as the coordinator sees it."""

    sock: socket.socket
    hello: Hello
    is_done: bool = False  # it has nothing left to do

    def send(self, message: ControlMessage) -> None:
        with contextlib.suppress(OSError):  # the reading thread reports the loss
            send_json(self.sock, encode(message))

    def __str__(self) -> str:
        return f"{self.hello.role} {self.hello.index}"


class ControlServer:
    """The coordinator's end: all messages of all processes in one queue, from each `Hello` first and `Lost` last.

    Args:
        dead_s: a process whose host does not answer for so long is lost.

    Raises:
        OSError: it cannot listen at this address.
    """

    def __init__(self, address: str, secret: bytes, dead_s: float | None = None) -> None:
        self._sock = listen(address, dead_s)
        self.address = address_of(self._sock)
        self.messages: queue.SimpleQueue[tuple[Peer, ControlMessage | Lost]] = queue.SimpleQueue()
        self._connections = set[socket.socket]()
        self._is_closed = False
        Listener(self._sock, secret, self._serve, "control server")

    def close(self) -> None:
        """End all connections, with which their processes end, and accept no more."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._sock.close()
        for sock in list(self._connections):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # its thread ends, and closes it

    def wait(self, timeout_s: float) -> None:
        """Until all connections have ended, but not longer."""
        ends = time.monotonic() + timeout_s
        while self._connections and time.monotonic() < ends:
            time.sleep(0.01)

    def _serve(self, sock: socket.socket) -> None:
        self._connections.add(sock)
        try:
            if not self._is_closed:  # else `close` may have come before it was added
                self._read(sock)
        finally:
            self._connections.discard(sock)
            sock.close()

    def _read(self, sock: socket.socket) -> None:
        """All messages of a connection."""
        try:
            while (first := receive_json(sock)).get("kind") == "clock":
                answer_clock(sock)
            hello = decode(first)
            if not isinstance(hello, Hello):
                raise WireError(f"{type(hello).__name__} where Hello was expected")
        except OSError:
            return
        peer = Peer(sock, hello)
        self.messages.put((peer, hello))
        why = read_messages(sock, lambda message: self.messages.put((peer, message)))
        self.messages.put((peer, Lost(why)))


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a process needs to know of its run."""

    config: RunConfig
    folder: Path  # of the record
    secret: bytes
    control_address: str  # of the coordinator's control server
    listen_at: str  # address for a shard, for the first member of a collective, or for a peer
    local_rank: int  # among the processes of this role and host; it decides which GPU a worker has
    local_size: int  # processes of this role and host
    resume: float | None  # number of the checkpoint to resume from; None: a fresh run
    num_present: int  # workers that are there when the run begins: the first ones

    @classmethod
    def of(cls, job: Job, role: str, index: int, ranks: Ranks) -> "RunContext":
        """That of a process of this attempt; its environment says which worker it is."""
        folder = Path(job.folder)
        config = from_plain(read_run_config(folder))
        variables = ranks.variables(config, role, index, job.control_address)
        os.environ.update(variables)
        return cls(
            config,
            folder,
            job.secret.encode(),
            job.control_address,
            ranks.listen_at(config, job.control_address),
            int(variables["LOCAL_RANK"]),
            int(variables["LOCAL_WORLD_SIZE"]),
            job.resume,
            job.num_present,
        )


class ControlClient:
    """A process's end, which ends the process when the coordinator is lost.

    Args:
        address: of the control server.
        hello: its `pid` and `clock_error_s` are filled in.
        on_message: called on a thread of its own with every message.
        dead_s: as in `dial`.

    Raises:
        ControlLost: nobody listens there, or the handshake failed.
    """

    def __init__(
        self,
        address: str,
        secret: bytes,
        hello: Hello,
        on_message: Callable[[ControlMessage], None],
        dead_s: float | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._on_message = on_message
        try:
            self._sock = connect(address, secret, dead_s)
            self.clock = measure_clock(self._sock)  # the coordinator's
        except OSError as error:
            raise ControlLost(f"the coordinator at {address}: {error.strerror or error}") from None
        self.send(msgspec.structs.replace(hello, pid=os.getpid(), clock_error_s=self.clock.error_s))
        threading.Thread(target=self._read, name="control client", daemon=True).start()

    @classmethod
    def of(cls, context: RunContext, hello: Hello, on_message: Callable[[ControlMessage], None]) -> "ControlClient":
        """That of a shard, a worker or a member."""
        address, dead_s = context.control_address, context.config.dead_s
        if dead_s is not None:  # there are several hosts
            hello = msgspec.structs.replace(hello, host=socket.gethostname(), versions=versions())
        return cls(address, context.secret, hello, on_message, dead_s)

    def send(self, message: ControlMessage) -> None:
        with self._lock, contextlib.suppress(OSError):
            send_json(self._sock, encode(message))

    def _read(self) -> None:
        read_messages(self._sock, self._on_message)
        os._exit(CONTROL_LOST)


@cache
def versions() -> dict[str, str]:
    """What must be the same on all hosts; torch is not imported for it."""
    code = sha256()
    for path in sorted(Path(syncline.__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    python = ".".join(map(str, sys.version_info[:2]))
    return {"syncline": code.hexdigest()[:12], "torch": metadata.version("torch"), "Python": python}


def read_messages(sock: socket.socket, on_message: Callable[[ControlMessage], None]) -> str:
    """Until the connection ends, or something arrives that is no message. Returns why it ended."""
    while True:
        try:
            message = decode(receive_json(sock))
        except OSError as error:
            return str(error)
        on_message(message)
