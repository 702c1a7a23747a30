"""The shards of a worker, played by the test over real connections."""

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from leaks import nothing_left

from syncline.learning.parameters import Version
from syncline.live.shard.connections import Connected, FrameSent, GradientPool, Pushed, accept_workers
from syncline.live.wire.frames import Header, Kind
from syncline.live.wire.sockets import address_of, listen
from syncline.live.worker.links import Links
from syncline.server.report import PushReport

SECRET = b"the run's own"
SIZE, BUFFERS = 6, 2
LONG_S = 60.0  # a delay that no test waits for


class FakeShard:
    """A shard's acceptor; the test sends what the shard would send."""

    def __init__(self, size: int, num_buffers: int, num_versions: int = 0) -> None:
        self.inbox = queue.SimpleQueue()
        self.size, self.num_buffers = size, num_buffers
        self.listener = listen("unix:")
        self.address = address_of(self.listener)
        pool = GradientPool(size, num_buffers, 1, num_versions)
        accept_workers(self.listener, SECRET, pool, self.inbox)
        self.pushes: list[Pushed] = []

    def accept(self) -> Connected:
        hello = self.inbox.get(timeout=20)
        self.connection = hello.connection
        return hello

    def block(self, version: int, iteration: int = 0, kind: Kind = Kind.BLOCK, resumes: bool = False) -> Version:
        """Send a version whose elements are its number."""
        state = Version(torch.full((self.size,), float(version)), torch.full((self.num_buffers,), float(version)))
        header = Header(kind, iteration=iteration, version=version, resumes=resumes)
        self.connection.post(header, state, is_busy=True)
        return state

    def half_a_block(self, version: int) -> Callable[[], None]:
        """Send the first half of such a version. Returns a function that sends the rest."""
        parts = [torch.full((size,), float(version)) for size in (self.size, self.num_buffers)]
        payload = torch.cat(parts).numpy().tobytes()
        header = Header(Kind.BLOCK, version=version, size=len(payload))
        middle = len(payload) // 2
        self.connection.sock.sendall(header.pack() + payload[:middle])
        return lambda: self.connection.sock.sendall(payload[middle:])

    def send(self, kind: Kind) -> None:
        self.connection.post(Header(kind), None, is_busy=True)

    def pushed(self) -> Pushed:
        """The next push."""
        while True:
            message = self.inbox.get(timeout=20)
            if isinstance(message, Pushed):
                self.pushes.append(message)
                return message

    def received_nothing(self) -> bool:
        return all(isinstance(self.inbox.get(), FrameSent) for _ in range(self.inbox.qsize()))

    def close(self) -> None:
        self.connection.close()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Delays:
    """A `DelayInjector` with given delays."""

    def __init__(self, pulls: dict[int, list[float]] | None = None, push: float = 0.0) -> None:
        self._pulls, self._push = pulls or {}, push

    def pull(self, shard: int) -> float:
        given = self._pulls.get(shard, [])
        return given.pop(0) if given else 0.0

    def push(self, shard: int) -> float:
        return self._push


NONE = Delays()


def staging(num_shards: int = 1, size: int = SIZE) -> SimpleNamespace:
    weights = torch.zeros(size * num_shards)
    return SimpleNamespace(weights=weights, gradient=torch.zeros_like(weights), buffers=torch.zeros(BUFFERS))


@contextmanager
def linked(
    links: Links, num_shards: int = 1, size: int = SIZE, resumed: Sequence[tuple[Kind, int]] = ()
) -> Iterator[list[FakeShard]]:
    """The shards; each has sent its version 0. No thread and no socket is left afterwards.

    Args:
        resumed: the kind and the iteration of each shard's first block; empty: the run is a new one.
    """
    with nothing_left():
        num_versions = 0 if links.resends else num_shards
        shards = [FakeShard(size, BUFFERS if number == 0 else 0, num_versions) for number in range(num_shards)]
        links.connect([shard.address for shard in shards], SECRET, {})
        for shard, (kind, iteration) in zip(shards, resumed or [(Kind.BLOCK, 3)] * num_shards, strict=True):
            shard.accept()
            shard.block(0, iteration, kind, resumes=bool(resumed))
        assert links.first_iteration() == 3
        try:
            yield shards
        finally:
            links.close()
            for link in links._links:
                link.sock.close()
            for shard in shards:
                shard.close()


def soon(action, after: float = 0.1) -> None:
    """Call `action` from another thread, `after` seconds later."""
    threading.Timer(after, action).start()


@contextmanager
def at_once() -> Iterator[None]:
    """No long delay passes."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < LONG_S / 2


def push(links: Links, delays: Delays = NONE, iteration: int = 3) -> bool:
    report = PushReport(0, iteration, loss=0.5)
    return links.push(delays, report, time.monotonic())  # type: ignore[arg-type]
