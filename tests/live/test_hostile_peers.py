"""Who means ill, or is broken: the door stays open for workers, and nothing of a hostile peer is kept."""

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

from syncline.learning.optimizer import Sgd
from syncline.learning.server import Gradient, Shard, Version
from syncline.live import server as live_server
from syncline.live import transport, wire
from syncline.live.server import Acceptor, Free, GradientPool, Hello, Lost, Pushed, view
from syncline.live.transport import Socket, address_of, dial, listen
from syncline.live.wire import CLOCK_QUESTIONS, Frame, Kind, Reader

SECRET = b"the run's own"
SIZE, BUFFERS = 100, 3
PUSH_BYTES = 4 * (SIZE + BUFFERS)


class House:
    """A door with what is behind it."""

    def __init__(self, address: str, tls) -> None:
        self.tls = tls
        self.listener = listen(address)
        self.address = address_of(self.listener)
        self.inbox = queue.SimpleQueue()
        self.door = Acceptor(self.listener, SECRET, tls, GradientPool(SIZE, BUFFERS, 1), self.inbox)
        self.door.open()

    def proved(self) -> Socket:
        return wire.connect(self.address, SECRET, self.tls)

    def worker(self, number: int) -> tuple[Socket, Hello]:
        """A connection that has said hello, and what the owner heard of it."""
        sock = self.proved()
        sock.settimeout(10)
        wire.send_json(sock, {"worker": number})
        for _ in range(CLOCK_QUESTIONS):
            wire.send_json(sock, {})
            wire.receive_json(sock)
        hello = self.inbox.get(timeout=10)
        assert isinstance(hello, Hello)
        return sock, hello

    def serves(self) -> bool:
        """A proper worker pushes, is heard, and gets its block."""
        sock, hello = self.worker(3)
        gradient, buffers = torch.rand(SIZE), torch.rand(BUFFERS)
        wire.send(sock, Frame(Kind.PUSH, 3), [view(gradient), view(buffers)])
        pushed = self.inbox.get(timeout=10)
        assert isinstance(pushed, Pushed)
        assert torch.equal(pushed.gradient.flat, gradient)
        version, received = Version(torch.rand(SIZE), torch.rand(BUFFERS)), torch.zeros(SIZE + BUFFERS)
        hello.connection.post(Frame(Kind.BLOCK, 3), version)
        reader = Reader(sock)
        reader.payload(reader.next(), [view(received)])
        sock.close()
        assert isinstance(self.inbox.get(timeout=10), Lost)
        hello.connection.close()
        return torch.equal(received, torch.cat([version.weights, version.buffers]))


@contextmanager
def house(way) -> Iterator[House]:
    """Its door still serves at the end, and nothing is left behind."""
    with nothing_left():
        made = House(*way)
        try:
            yield made
            assert made.serves()
        finally:
            with contextlib.suppress(OSError):
                made.listener.shutdown(socket.SHUT_RDWR)
            made.listener.close()


def is_ended(sock: Socket) -> bool:
    """The other side ended the connection, and said nothing more."""
    sock.settimeout(10)
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def lower_patience(monkeypatch, seconds: float) -> None:
    for module in (transport, wire):
        monkeypatch.setattr(module, "HANDSHAKE_S", seconds)


# Without the secret


@scaled(15)
@given(st.lists(st.binary(max_size=400) | st.binary().map(lambda tail: wire.MAGIC + b"\0\1" + tail), min_size=1))
def test_nothing_a_stranger_says_is_heard(way, sayings):
    with house(way) as made:
        for said in sayings[:5]:
            with dial(made.address) as sock, contextlib.suppress(OSError):
                sock.sendall(said)
        assert wait_until(lambda: made.door.refused == len(sayings[:5]))
        assert made.inbox.empty()


def test_strangers_that_hang_up_at_once_or_with_a_reset_are_counted(way):
    with house(way) as made:
        for number in range(20):
            sock = dial(made.address)
            if number % 2 and sock.family == socket.AF_INET:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        assert wait_until(lambda: made.door.refused == 20)
        assert made.inbox.empty()


def test_a_recorded_session_said_again_is_not_heard():
    """All that a worker said, with the proof of its secret: it was an answer to other random bytes."""
    said = bytearray()
    with house(("unix:", None)) as made, listen("unix:") as tap:

        def relay() -> None:
            with tap.accept()[0] as worker, dial(made.address) as door:
                door.settimeout(None)
                back = threading.Thread(target=copy, args=(door, worker, bytearray()))
                back.start()
                copy(worker, door, said)
                back.join()

        def copy(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    kept += data
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=relay)
        thread.start()
        sock = wire.connect(address_of(tap), SECRET)
        wire.send_json(sock, {"worker": 0})
        for _ in range(CLOCK_QUESTIONS):
            wire.send_json(sock, {})
            wire.receive_json(sock)
        wire.send(sock, Frame(Kind.PUSH, 0), [memoryview(bytes(PUSH_BYTES))])
        heard = [made.inbox.get(timeout=10) for _ in range(2)]
        assert [type(message) for message in heard] == [Hello, Pushed]
        sock.close()
        thread.join()
        assert isinstance(made.inbox.get(timeout=10), Lost)
        heard[0].connection.close()
        assert len(said) > PUSH_BYTES

        with dial(made.address) as again:
            with contextlib.suppress(OSError):
                again.sendall(said)
            assert wait_until(lambda: made.door.refused == 1)
        assert made.inbox.empty()


@pytest.mark.parametrize("way", ["unix", "tcp with TLS"], indirect=True)
def test_more_silent_strangers_than_are_waited_for_at_once_lock_nobody_out_for_long(monkeypatch, way):
    lower_patience(monkeypatch, 0.5)
    num_strangers = 2 * live_server.MAX_STRANGERS
    with house(way) as made:
        strangers = [dial(made.address) for _ in range(num_strangers)]
        assert wait_until(lambda: sum(thread.name == "connection" for thread in threading.enumerate()) >= 60)
        assert sum(thread.name == "connection" for thread in threading.enumerate()) <= live_server.MAX_STRANGERS
        for _ in range(50):  # its own patience is as short as theirs
            with contextlib.suppress(OSError):
                sock = made.proved()
                break
        assert live_server.MAX_STRANGERS <= made.door.refused <= num_strangers + 50
        sock.close()
        for stranger in strangers:
            stranger.close()
        assert made.inbox.empty()


def test_a_door_without_a_number_for_the_next_connection_waits_for_one():
    """All files of the process are in use for a while: accept() fails, and must be tried again."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with house(("unix:", None)) as made:
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
            wire.prove(sock, SECRET)


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
def test_a_hello_that_is_none_ends_the_connection_unheard(payload):
    with house(("unix:", None)) as made:
        sock = made.proved()
        with contextlib.suppress(OSError):
            wire.send(sock, Frame(Kind.JSON), [memoryview(payload)])
        assert is_ended(sock)
        sock.close()
        assert made.inbox.empty()


@pytest.mark.parametrize("worker", [-1, 2**31, 2**64, 10**4000])
def test_a_number_that_no_worker_has_is_for_the_owner_to_turn_away(worker):
    with house(("unix:", None)) as made:
        sock, hello = made.worker(worker)
        assert hello.connection.worker == worker
        hello.connection.close()
        assert is_ended(sock)
        sock.close()
        assert isinstance(made.inbox.get(timeout=10), Lost)


@pytest.mark.parametrize("size", [0, PUSH_BYTES - 1, PUSH_BYTES + 1, 2**40, 2**64 - 1])
def test_a_push_of_another_size_ends_the_connection_and_costs_no_memory(way, size):
    with house(way) as made:
        sock, hello = made.worker(0)
        sock.sendall(Frame(Kind.PUSH, 0, size=size).pack())
        assert isinstance(made.inbox.get(timeout=10), Lost)
        hello.connection.close()
        assert is_ended(sock)
        sock.close()


@pytest.mark.parametrize("frame", [Frame(Kind.PUSH, 1), Frame(Kind.JSON), Frame(Kind.BLOCK), Frame(Kind.STOP)])
def test_a_push_in_the_name_of_another_worker_or_what_only_a_shard_says_is_not_heard(frame):
    with house(("unix:", None)) as made:
        sock, hello = made.worker(0)
        wire.send(sock, frame, [memoryview(bytes(PUSH_BYTES))])
        assert isinstance(made.inbox.get(timeout=10), Lost)
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
def test_a_mutated_session_is_heard_as_whole_pushes_or_not_at_all(mutations):
    """All that a worker says after its proof, with bytes changed, put in, left out or cut off."""
    hello_text = b'{"worker": 0}'
    said = bytearray(Frame(Kind.JSON, size=len(hello_text)).pack() + hello_text)
    said += (Frame(Kind.JSON, size=2).pack() + b"{}") * CLOCK_QUESTIONS
    for iteration in range(2):
        said += Frame(Kind.PUSH, 0, iteration, size=PUSH_BYTES).pack() + bytes(PUSH_BYTES)
    for place, how, data in mutations:
        place = min(place, len(said) - 1)
        if how == "flip" and said:
            said[place] ^= data[0] or 1
        elif how == "insert":
            said[place:place] = data
        elif how == "delete":
            del said[place : place + len(data)]
        else:
            del said[place:]
    with house(("unix:", None)) as made:
        sock = made.proved()
        with contextlib.suppress(OSError):
            sock.sendall(said)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
        sock.close()
        assert wait_until(lambda: not any(thread.name == "connection" for thread in threading.enumerate()))
        heard = []
        with contextlib.suppress(queue.Empty):
            while True:
                heard.append(made.inbox.get_nowait())
        if heard:
            assert isinstance(heard[0], Hello)
            assert isinstance(heard[-1], Lost)
            assert all(isinstance(message, Pushed) and message.frame.worker == 0 for message in heard[1:-1])
            heard[0].connection.close()


@pytest.mark.parametrize("end", ["a frame of nobody's", "half closed"])
def test_a_version_for_a_peer_that_reads_nothing_and_ends_wrongly_is_freed(way, end):
    """Its writer is stuck in sending when the reader gives the connection up."""
    with house(way) as made:
        sock, hello = made.worker(0)
        version = Version(torch.zeros(5_000_000), torch.zeros(0))
        assert not hello.connection.post(Frame(Kind.BLOCK, 0), version)
        time.sleep(0.1)
        if end == "half closed":
            sock.shutdown(socket.SHUT_WR)
        else:
            wire.send(sock, Frame(Kind.STOP))
        messages = [made.inbox.get(timeout=5) for _ in range(2)]
        assert {type(message) for message in messages} == {Lost, Free}
        hello.connection.close()
        assert wait_until(lambda: not any(thread.name == "writer 0" for thread in threading.enumerate()))
        sock.close()


def test_every_large_version_is_freed_whether_it_was_sent_or_not(way):
    """Ten are posted, the peer reads one and dies; what the owner posts before it hears of it is freed, too.

    Those that a newer one took the place of are free at once.
    """
    with house(way) as made:
        sock, hello = made.worker(0)
        version = Version(torch.zeros(300_000), torch.zeros(0))
        frees = sum(hello.connection.post(Frame(Kind.BLOCK, 0), version) is version for _ in range(10))
        reader, place = Reader(sock), torch.empty(300_000)
        reader.payload(reader.next(), [view(place)])
        sock.close()
        while not isinstance(message := made.inbox.get(timeout=10), Lost):
            frees += isinstance(message, Free)
        frees += hello.connection.post(Frame(Kind.BLOCK, 0), version) is version
        while frees < 11:
            message = made.inbox.get(timeout=10)
            assert isinstance(message, Free)
            assert message.version is version
            assert message.connection is hello.connection
            frees += 1
        hello.connection.close()


def test_a_slow_reader_gets_the_version_it_was_granted_whatever_is_made_meanwhile(way):
    size = 400_000
    torch.manual_seed(0)
    with house(way) as made:
        sock, hello = made.worker(0)
        first = Version(torch.rand(size), torch.zeros(0))
        shard = Shard(slice(0, size), first, Sgd(0.0, 0.0), lambda samples, updates: 0.1, num_workers=1)
        for number in range(3):
            pinned = shard.pin()
            granted = pinned.weights.clone()
            assert not hello.connection.post(Frame(Kind.BLOCK, 0, 0, number), pinned)
            frame, received = wire.receive(sock), torch.zeros(size)
            assert frame.size == received.nbytes
            for part in received.split(50_000):
                wire.receive_into(sock, view(part))
                shard.apply([Gradient(torch.rand(size), torch.zeros(0))], 1.0, 0, 0)
            assert torch.equal(received, granted)
            free = made.inbox.get(timeout=10)
            assert isinstance(free, Free)
            assert free.version is pinned
            shard.unpin(pinned)
        assert shard.allocated <= 2
        sock.close()
        assert isinstance(made.inbox.get(timeout=10), Lost)
        hello.connection.close()


def test_a_connection_given_up_by_its_owner_ends_all_its_threads(way):
    """While a large version is stuck on its way to a peer that neither reads nor speaks."""
    with house(way) as made:
        sock, hello = made.worker(0)
        hello.connection.post(Frame(Kind.BLOCK, 0), Version(torch.zeros(5_000_000), torch.zeros(0)))
        time.sleep(0.05)
        hello.connection.close()
        assert {type(made.inbox.get(timeout=5)) for _ in range(2)} == {Lost, Free}
        sock.close()
