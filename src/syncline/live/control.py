"""The control connections between the launcher of a run and its processes, or its agents on several hosts.

A process reads from its record what the run is. It first synchronises its clock with the launcher's, then says hello;
see messages.py for the rest.
"""

import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from syncline.config import RunConfig, from_plain
from syncline.live.clock import answer_clock, measure_clock
from syncline.live.frames import receive_json, send_json
from syncline.live.handshake import Listener, connect
from syncline.live.messages import Hello, Message, decode, encode
from syncline.live.process import CONTROL_LOST, Job
from syncline.live.transport import HANDSHAKE_S, Socket, Tls, WireError, address_of, listen
from syncline.records.store import read_run_config

LATE_FILES_S = 5.0  # for a shared file system to show what was written on another host


@dataclass(frozen=True, slots=True)
class Lost:
    why: str


@dataclass(eq=False)
class Peer:
    """A process of the run, as the launcher sees it."""

    sock: Socket
    hello: Hello
    is_done: bool = False  # it has nothing left to do

    def send(self, message: Message) -> None:
        with contextlib.suppress(OSError):  # the reading thread reports the loss
            send_json(self.sock, encode(message))

    def disconnect(self) -> None:
        """The reading thread ends, and reports the loss."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def __str__(self) -> str:
        return f"{self.hello.role} {self.hello.index}"


class ControlServer:
    """The launcher's end: all messages of all processes in one queue, from each `Hello` first and `Lost` last.

    Args:
        dead_s: a process whose host does not answer for so long is lost.

    Raises:
        OSError: it cannot listen at this address.
    """

    def __init__(self, address: str, secret: bytes, tls: Tls | None, dead_s: float | None = None) -> None:
        self._sock = listen(address, dead_s)
        self.address = address_of(self._sock)
        self.messages: queue.SimpleQueue[tuple[Peer, Message | Lost]] = queue.SimpleQueue()
        Listener(self._sock, secret, tls, self._serve, "control server")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._sock.close()

    def _serve(self, sock: Socket) -> None:
        try:
            while (first := receive_json(sock)).get("kind") == "clock":
                answer_clock(sock)
            hello = decode(first)
            if not isinstance(hello, Hello):
                raise WireError(f"{type(hello).__name__} where Hello was expected")
        except OSError:
            sock.close()
            return
        peer = Peer(sock, hello)
        self.messages.put((peer, hello))
        why = read_messages(sock, lambda message: self.messages.put((peer, message)))
        self.messages.put((peer, Lost(why)))
        sock.close()


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a process needs to know of its run."""

    config: RunConfig
    folder: Path  # of the record
    secret: bytes
    tls: Tls | None
    control_address: str  # of the launcher's control server
    listen_at: str  # address for a shard, or for the first member of a collective
    resume: float | None  # number of the checkpoint to resume from; None: a fresh run
    num_present: int  # workers that are there when the run begins: the first ones

    @classmethod
    def of(cls, job: Job) -> "RunContext":
        """That of a job's processes. Raises FileNotFoundError if the secret is not there."""
        folder = Path(job.folder)
        config, secret = from_plain(read_run_config(folder)), read_secret(folder / job.secret)
        tls = Tls.of(config.live.tls_cert, config.live.tls_key)
        return cls(config, folder, secret, tls, job.control_address, job.listen_at, job.resume, job.num_present)


def read_secret(path: Path) -> bytes:
    """A secret; a shared file system shows new files late. Raises FileNotFoundError if it is not there."""
    ends = time.monotonic() + LATE_FILES_S
    while not path.exists() and time.monotonic() < ends:
        time.sleep(0.2)
    return path.read_bytes()


class ControlClient:
    """A process's end.

    Args:
        address: of the control server.
        hello: its `pid` and `clock_error_s` are filled in.
        on_message: called on a thread of its own with every message.
        on_loss: likewise when the launcher is lost; the default ends the process.
        dead_s, timeout_s: as in `dial`.

    Raises:
        OSError: nobody listens there. WireError: the handshake failed.
    """

    def __init__(
        self,
        address: str,
        secret: bytes,
        tls: Tls | None,
        hello: Hello,
        on_message: Callable[[Message], None],
        on_loss: Callable[[], None] = lambda: os._exit(CONTROL_LOST),
        dead_s: float | None = None,
        timeout_s: float = HANDSHAKE_S,
    ) -> None:
        self._sock = connect(address, secret, tls, dead_s, timeout_s)
        self._lock = threading.Lock()
        self._on_message, self._on_loss = on_message, on_loss
        self.clock = measure_clock(self._sock)  # the launcher's
        self.send(msgspec.structs.replace(hello, pid=os.getpid(), clock_error_s=self.clock.error_s))
        threading.Thread(target=self._read, name="control client", daemon=True).start()

    @classmethod
    def of(cls, context: RunContext, hello: Hello, on_message: Callable[[Message], None]) -> "ControlClient":
        """That of a shard, a worker or a member."""
        address, dead_s = context.control_address, context.config.dead_s
        return cls(address, context.secret, context.tls, hello, on_message, dead_s=dead_s)

    def send(self, message: Message) -> None:
        with self._lock, contextlib.suppress(OSError):
            send_json(self._sock, encode(message))

    def _read(self) -> None:
        read_messages(self._sock, self._on_message)
        self._on_loss()


def read_messages(sock: Socket, on_message: Callable[[Message], None]) -> str:
    """Until the connection ends, or something arrives that is no message. Returns why it ended."""
    while True:
        try:
            message = decode(receive_json(sock))
        except OSError as error:
            return str(error)
        on_message(message)
