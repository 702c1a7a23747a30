"""Hostile and broken peers: workers are served all the same, and no resource of a peer is leaked."""

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
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st
from leaks import nothing_left, wait_until

from benchmarks import fuzz_frames
from syncline.learning.optimizer import Sgd
from syncline.learning.server import Gradient, Shard, Version
from syncline.live import frames, handshake, transport
from syncline.live.clock import CLOCK_REQUESTS
from syncline.live.connections import Connected, Disconnected, FrameSent, GradientPool, Pushed, accept_workers
from syncline.live.frames import REPORT, Header, Kind, Reader, byte_view, pack_report
from syncline.live.transport import Socket, address_of, dial, listen
from syncline.server.report import PushReport

SECRET = b"the run's own"
SIZE, BUFFERS = 100, 3
PUSH_BYTES = REPORT.size + 4 * (SIZE + BUFFERS)


def push_payload(worker: int, iteration: int = 0) -> bytes:
    """A gradient of zeros, and its report."""
    return bytes(PUSH_BYTES - REPORT.size) + pack_report(PushReport(worker, iteration))


class Server:
    """An acceptor with its inbox."""

    def __init__(self, address: str, tls) -> None:
        self.tls = tls
        self.listener = listen(address)
        self.address = address_of(self.listener)
        self.inbox = queue.SimpleQueue()
        self.acceptor = accept_workers(self.listener, SECRET, tls, GradientPool(SIZE, BUFFERS, 1), self.inbox)

    def proved(self) -> Socket:
        return handshake.connect(self.address, SECRET, self.tls)

    def worker(self, number: int) -> tuple[Socket, Connected]:
        """A connection after its hello, and the event in the inbox."""
        sock = self.proved()
        sock.settimeout(10)
        frames.send_json(sock, {"worker": number})
        for _ in range(CLOCK_REQUESTS):
            frames.send_json(sock, {})
            frames.receive_json(sock)
        hello = self.inbox.get(timeout=10)
        assert isinstance(hello, Connected)
        return sock, hello

    def serves(self) -> bool:
        """A proper worker pushes, and gets its block."""
        sock, hello = self.worker(3)
        gradient, buffers = torch.rand(SIZE), torch.rand(BUFFERS)
        report = memoryview(pack_report(PushReport(3, 0)))
        frames.send(sock, Header(Kind.PUSH), [byte_view(gradient), byte_view(buffers), report])
        pushed = self.inbox.get(timeout=10)
        assert isinstance(pushed, Pushed)
        assert torch.equal(pushed.gradient.flat, gradient)
        version, received = Version(torch.rand(SIZE), torch.rand(BUFFERS)), torch.zeros(SIZE + BUFFERS)
        hello.connection.post(Header(Kind.BLOCK), version)
        reader = Reader(sock)
        reader.payload(reader.next(), [byte_view(received)])
        sock.close()
        assert isinstance(self.inbox.get(timeout=10), Disconnected)
        hello.connection.close()
        return torch.equal(received, torch.cat([version.weights, version.buffers]))


@contextmanager
def server(way) -> Iterator[Server]:
    """It still serves workers at the end, and nothing is leaked."""
    with nothing_left():
        made = Server(*way)
        try:
            yield made
            assert made.serves()
        finally:
            with contextlib.suppress(OSError):
                made.listener.shutdown(socket.SHUT_RDWR)
            made.listener.close()


def is_ended(sock: Socket) -> bool:
    """The other side closed the connection, and sent nothing more."""
    sock.settimeout(10)
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def shorten_handshake(monkeypatch, seconds: float) -> None:
    for module in (transport, handshake):
        monkeypatch.setattr(module, "HANDSHAKE_S", seconds)


# Without the secret


@scaled(15)
@given(st.lists(st.binary(max_size=400) | st.binary().map(lambda tail: handshake.MAGIC + b"\0\1" + tail), min_size=1))
def test_bytes_of_unauthenticated_peers_are_ignored(way, messages):
    with server(way) as made:
        for sent in messages[:5]:
            with dial(made.address) as sock, contextlib.suppress(OSError):
                sock.sendall(sent)
        assert wait_until(lambda: made.acceptor.refused == len(messages[:5]))
        assert made.inbox.empty()


def test_peers_that_close_at_once_or_reset_are_counted(way):
    with server(way) as made:
        for number in range(20):
            sock = dial(made.address)
            if number % 2 and sock.family == socket.AF_INET:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        assert wait_until(lambda: made.acceptor.refused == 20)
        assert made.inbox.empty()


def test_a_replayed_session_is_refused():
    """All that a worker sent, with its proof, which answered other random bytes."""
    sent = bytearray()
    with server(("unix:", None)) as made, listen("unix:") as tap:

        def relay() -> None:
            with tap.accept()[0] as worker, dial(made.address) as target:
                target.settimeout(None)
                back = threading.Thread(target=copy, args=(target, worker, bytearray()))
                back.start()
                copy(worker, target, sent)
                back.join()

        def copy(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    kept += data
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=relay)
        thread.start()
        sock = handshake.connect(address_of(tap), SECRET)
        frames.send_json(sock, {"worker": 0})
        for _ in range(CLOCK_REQUESTS):
            frames.send_json(sock, {})
            frames.receive_json(sock)
        frames.send(sock, Header(Kind.PUSH), [memoryview(push_payload(0))])
        events = [made.inbox.get(timeout=10) for _ in range(2)]
        assert [type(message) for message in events] == [Connected, Pushed]
        sock.close()
        thread.join()
        assert isinstance(made.inbox.get(timeout=10), Disconnected)
        events[0].connection.close()
        assert len(sent) > PUSH_BYTES

        with dial(made.address) as again:
            with contextlib.suppress(OSError):
                again.sendall(sent)
            assert wait_until(lambda: made.acceptor.refused == 1)
        assert made.inbox.empty()


@pytest.mark.parametrize("way", ["unix", "tcp with TLS"], indirect=True)
def test_more_silent_peers_than_are_admitted_at_once_block_no_worker_for_long(monkeypatch, way):
    shorten_handshake(monkeypatch, 0.5)
    num_peers = 2 * handshake.MAX_UNPROVED
    with server(way) as made:
        peers = [dial(made.address) for _ in range(num_peers)]
        assert wait_until(lambda: sum(thread.name == "connection" for thread in threading.enumerate()) >= 60)
        assert sum(thread.name == "connection" for thread in threading.enumerate()) <= handshake.MAX_UNPROVED
        for _ in range(50):  # its own deadline is as short as theirs
            with contextlib.suppress(OSError):
                sock = made.proved()
                break
        assert handshake.MAX_UNPROVED <= made.acceptor.refused <= num_peers + 50
        sock.close()
        for peer in peers:
            peer.close()
        assert made.inbox.empty()


def test_an_acceptor_without_a_free_file_descriptor_retries():
    """All file descriptors are in use for a while: accept() fails, and must be tried again."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with server(("unix:", None)) as made:
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
    with server(("unix:", None)) as made:
        sock = made.proved()
        with contextlib.suppress(OSError):
            frames.send(sock, Header(Kind.JSON), [memoryview(payload)])
        assert is_ended(sock)
        sock.close()
        assert made.inbox.empty()


@pytest.mark.parametrize("worker", [-1, 2**31, 2**64, 10**4000])
def test_an_unknown_worker_is_left_to_the_owner_to_reject(worker):
    with server(("unix:", None)) as made:
        sock, hello = made.worker(worker)
        assert hello.connection.worker == worker
        hello.connection.close()
        assert is_ended(sock)
        sock.close()
        assert isinstance(made.inbox.get(timeout=10), Disconnected)


@pytest.mark.parametrize("size", [0, PUSH_BYTES - 1, PUSH_BYTES + 1, 2**40, 2**64 - 1])
def test_a_push_of_another_size_closes_the_connection_and_allocates_nothing(way, size):
    with server(way) as made:
        sock, hello = made.worker(0)
        sock.sendall(Header(Kind.PUSH, size=size).pack())
        assert isinstance(made.inbox.get(timeout=10), Disconnected)
        hello.connection.close()
        assert is_ended(sock)
        sock.close()


@pytest.mark.parametrize(("kind", "worker"), [(Kind.PUSH, 1), (Kind.JSON, 0), (Kind.BLOCK, 0), (Kind.STOP, 0)])
def test_a_push_of_another_worker_or_a_frame_of_a_shard_is_ignored(kind, worker):
    with server(("unix:", None)) as made:
        sock, hello = made.worker(0)
        frames.send(sock, Header(kind), [memoryview(push_payload(worker))])
        assert isinstance(made.inbox.get(timeout=10), Disconnected)
        hello.connection.close()
        sock.close()


@scaled(40)
@given(
    st.lists(
        st.tuples(st.integers(0, 1500), st.sampled_from(["flip", "insert", "delete", "cut"]), st.binary(min_size=1)),
        min_size=1,
        max_size=4,
    )
)
def test_a_mutated_session_yields_complete_pushes_or_nothing(mutations):
    """All that a worker sends after its proof, with bytes changed, inserted, deleted or truncated."""
    hello_text = b'{"worker": 0}'
    sent = bytearray(Header(Kind.JSON, size=len(hello_text)).pack() + hello_text)
    sent += (Header(Kind.JSON, size=2).pack() + b"{}") * CLOCK_REQUESTS
    for iteration in range(2):
        sent += Header(Kind.PUSH, size=PUSH_BYTES).pack() + push_payload(0, iteration)
    for place, how, data in mutations:
        place = min(place, len(sent) - 1)
        if how == "flip" and sent:
            sent[place] ^= data[0] or 1
        elif how == "insert":
            sent[place:place] = data
        elif how == "delete":
            del sent[place : place + len(data)]
        else:
            del sent[place:]
    with server(("unix:", None)) as made:
        sock = made.proved()
        with contextlib.suppress(OSError):
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
        sock.close()
        assert wait_until(lambda: not any(thread.name == "connection" for thread in threading.enumerate()))
        events = []
        with contextlib.suppress(queue.Empty):
            while True:
                events.append(made.inbox.get_nowait())
        if events:
            assert isinstance(events[0], Connected)
            assert isinstance(events[-1], Disconnected)
            assert all(isinstance(message, Pushed) and message.report.worker == 0 for message in events[1:-1])
            events[0].connection.close()


@pytest.mark.parametrize("end", ["an unexpected frame", "half closed"])
def test_a_version_for_a_peer_that_reads_nothing_and_fails_is_released(way, end):
    """Its writer is blocked when the reader closes the connection."""
    with server(way) as made:
        sock, hello = made.worker(0)
        version = Version(torch.zeros(5_000_000), torch.zeros(0))
        assert not hello.connection.post(Header(Kind.BLOCK), version)
        time.sleep(0.1)
        if end == "half closed":
            sock.shutdown(socket.SHUT_WR)
        else:
            frames.send(sock, Header(Kind.STOP))
        messages = [made.inbox.get(timeout=5) for _ in range(2)]
        assert {type(message) for message in messages} == {Disconnected, FrameSent}
        hello.connection.close()
        assert wait_until(lambda: not any(thread.name == "writer 0" for thread in threading.enumerate()))
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


def test_a_slow_reader_gets_the_version_it_was_granted_despite_later_updates(way):
    size = 400_000
    torch.manual_seed(0)
    with server(way) as made:
        sock, hello = made.worker(0)
        first = Version(torch.rand(size), torch.zeros(0))
        shard = Shard(slice(0, size), first, Sgd(0.0, 0.0), lambda samples, updates: 0.1, num_workers=1)
        for number in range(3):
            pinned = shard.pin()
            granted = pinned.weights.clone()
            assert not hello.connection.post(Header(Kind.BLOCK, version=number), pinned)
            frame, received = frames.receive(sock), torch.zeros(size)
            assert frame.size == received.nbytes
            for part in received.split(50_000):
                frames.receive_into(sock, byte_view(part))
                shard.apply([Gradient(torch.rand(size), torch.zeros(0))], 1.0, 0, 0)
            assert torch.equal(received, granted)
            free = made.inbox.get(timeout=10)
            assert isinstance(free, FrameSent)
            assert free.version is pinned
            shard.unpin(pinned)
        assert shard.allocated <= 2
        sock.close()
        assert isinstance(made.inbox.get(timeout=10), Disconnected)
        hello.connection.close()


def test_a_connection_closed_by_its_owner_ends_all_its_threads(way):
    """While a large version is being sent to a peer that neither reads nor writes."""
    with server(way) as made:
        sock, hello = made.worker(0)
        hello.connection.post(Header(Kind.BLOCK), Version(torch.zeros(5_000_000), torch.zeros(0)))
        time.sleep(0.05)
        hello.connection.close()
        assert {type(made.inbox.get(timeout=5)) for _ in range(2)} == {Disconnected, FrameSent}
        sock.close()


# With the secret, at every door


@pytest.mark.parametrize("door", fuzz_frames.DOORS)
def test_of_faulty_frames_none_is_accepted_and_each_ends_its_connection_with_a_reason(door):
    """More of them: python -m benchmarks.fuzz_frames."""
    assert fuzz_frames.main(["--frames", "2000", "--doors", door]) == 0
