"""Sockets of every kind: what is sent arrives complete, every wait ends, nothing is leaked."""

import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from leaks import nothing_left

from syncline.live import frames, handshake, transport
from syncline.live.frames import Header, Kind
from syncline.live.transport import Socket, TlsSocket, WireError, address_of, dial, listen, spin_seconds, wait_readable

SECRET = b"the run's own"
RECORD_OF_16K = b"\x17\x03\x03\x40\x00"  # the header of a TLS record that never follows


@contextmanager
def connected(way) -> Iterator[tuple[Socket, Socket]]:
    """Client and server after the handshake; nothing of them is leaked."""
    address, tls = way
    served = []
    with nothing_left():
        with listen(address) as listener:

            def serve() -> None:
                served.append(handshake.admit(listener.accept()[0], SECRET, tls))

            thread = threading.Thread(target=serve)
            thread.start()
            client = handshake.connect(address_of(listener), SECRET, tls)
            thread.join()
        try:
            yield client, served[0]
        finally:
            client.close()
            served[0].close()


@contextmanager
def outcome_of(action) -> Iterator[list]:
    """What `action`, on a thread of its own, returned or raised."""
    outcome = []

    def run() -> None:
        try:
            outcome.append(action())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield outcome
    thread.join(10)
    assert not thread.is_alive(), "it waits for ever"


def plain(sock: Socket) -> socket.socket:
    return sock._sock if isinstance(sock, TlsSocket) else sock


def test_a_payload_of_many_parts_arrives_complete_at_a_slow_reader(way):
    parts = [b"", os.urandom(1), b"", os.urandom(70_000), os.urandom(1_000_000), b""]
    with connected(way) as (client, server):
        plain(client).setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)  # every send is a partial one

        def send_twice() -> None:
            for iteration in (5, 6):
                frames.send(client, Header(Kind.PUSH, iteration=iteration), [memoryview(part) for part in parts])
            frames.send(client, Header(Kind.STOP))

        with outcome_of(send_twice) as outcome:
            for iteration in (5, 6):
                frame = frames.receive(server)
                assert (frame.iteration, frame.size) == (iteration, sum(map(len, parts)))
                received = bytearray(frame.size)
                for begin in range(0, frame.size, 100_000):
                    frames.receive_into(server, memoryview(received)[begin : begin + 100_000])
                    time.sleep(0.001)
                assert received == b"".join(parts)
            assert frames.receive(server).kind is Kind.STOP
        assert outcome == [None]


def test_a_thread_that_waits_for_a_connection_is_woken_when_this_side_ends_it(way):
    """One thread reads, one is blocked writing to a peer that reads nothing; a third one ends both."""
    for pause_s in (0.0, 0.0, 0.001, 0.001, 0.05):
        with connected(way) as (_, server):

            def write(server=server) -> None:
                while True:
                    frames.send(server, Header(Kind.BLOCK), [memoryview(bytes(2_000_000))])

            def read(server=server) -> None:
                frames.receive(server)

            with outcome_of(write) as writing, outcome_of(read) as reading:
                time.sleep(pause_s)
                server.shutdown(socket.SHUT_RDWR)
                server.close()
            assert isinstance(writing[0], OSError), repr(writing[0])
            assert isinstance(reading[0], OSError), repr(reading[0])


def test_what_was_sent_before_the_end_is_still_read_over_tls(two_certificates):
    """And not as it looked on the wire: a socket that was shut down does not fall back to plain bytes."""
    with connected(("tcp:127.0.0.1:0", two_certificates[0])) as (client, server):
        client.sendall(b"secret words")
        time.sleep(0.05)
        server.shutdown(socket.SHUT_WR)
        assert server.recv(100) == b"secret words"


def test_a_read_beyond_its_timeout_fails(way):
    with connected(way) as (_, server):
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.recv(1)


def test_a_connection_with_a_high_number_serves_too(two_certificates):
    """Above 1024, the limit of select()."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("this system allows no so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    low = [os.open(os.devnull, os.O_RDONLY) for _ in range(1050)]
    try:
        with connected(("unix:", two_certificates[0])) as (client, server):
            assert server.fileno() > 1024
            server.settimeout(0.01)
            with pytest.raises(TimeoutError):
                server.recv(1)
            client.sendall(b"!")
            assert server.recv(1) == b"!"
    finally:
        for number in low:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Unauthenticated peers


def lower_patience(monkeypatch, seconds: float) -> None:
    for module in (transport, handshake):
        monkeypatch.setattr(module, "HANDSHAKE_S", seconds)


@pytest.mark.parametrize("stage", ["before TLS", "in its handshake", "behind TLS", "in a record"])
def test_a_peer_that_sends_byte_by_byte_over_tls_meets_the_deadline(monkeypatch, two_certificates, stage):
    tls, _ = two_certificates
    lower_patience(monkeypatch, 0.4)
    with nothing_left(), listen("tcp:127.0.0.1:0") as listener:
        begun = time.monotonic()
        with outcome_of(lambda: handshake.admit(listener.accept()[0], SECRET, tls)) as outcome:
            sock = dial(address_of(listener))
            dribbled = b"S"
            if stage == "in its handshake":
                sock.sendall(b"\x16\x03\x01\x20\x00\x01")
            elif stage != "before TLS":
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                sock = context.wrap_socket(sock)
                if stage == "in a record":
                    inner = sock
                    sock = socket.socket(fileno=os.dup(inner.fileno()))
                    inner.close()
                    sock.sendall(RECORD_OF_16K)
            with sock:
                while not outcome and time.monotonic() - begun < 4 and dribbled:
                    time.sleep(0.02)
                    try:
                        sock.send(dribbled if stage != "before TLS" else b"")
                    except OSError:
                        break
        assert isinstance(outcome[0], WireError), repr(outcome[0])
        assert time.monotonic() - begun < 2, "the deadline restarted with every byte"


def test_a_client_drops_a_silent_server(monkeypatch, way):
    address, tls = way
    lower_patience(monkeypatch, 0.3)
    with nothing_left(), listen(address) as listener, pytest.raises(WireError):
        handshake.connect(address_of(listener), SECRET, tls)


def test_a_client_without_an_answer_leaves_no_socket(way):
    address, tls = way
    with nothing_left():
        with listen(address) as listener:
            place = address_of(listener)
        with pytest.raises(OSError, match="refused"):
            handshake.connect(place, SECRET, tls)


def test_an_address_is_used_once(way):
    with listen(way[0]) as listener, pytest.raises(OSError, match="in use"):
        listen(address_of(listener))


def test_a_server_with_another_certificate_is_refused(two_certificates):
    ours, other = two_certificates
    with nothing_left(), listen("tcp:127.0.0.1:0") as listener:
        with (
            outcome_of(lambda: handshake.admit(listener.accept()[0], SECRET, other)) as outcome,
            pytest.raises(WireError, match="certificate verify failed"),
        ):
            handshake.connect(address_of(listener), SECRET, ours)
        assert isinstance(outcome[0], WireError)


def test_an_eavesdropper_sees_neither_the_preamble_nor_a_frame(two_certificates):
    """All bytes of a session through a relay."""
    tls, _ = two_certificates
    seen = bytearray()
    with nothing_left(), listen("unix:") as inside, listen("unix:") as outside:

        def serve() -> None:
            sock = handshake.admit(inside.accept()[0], SECRET, tls)
            frames.receive_json(sock)
            sock.close()

        def relay() -> None:
            with outside.accept()[0] as left, dial(address_of(inside)) as right:
                back = threading.Thread(target=copy, args=(right, left))
                back.start()
                copy(left, right)
                back.join()

        def copy(source, target) -> None:
            try:
                while data := source.recv(1 << 16):
                    seen.extend(data)
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        with outcome_of(serve) as served, outcome_of(relay):
            sock = handshake.connect(address_of(outside), SECRET, tls)
            frames.send_json(sock, {"said": "in confidence"})
            sock.close()
        assert served == [None]
    assert len(seen) > 1000
    assert handshake.MAGIC not in seen
    assert b"in confidence" not in seen


@pytest.mark.parametrize("spin_s", [0.0, 1e-4, 10.0])
def test_who_waits_for_one_of_several_sockets_is_told_which_can_be_read(spin_s):
    """Whether it spins or sleeps: at once, while it waits, or not within the time."""
    pairs = [socket.socketpair() for _ in range(3)]
    ours, theirs = zip(*pairs, strict=True)
    try:
        begun = time.monotonic()
        assert wait_readable(ours, 0.05, spin_s) == []
        assert 0.05 <= time.monotonic() - begun < 5
        assert wait_readable(ours, 0.0, spin_s) == []
        late = threading.Timer(0.05, theirs[1].sendall, [b"x"])
        late.start()
        assert wait_readable(ours, None, spin_s) == [ours[1]]
        theirs[2].close()
        assert wait_readable(ours, None, spin_s) == [ours[1], ours[2]]
        late.join()
    finally:
        for sock in (*ours, *theirs):
            sock.close()


@pytest.mark.parametrize(("cores", "threads", "polls"), [(3, 3, True), (2, 3, False), (6, 4, True)])
def test_only_where_each_thread_has_a_core_it_polls(cores, threads, polls, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert (spin_seconds(threads) > 0) is polls
