"""A shard's acceptor: workers are served, whatever hostile and broken peers do, and no resource of a peer is leaked."""

import contextlib
import json
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from leaks import nothing_left, wait_until
from live.peers import SECRET

from benchmarks import fuzz_frames
from syncline.learning.parameters import Version
from syncline.live.shard.connections import Connected, Disconnected, FrameSent, GradientPool, Pushed, accept_workers
from syncline.live.wire import frames, handshake
from syncline.live.wire.clock import CLOCK_REQUESTS
from syncline.live.wire.frames import DIRECT_BYTES, Header, Kind, Reader, byte_view, pack_report
from syncline.live.wire.sockets import address_of, dial, listen
from syncline.server.report import PushReport

SIZE, BUFFERS = 100, 3
UNIX = "unix:"


class Server:
    """An acceptor with its inbox."""

    def __init__(self, address: str, **options) -> None:
        self.listener = listen(address)
        self.address = address_of(self.listener)
        self.inbox = queue.SimpleQueue()
        self.pool = GradientPool(SIZE, BUFFERS, 1)
        self.acceptor = accept_workers(self.listener, SECRET, self.pool, self.inbox, **options)

    def proved(self) -> socket.socket:
        return handshake.connect(self.address, SECRET)

    def worker(self, number: int) -> tuple[socket.socket, Connected]:
        """A connection after its hello, and the event in the inbox."""
        sock = self.proved()
        sock.settimeout(10)
        frames.send_json(sock, {"worker": number})
        for _ in range(CLOCK_REQUESTS):
            frames.send_json(sock, {})
            assert set(frames.receive_json(sock)) == {"now"}
        hello = self.inbox.get(timeout=10)
        assert isinstance(hello, Connected)
        assert (hello.connection.worker, hello.about) == (number, {"worker": number})
        return sock, hello

    def check_that_it_serves(self) -> None:
        """A proper worker pushes, and gets its block."""
        sock, hello = self.worker(3)
        gradient, buffers, report = torch.rand(SIZE), torch.rand(BUFFERS), PushReport(3, 3, 5, loss=0.5)
        parts = [byte_view(gradient), byte_view(buffers), memoryview(pack_report(report))]
        frames.send(sock, Header(Kind.PUSH), parts)
        pushed = self.inbox.get(timeout=10)
        assert isinstance(pushed, Pushed)
        assert pushed.report == report
        assert torch.equal(pushed.gradient.flat, gradient)
        assert torch.equal(pushed.gradient.buffers, buffers)
        version, received = Version(torch.rand(SIZE), torch.rand(BUFFERS)), torch.zeros(SIZE + BUFFERS)
        assert hello.connection.post(Header(Kind.BLOCK, iteration=4, version=6), version)
        reader = Reader(sock)
        frame = reader.next()
        reader.payload(frame, [byte_view(received)])
        assert (frame.kind, frame.iteration, frame.version) == (Kind.BLOCK, 4, 6)
        assert torch.equal(received, torch.cat([version.weights, version.buffers]))
        sock.close()
        assert isinstance(self.inbox.get(timeout=10), Disconnected)
        hello.connection.close()


@contextmanager
def server(way, **options) -> Iterator[Server]:
    """It still serves workers at the end, and nothing is leaked."""
    with nothing_left():
        made = Server(way, **options)
        try:
            yield made
            made.check_that_it_serves()
        finally:
            with contextlib.suppress(OSError):
                made.listener.shutdown(socket.SHUT_RDWR)
            made.listener.close()


def is_ended(sock: socket.socket) -> bool:
    """The other side closed the connection, and sent nothing more."""
    sock.settimeout(10)
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def num_threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


# Without the secret


def test_peers_that_close_at_once_or_reset_are_counted(way):
    with server(way) as made:
        for number in range(20):
            sock = dial(made.address)
            if number % 2 and sock.family == socket.AF_INET:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        assert wait_until(lambda: made.acceptor.refused == 20)
        assert made.inbox.empty()


def test_more_silent_peers_than_are_admitted_at_once_take_no_more_threads(way, monkeypatch):
    """A worker is served once enough of them have given up, while others are silent."""
    monkeypatch.setattr(handshake, "MAX_UNPROVED", 4)
    with server(way) as made:
        peers = [dial(made.address) for _ in range(10)]
        assert wait_until(lambda: num_threads("connection") == 4)
        time.sleep(0.05)
        assert num_threads("connection") == 4
        for peer in peers[:8]:
            peer.close()
        made.proved().close()
        assert wait_until(lambda: made.acceptor.refused == 8)
        assert made.inbox.empty()
        for peer in peers[8:]:
            peer.close()


def test_what_follows_a_false_proof_is_not_read(way):
    """A hello and a push, as a worker sends them."""
    preamble = handshake.PREAMBLE.pack(handshake.MAGIC, frames.VERSION, bytes(handshake.NONCE_BYTES))
    hello = fuzz_frames.as_json({"worker": 0}) + fuzz_frames.as_json({}) * CLOCK_REQUESTS
    push = fuzz_frames.frame(Kind.PUSH, bytes(4 * (SIZE + BUFFERS)) + pack_report(PushReport(0, 0)))
    with server(way) as made:
        with contextlib.closing(dial(made.address)) as sock:
            sock.sendall(preamble + bytes(handshake.PROOF_BYTES) + hello + push)
            assert wait_until(lambda: made.acceptor.refused == 1)
        assert made.inbox.empty()


def test_an_acceptor_without_a_free_file_descriptor_retries():
    """All file descriptors are in use for a while: accept() fails, and must be tried again."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with server(UNIX) as made:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        place = made.listener.getsockname()
        taken = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (sock.fileno() + 50, limits[1]))
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(sock.fileno()))
            sock.connect(place)
            time.sleep(0.3)
        finally:
            for number in taken:
                os.close(number)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        with sock:
            handshake.client_handshake(sock, SECRET)


# With the secret

BOMB = b'{"worker":' + b"[" * 200_000 + b"]" * 200_000 + b"}"


@pytest.mark.parametrize(
    "payload",
    [
        *(json.dumps(about).encode() for about in ({}, [], 5, None, "worker", [{"worker": 0}])),
        *(b'{"worker": %s}' % worker for worker in (b'"0"', b"true", b"null", b"1.0", b"1e999", b"NaN", b"[0]", b"{}")),
        b'{"worker": ' + b"9" * 5000 + b"}",  # more digits than Python makes an int of
        b'{"worker": 1',
        b"\xff\xfe{\0}",
        b"",
        BOMB,
    ],
    ids=lambda payload: repr(payload[:20]),
)
def test_an_invalid_hello_closes_the_connection(payload):
    with server(UNIX) as made:
        sock = made.proved()
        with contextlib.suppress(OSError):
            frames.send(sock, Header(Kind.JSON), [memoryview(payload)])
        assert is_ended(sock)
        sock.close()
        assert made.inbox.empty()


@pytest.mark.parametrize("kind", [Kind.JSON, Kind.PUSH])
def test_anything_but_a_question_for_the_time_after_a_hello_closes_the_connection(kind):
    with server(UNIX) as made:
        sock = made.proved()
        frames.send_json(sock, {"worker": 0})
        frames.send(sock, Header(kind), [memoryview(b"{")])
        assert is_ended(sock)
        sock.close()
        assert made.inbox.empty()


@pytest.mark.parametrize("worker", [-1, 2**31, 2**64, 10**4000])
def test_an_unknown_worker_is_left_to_the_owner_to_reject(worker):
    with server(UNIX) as made:
        sock, hello = made.worker(worker)
        assert hello.connection.worker == worker
        hello.connection.close()
        assert is_ended(sock)
        sock.close()
        assert isinstance(made.inbox.get(timeout=10), Disconnected)


@pytest.mark.parametrize("end", ["an unexpected frame", "half closed", "closed by its owner"])
def test_a_version_for_a_peer_that_reads_nothing_is_released_at_the_end_of_its_connection(way, end):
    """Its writer is blocked when the reader or the owner closes the connection; both threads end."""
    with server(way) as made:
        sock, hello = made.worker(0)
        version = Version(torch.zeros(5_000_000), torch.zeros(0))
        assert not hello.connection.post(Header(Kind.BLOCK), version)
        time.sleep(0.05)
        if end == "half closed":
            sock.shutdown(socket.SHUT_WR)
        elif end == "an unexpected frame":
            frames.send(sock, Header(Kind.STOP))
        else:
            hello.connection.close()
        messages = [made.inbox.get(timeout=10) for _ in range(2)]
        assert {type(message) for message in messages} == {Disconnected, FrameSent}
        hello.connection.close()
        assert wait_until(lambda: not num_threads("writer 0"))
        sock.close()


def test_every_large_version_is_released_whether_it_was_sent_or_not(way):
    """Ten are posted, the peer reads one and dies; what the owner posts before it notices is released, too.

    Those that a newer one replaced are free at once.
    """
    with server(way) as made:
        sock, hello = made.worker(0)
        version = Version(torch.zeros(300_000), torch.zeros(0))
        frees = sum(hello.connection.post(Header(Kind.BLOCK), version) is version for _ in range(10))
        reader, place = Reader(sock), torch.empty(300_000)
        reader.payload(reader.next(), [byte_view(place)])
        sock.close()
        while not isinstance(message := made.inbox.get(timeout=10), Disconnected):
            frees += isinstance(message, FrameSent)
        frees += hello.connection.post(Header(Kind.BLOCK), version) is version
        while frees < 11:
            message = made.inbox.get(timeout=10)
            assert isinstance(message, FrameSent)
            assert message.version is version
            assert message.connection is hello.connection
            frees += 1
        hello.connection.close()


# Workers


def test_small_blocks_are_sent_directly_and_large_ones_by_the_writer():
    with server(UNIX) as made:
        sock, hello = made.worker(0)
        small, large = torch.zeros(DIRECT_BYTES // 4), torch.zeros(DIRECT_BYTES // 4 + 1)
        assert hello.connection.post(Header(Kind.BLOCK), Version(small, torch.zeros(0)))
        assert not hello.connection.post(Header(Kind.BLOCK), Version(large, torch.zeros(0)))
        assert hello.connection.sending == 1
        # Small frames wait behind a large one: the order stays, and no two threads write at once.
        assert not hello.connection.post(Header(Kind.SAVE), None)
        assert not hello.connection.post(Header(Kind.STOP), None)
        reader = Reader(sock)
        kinds = []
        for size in (small.nbytes, large.nbytes, 0, 0):
            frame = reader.next()
            reader.payload(frame, [memoryview(bytearray(size))])
            kinds.append(frame.kind)
        assert kinds == [Kind.BLOCK, Kind.BLOCK, Kind.SAVE, Kind.STOP]
        assert [made.inbox.get(timeout=10).version is None for _ in range(3)] == [False, True, True]
        sock.close()
        assert isinstance(made.inbox.get(timeout=10), Disconnected)
        hello.connection.close()


def out_of_memory(*_):
    raise RuntimeError("out of memory")


def test_a_writer_that_fails_ends_the_connection_and_releases_the_version(capsys):
    def pulls(worker: int):
        return out_of_memory if worker == 0 else None

    with server(UNIX, pulls=pulls) as made:
        sock, hello = made.worker(0)
        version = Version(torch.zeros(DIRECT_BYTES), torch.zeros(BUFFERS))
        hello.connection.post(Header(Kind.BLOCK), version)
        assert {type(made.inbox.get(timeout=10)) for _ in range(2)} == {FrameSent, Disconnected}
        assert "out of memory" in capsys.readouterr().err
        sock.close()
        hello.connection.close()


def test_a_reader_that_fails_ends_the_connection(capsys, monkeypatch):
    with server(UNIX) as made:
        sock, hello = made.worker(0)
        with monkeypatch.context() as patch:
            patch.setattr(made.pool, "take", out_of_memory)
            frames.send(sock, Header(Kind.PUSH), [])
            assert isinstance(made.inbox.get(timeout=10), Disconnected)
        assert "out of memory" in capsys.readouterr().err
        sock.close()
        hello.connection.close()


# With the secret, at every door


@pytest.mark.parametrize("door", fuzz_frames.DOORS)
def test_of_faulty_frames_none_is_accepted_and_each_ends_its_connection_with_a_reason(door):
    """More of them: python -m benchmarks.fuzz_frames."""
    assert fuzz_frames.main(["--frames", "400", "--doors", door]) == 0
