"""A shard's connections to its workers: two threads each, and an inbox for the thread that owns everything else.

    reader   receives pushes into gradients of a pool, and puts them into the inbox
    owner    takes from the inbox in order of arrival: strategy, parameters, snapshots, watchdog (server.py)
    writer   sends immutable versions; the owner counts who still reads them

After the handshake a worker says who it is (JSON) and synchronises its clock with the shard's; from then on it pushes,
and is answered with blocks.
"""

import contextlib
import queue
import socket
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from syncline.learning.compression import Compression, PullCompressor
from syncline.learning.parameters import Gradient, Version
from syncline.live.wire.clock import CLOCK_REQUESTS, answer_clock
from syncline.live.wire.control_messages import ControlMessage
from syncline.live.wire.frames import (
    DIRECT_BYTES,
    REPORT,
    Header,
    Kind,
    Reader,
    byte_view,
    receive_json,
    send,
    unpack_report,
)
from syncline.live.wire.handshake import Listener
from syncline.live.wire.sockets import WireError
from syncline.server.report import PushReport

# What the inbox holds, beside messages of the coordinator


@dataclass(frozen=True, slots=True)
class Connected:
    """A worker has connected and said who it is."""

    connection: "Connection"
    about: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pushed:
    connection: "Connection"
    report: PushReport
    gradient: "ReceivedGradient"


@dataclass(frozen=True, slots=True)
class Disconnected:
    connection: "Connection"
    why: str


@dataclass(frozen=True, slots=True)
class FrameSent:
    """A writer thread has sent a frame, and no longer reads its version, if it has one."""

    connection: "Connection"
    version: Version | None


@dataclass(frozen=True, slots=True)
class Call:
    """Another thread asks the owner to do this."""

    action: Callable[[], None]


InboxEvent = Connected | Pushed | Disconnected | FrameSent | Call | ControlMessage
Inbox = queue.SimpleQueue[InboxEvent]


@dataclass(eq=False, slots=True)
class ReceivedGradient(Gradient):
    """A gradient that came over a socket."""

    compressed: Tensor | None = None  # uint8; what `flat` is decoded from
    views: list[memoryview] = field(init=False)  # its bytes on the wire: gradient, buffers, versions

    def __post_init__(self) -> None:
        sent = self.flat if self.compressed is None else self.compressed
        self.views = [byte_view(tensor) for tensor in (sent, self.buffers, self.versions) if tensor is not None]


class GradientPool:
    """Gradients to receive into, which are used again and again.

    Args:
        size, num_buffers: elements of the block.
        count: allocated beforehand.
        num_versions: that come with each gradient.
        compression: of what comes; None if it comes as it is.
    """

    def __init__(
        self, size: int, num_buffers: int, count: int, num_versions: int = 0, compression: Compression | None = None
    ) -> None:
        self._size, self._num_buffers, self._num_versions = size, num_buffers, num_versions
        self._compression = compression
        self._free = list[Gradient]()
        self._free += [self._allocate() for _ in range(count)]

    def take(self) -> ReceivedGradient:
        try:
            gradient = self._free.pop()  # of a list that several threads may pop from and append to
        except IndexError:  # a worker pushes again before its last push is used: some strategies allow it
            return self._allocate()
        assert isinstance(gradient, ReceivedGradient)
        gradient.readers = 1
        return gradient

    def decode(self, gradient: ReceivedGradient) -> None:
        """What has been received becomes the gradient. Raises WireError: it stands for none."""
        if self._compression is not None and gradient.compressed is not None:
            try:
                self._compression.decode(gradient.compressed, gradient.flat)
            except ValueError as error:
                raise WireError(f"a compressed PUSH: {error}") from None

    def _allocate(self) -> ReceivedGradient:
        # zeros, not empty: the pages are mapped before the first push arrives
        versions = torch.zeros(self._num_versions, dtype=torch.int64) if self._num_versions else None
        size, scheme = self._size, self._compression
        compressed = None if scheme is None else torch.zeros(scheme.size(size), dtype=torch.uint8)
        flat, buffers = torch.zeros(size), torch.zeros(self._num_buffers)
        return ReceivedGradient(flat, buffers, self._free, 1, versions, compressed)


class Outbox:
    """What a writer is to send, in order; of successive blocks only the newest is kept, unless `keeps_all`."""

    def __init__(self, keeps_all: bool) -> None:
        self._keeps_all = keeps_all
        self._entries: deque[tuple[Header, Version | None] | None] = deque()
        self._changed = threading.Condition()

    def put(self, header: Header, version: Version | None) -> Version | None:
        """Returns the version that is replaced by this one, if there is one."""
        replaced = None
        with self._changed:
            last = self._entries[-1] if self._entries else None
            if version is not None and last is not None and last[1] is not None and not self._keeps_all:
                self._entries.pop()
                replaced = last[1]
            self._entries.append((header, version))
            self._changed.notify()
        return replaced

    def close(self) -> None:
        with self._changed:
            self._entries.append(None)
            self._changed.notify()

    def get(self) -> tuple[Header, Version | None] | None:
        """The next entry; None when the outbox is closed."""
        with self._changed:
            while not self._entries:
                self._changed.wait()
            return self._entries.popleft()


@dataclass(eq=False)
class Connection:
    sock: socket.socket
    worker: int
    pool: GradientPool
    inbox: Inbox
    pulls: PullCompressor | None = None  # of the blocks after the first; None: they are sent as they are
    pid: int = 0  # of the worker's process, as it says
    resumes: bool = False  # the worker was there when the checkpoint was written from which the run has resumed
    sending: int = 0  # frames in the outbox or being sent; the owner's
    _views: dict[Version, list[memoryview]] = field(default_factory=dict)  # versions are few, and used again and again

    def __post_init__(self) -> None:
        # A difference that is not sent would be missing in the later ones: a replay knows only what was granted.
        self._outbox = Outbox(keeps_all=self.pulls is not None)

    def start(self) -> None:
        threading.Thread(target=self._write, name=f"writer {self.worker}", daemon=True).start()

    def post(self, header: Header, version: Version | None, is_busy: bool = False) -> Version | None:
        """Send a frame, with a version or without payload.

        Args:
            is_busy: the worker may take long to read it, so that nobody but the writer may wait for that.

        Returns:
            The version that is free now: this one if it was sent, or one that it replaced. The others are released
            by `FrameSent`.
        """
        size = 0 if version is None else version.weights.nbytes + version.buffers.nbytes
        if self.sending == 0 and size <= DIRECT_BYTES and not is_busy:
            with contextlib.suppress(OSError):  # the reader notices it, too, and reports it
                self._send(header, version)
            return version
        replaced = self._outbox.put(header, version)
        if replaced is None:
            self.sending += 1
        return replaced

    def read(self) -> None:
        """Put pushes into the inbox until the connection ends, for whatever reason."""
        report_bytes = memoryview(bytearray(REPORT.size))
        try:
            reader = Reader(self.sock)
            while True:
                header = reader.next()
                if header.kind is not Kind.PUSH:
                    raise WireError(f"{header.kind.name} of worker {self.worker} where its PUSH was expected")
                gradient = self.pool.take()
                reader.payload(header, [*gradient.views, report_bytes])
                self.pool.decode(gradient)
                report = unpack_report(report_bytes)
                if report.worker != self.worker:
                    raise WireError(f"a PUSH of worker {report.worker} from worker {self.worker}")
                self.inbox.put(Pushed(self, report, gradient))
        except Exception as error:
            if not isinstance(error, OSError):  # out of memory, say
                traceback.print_exc()
            self._shut_down()  # or the writer could wait forever for a peer that does not read
            self.inbox.put(Disconnected(self, str(error)))

    def close(self) -> None:
        """End both threads, whatever they wait for."""
        self._outbox.close()
        self._shut_down()

    def _shut_down(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def _write(self) -> None:
        while (entry := self._outbox.get()) is not None:
            header, version = entry
            try:
                self._send(header, version)
            except OSError:
                pass  # the reader notices it, too, and reports it
            except Exception:  # out of memory, say: the worker must not wait for a block that never comes
                traceback.print_exc()
                self._shut_down()
            self.inbox.put(FrameSent(self, version))

    def _send(self, header: Header, version: Version | None) -> None:
        payload: list[memoryview] = []
        if version is not None:
            known = self._views.get(version)
            payload = self._views[version] = known or [byte_view(version.weights), byte_view(version.buffers)]
            difference = None if self.pulls is None else self.pulls(version.weights, header.iteration - 1)
            if difference is not None:
                payload = [byte_view(difference), payload[1]]
        send(self.sock, header, payload)


def accept_workers(
    listener: socket.socket,
    secret: bytes,
    pool: GradientPool,
    inbox: Inbox,
    pulls: Callable[[int], PullCompressor | None] = lambda worker: None,
) -> Listener:
    """Accept the workers of a shard, until this socket is closed: those that know the secret and say who they are.

    Args:
        pulls: worker -> what compresses the blocks that it pulls; None: they are sent as they are.
    """

    def serve(sock: socket.socket) -> None:
        try:
            about = receive_json(sock)
            worker = about.get("worker")
            if type(worker) is not int:
                raise WireError("a hello without a worker")
            for _ in range(CLOCK_REQUESTS):
                receive_json(sock)
                answer_clock(sock)
            connection = Connection(sock, worker, pool, inbox, pulls(worker))
            connection.start()
            inbox.put(Connected(connection, about))
            connection.read()
        except OSError:
            pass
        finally:
            sock.close()

    return Listener(listener, secret, serve, "acceptor")
