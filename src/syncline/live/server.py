"""A shard's process: connections with a reader and a writer thread each, and one thread that owns everything else.

    reader   receives pushes into gradients of a pool, puts them into the inbox
    owner    takes from the inbox in order of arrival: engine, strategy, parameters, snapshots, watchdog
    writer   sends immutable versions; the owner counts who still reads them

A worker proves the secret, then says who it is (JSON) and hears the shard's clock a few times to find the offset of its
own; from then on it pushes, and is answered with blocks.
"""

import contextlib
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from syncline.learning.server import Gradient, Version
from syncline.live.engine import Engine
from syncline.live.transport import MAX_STRANGERS, Socket, Tls, WireError, accept
from syncline.live.wire import CLOCK_QUESTIONS, Frame, Kind, Reader, receive_json, send, tell_clock, welcome

TINY_BYTES = 1 << 16  # a block up to this size is sent by the owner itself: handing it over would take longer


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker has connected and said who it is."""

    connection: "Connection"
    about: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pushed:
    connection: "Connection"
    frame: Frame
    gradient: "Received"


@dataclass(frozen=True, slots=True)
class Lost:
    connection: "Connection"
    why: str


@dataclass(frozen=True, slots=True)
class Free:
    """A reader of this version (a writer thread, a file) is done with it."""

    version: Version
    connection: "Connection | None" = None


@dataclass(frozen=True, slots=True)
class Call:
    """Another thread wants this done by the owner."""

    action: Callable[[], None]


Inbox = queue.SimpleQueue[Hello | Pushed | Lost | Free | Call]


@dataclass(eq=False, slots=True)
class Received(Gradient):
    """A gradient that came over a socket."""

    place: list[memoryview] = field(init=False)  # its bytes: gradient, buffers, versions

    def __post_init__(self) -> None:
        parts = (self.flat, self.buffers, self.versions)
        self.place = [view(part) for part in parts if part is not None]


class GradientPool:
    """Gradients to receive into: made once, used for ever.

    Args:
        size, num_buffers: elements of the block.
        count: made beforehand.
        num_versions: that come with each.
    """

    def __init__(self, size: int, num_buffers: int, count: int, num_versions: int = 0) -> None:
        self._size, self._num_buffers, self._num_versions = size, num_buffers, num_versions
        self._free = [self._make() for _ in range(count)]

    def take(self) -> Received:
        try:
            return self._free.pop()
        except IndexError:  # a worker pushes again before its last push is used: some strategies allow it
            return self._make()

    def give(self, gradient: Received) -> None:
        self._free.append(gradient)

    def _make(self) -> Received:
        # zeros, not empty: the memory is there before the first push comes
        versions = torch.zeros(self._num_versions, dtype=torch.int64) if self._num_versions else None
        return Received(torch.zeros(self._size), torch.zeros(self._num_buffers), versions=versions)


def view(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU."""
    if not tensor.numel():
        return memoryview(b"")
    return memoryview(tensor.numpy()).cast("B")  # type: ignore[arg-type]  # numpy 2.4's stubs lack __buffer__ here


class Outbox:
    """What a writer is to send, in order; but of blocks that wait to be sent only the newest is kept."""

    def __init__(self) -> None:
        self._entries: deque[tuple[Frame, Version | None] | None] = deque()
        self._changed = threading.Condition()

    def put(self, frame: Frame, version: Version | None) -> Version | None:
        """Returns the version that need not be sent any more, if there is one."""
        replaced = None
        with self._changed:
            last = self._entries[-1] if self._entries else None
            if version is not None and last is not None and last[1] is not None:
                self._entries.pop()
                replaced = last[1]
            self._entries.append((frame, version))
            self._changed.notify()
        return replaced

    def close(self) -> None:
        with self._changed:
            self._entries.append(None)
            self._changed.notify()

    def get(self) -> tuple[Frame, Version | None] | None:
        """The next; None when it is closed."""
        with self._changed:
            while not self._entries:
                self._changed.wait()
            return self._entries.popleft()


@dataclass(eq=False)
class Connection:
    """One worker's connection."""

    sock: Socket
    worker: int
    pool: GradientPool
    inbox: Inbox
    sending: int = 0  # blocks given to the writer and not sent yet; the owner's
    _places: dict[Version, list[memoryview]] = field(default_factory=dict)  # versions are few, and used again and again
    _outbox: Outbox = field(default_factory=Outbox)

    def start(self) -> None:
        threading.Thread(target=self._write, name=f"writer {self.worker}", daemon=True).start()

    def post(self, frame: Frame, version: Version | None, is_busy: bool = False) -> Version | None:
        """Send a frame, with a version or nothing.

        Args:
            is_busy: the worker may be long in reading it, so that nobody but the writer may wait for that.

        Returns:
            The version that is free at once: this one if it is sent, or one that it took the place of. Of all others
            `Free` tells.
        """
        size = 0 if version is None else version.weights.nbytes + version.buffers.nbytes
        if self.sending == 0 and size <= TINY_BYTES and not is_busy:
            with contextlib.suppress(OSError):  # the reader sees it, too, and says so
                self._send(frame, version)
            return version
        replaced = self._outbox.put(frame, version)
        if version is not None and replaced is None:
            self.sending += 1
        return replaced

    def read(self) -> None:
        """Until the connection ends: pushes into the inbox."""
        try:
            reader = Reader(self.sock)
            while True:
                frame = reader.next()
                if frame.kind is not Kind.PUSH or frame.worker != self.worker:
                    raise WireError(f"{frame.kind.name} of worker {frame.worker} where its PUSH was expected")
                gradient = self.pool.take()
                reader.payload(frame, gradient.place)
                self.inbox.put(Pushed(self, frame, gradient))
        except OSError as error:
            with contextlib.suppress(OSError):  # or the writer may wait for ever for a peer that reads nothing
                self.sock.shutdown(socket.SHUT_RDWR)
            self.inbox.put(Lost(self, str(error)))

    def close(self) -> None:
        """End both threads, whatever they wait for."""
        self._outbox.close()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def _write(self) -> None:
        while (entry := self._outbox.get()) is not None:
            frame, version = entry
            with contextlib.suppress(OSError):
                self._send(frame, version)
            if version is not None:
                self.inbox.put(Free(version, self))

    def _send(self, frame: Frame, version: Version | None) -> None:
        place: list[memoryview] = []
        if version is not None:
            known = self._places.get(version)
            place = self._places[version] = known or [view(version.weights), view(version.buffers)]
        send(self.sock, frame, place)


class Acceptor:
    """Lets in who knows the secret and says sensibly who it is; nobody else costs more than a thread for a while."""

    def __init__(
        self, listener: socket.socket, secret: bytes, tls: Tls | None, pool: GradientPool, inbox: Inbox
    ) -> None:
        self._listener = listener
        self._secret = secret
        self._tls = tls
        self._pool = pool
        self._inbox = inbox
        self._strangers = threading.Semaphore(MAX_STRANGERS)
        self.refused = 0  # connections that were turned away

    def open(self) -> None:
        threading.Thread(target=self._accept, name="door", daemon=True).start()

    def _accept(self) -> None:
        while (sock := accept(self._listener)) is not None:
            self._strangers.acquire()
            threading.Thread(target=self._meet, args=(sock,), name="connection", daemon=True).start()

    def _meet(self, raw: socket.socket) -> None:
        try:
            sock = welcome(raw, self._secret, self._tls)
        except OSError:
            self.refused += 1
            return
        finally:
            self._strangers.release()
        try:
            about = receive_json(sock)
            worker = about.get("worker")
            if type(worker) is not int:
                raise WireError("a hello without a worker")
            for _ in range(CLOCK_QUESTIONS):
                receive_json(sock)
                tell_clock(sock)
            connection = Connection(sock, worker, self._pool, self._inbox)
            connection.start()
            self._inbox.put(Hello(connection, about))
            connection.read()
        except OSError:
            pass
        finally:
            sock.close()


class ReplySender:
    """Carries out what the engine asks for: grants to connections, gradients back to the pool."""

    def __init__(self, pool: GradientPool, warn: Callable[[str], None]) -> None:
        self._pool = pool
        self.warn = warn
        self.connections: dict[int, Connection] = {}
        self.engine: Engine  # set when the engine is there
        self.last_event: dict[int, tuple[float, str]] = {}  # worker -> (monotonic, what), for the watchdog
        self.zero_s = 0.0  # the run's beginning on our monotonic clock

    def grant(self, worker: int, version: int, iteration: int, is_busy: bool) -> None:
        shard = self.engine.shard
        connection = self.connections.get(worker)
        if connection is None:
            return  # it was lost a moment ago, and its leaving waits in the inbox
        frame = Frame(Kind.BLOCK, worker, iteration, version, started_at=self.zero_s)
        free = connection.post(frame, shard.pin(), is_busy)
        if free is not None:
            shard.unpin(free)
        # Who has not even read the last block is as silent as before.
        if not is_busy or (free is None and self.engine.begins_anew(worker)):
            self.last_event[worker] = (time.monotonic(), "granted")

    def repeat(self, worker: int, version: int, iteration: int) -> None:
        self.last_event[worker] = (time.monotonic(), "told to repeat")
        connection = self.connections.get(worker)
        if connection is not None:
            connection.post(Frame(Kind.REPEAT, worker, iteration, version), None)

    def release(self, gradient: Gradient) -> None:
        assert isinstance(gradient, Received)
        self._pool.give(gradient)

    def stop_all(self) -> None:
        """Tell every worker that the run is over here."""
        for worker, connection in self.connections.items():
            connection.post(Frame(Kind.STOP, worker), None, is_busy=True)
