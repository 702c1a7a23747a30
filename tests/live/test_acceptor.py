"""A shard's acceptor serves workers, whatever was sent before; see test_hostile_peers.py for the rest."""

import contextlib
import queue
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st
from leaks import nothing_left

from syncline.learning.server import Version
from syncline.live import frames, handshake
from syncline.live.clock import CLOCK_REQUESTS
from syncline.live.connections import Connected, Disconnected, FrameSent, GradientPool, Pushed, accept_workers
from syncline.live.frames import DIRECT_BYTES, REPORT, Header, Kind, Reader, byte_view, pack_report
from syncline.live.transport import address_of, dial, listen
from syncline.server.report import PushReport

SECRET = b"the run's own"
SIZE, BUFFERS = 100, 3


class Server:
    """An acceptor with its inbox."""

    def __init__(self, size: int = SIZE, **options) -> None:
        self.listener = listen("unix:")
        self.address = address_of(self.listener)
        self.inbox = queue.SimpleQueue()
        self.pool = GradientPool(size, BUFFERS, 1)
        self.acceptor = accept_workers(self.listener, SECRET, None, self.pool, self.inbox, **options)

    def worker(self, number: int = 0) -> tuple[socket.socket, Connected]:
        """A connection after its hello, and the event in the inbox."""
        sock = handshake.connect(self.address, SECRET)
        frames.send_json(sock, {"worker": number})
        for _ in range(CLOCK_REQUESTS):
            frames.send_json(sock, {})
            assert abs(frames.receive_json(sock)["now"] - time.monotonic()) < 5
        return sock, self.inbox.get(timeout=5)


@contextmanager
def server(size: int = SIZE, **options) -> Iterator[Server]:
    """Afterwards no thread and no socket is left."""
    with nothing_left():
        made = Server(size, **options)
        yield made
        made.listener.shutdown(socket.SHUT_RDWR)
        made.listener.close()


def close(sock: socket.socket, hello: Connected) -> None:
    sock.close()
    hello.connection.close()


def test_a_worker_pushes_and_is_granted():
    with server() as made:
        sock, hello = made.worker(7)
        assert (hello.connection.worker, hello.about) == (7, {"worker": 7})
        gradient, buffers = torch.rand(SIZE), torch.rand(BUFFERS)
        report = PushReport(7, 3, 5, loss=0.5)
        parts = [byte_view(gradient), byte_view(buffers), memoryview(pack_report(report))]
        frames.send(sock, Header(Kind.PUSH), parts)
        pushed = made.inbox.get(timeout=5)
        assert isinstance(pushed, Pushed)
        assert pushed.report == report
        assert torch.equal(pushed.gradient.flat, gradient)
        assert torch.equal(pushed.gradient.buffers, buffers)
        version = Version(torch.rand(SIZE), torch.rand(BUFFERS))
        assert hello.connection.post(Header(Kind.BLOCK, iteration=4, version=6), version)
        reader, weights, statistics = Reader(sock), torch.zeros(SIZE), torch.zeros(BUFFERS)
        frame = reader.next()
        reader.payload(frame, [byte_view(weights), byte_view(statistics)])
        assert (frame.kind, frame.iteration, frame.version) == (Kind.BLOCK, 4, 6)
        assert torch.equal(weights, version.weights)
        assert torch.equal(statistics, version.buffers)
        sock.close()
        assert isinstance(made.inbox.get(timeout=5), Disconnected)
        hello.connection.close()


hostile = st.one_of(
    st.binary(max_size=300),
    st.lists(
        st.builds(
            lambda kind, size, payload: Header(kind, size=size).pack() + payload,
            st.sampled_from(Kind),
            st.integers(0, 2**64 - 1) | st.sampled_from([SIZE * 4, REPORT.size + SIZE * 4 + BUFFERS * 4, 2]),
            st.binary(max_size=50),
        ),
        max_size=4,
    ).map(b"".join),
)


@scaled(60)
@given(hostile, st.sampled_from(["unproved", "proved", "greeted"]))
def test_no_bytes_crash_the_acceptor_and_a_worker_is_served_afterwards(data, when):
    """Before the proof nothing of it arrives; after it, only complete pushes of the right size."""
    with server() as made:
        if when == "unproved":
            sock = dial(made.address)
        elif when == "proved":
            sock = handshake.connect(made.address, SECRET)
        else:
            sock, hello = made.worker()
        with sock:
            sock.settimeout(None)
            with contextlib.suppress(OSError):  # it was closed already
                sock.sendall(data)
        events = []
        if when == "greeted":
            while not isinstance(message := made.inbox.get(timeout=5), Disconnected):
                events.append(message)
            hello.connection.close()
        assert all(isinstance(message, Pushed) for message in events)
        again, hello = made.worker(1)
        assert hello.connection.worker == 1
        close(again, hello)


def test_small_blocks_are_sent_directly_and_large_ones_by_the_writer():
    with server() as made:
        sock, hello = made.worker()
        small, large = torch.zeros(DIRECT_BYTES // 4), torch.zeros(DIRECT_BYTES // 4 + 1)
        assert hello.connection.post(Header(Kind.BLOCK), Version(small, torch.zeros(0)))
        assert not hello.connection.post(Header(Kind.BLOCK), Version(large, torch.zeros(0)))
        assert hello.connection.sending == 1
        # A small frame waits behind a large one: the order stays.
        assert not hello.connection.post(Header(Kind.STOP), None)
        reader = Reader(sock)
        kinds = []
        for size in (small.nbytes, large.nbytes, 0):
            frame = reader.next()
            reader.payload(frame, [memoryview(bytearray(size))])
            kinds.append(frame.kind)
        assert kinds == [Kind.BLOCK, Kind.BLOCK, Kind.STOP]
        assert isinstance(made.inbox.get(timeout=5), FrameSent)
        close(sock, hello)


def out_of_memory(*_):
    raise RuntimeError("out of memory")


def test_a_writer_that_fails_ends_the_connection_and_releases_the_version(capsys):
    with server(DIRECT_BYTES, pulls=lambda worker: out_of_memory) as made:
        sock, hello = made.worker()
        version = Version(torch.zeros(DIRECT_BYTES), torch.zeros(BUFFERS))
        hello.connection.post(Header(Kind.BLOCK), version)
        events = {type(made.inbox.get(timeout=5)) for _ in range(2)}
        assert events == {FrameSent, Disconnected}
        assert "out of memory" in capsys.readouterr().err
        close(sock, hello)


def test_a_reader_that_fails_ends_the_connection(capsys, monkeypatch):
    with server() as made:
        sock, hello = made.worker()
        monkeypatch.setattr(made.pool, "take", out_of_memory)
        frames.send(sock, Header(Kind.PUSH), [])
        assert isinstance(made.inbox.get(timeout=5), Disconnected)
        assert "out of memory" in capsys.readouterr().err
        close(sock, hello)
