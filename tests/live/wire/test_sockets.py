"""Sockets of every kind: what is sent arrives complete, every wait ends, nothing is leaked."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from leaks import nothing_left
from live.peers import SECRET, outcome_of, shorten_handshake

from syncline.live.wire import frames, handshake
from syncline.live.wire.frames import Header, Kind
from syncline.live.wire.sockets import WireError, address_of, dial, listen, spin_seconds, wait_readable


@contextmanager
def connected(way) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Client and server after the handshake; nothing of them is leaked."""
    with nothing_left():
        with listen(way) as listener, outcome_of(lambda: handshake.admit(listener.accept()[0], SECRET)) as served:
            client = handshake.connect(address_of(listener), SECRET)
        try:
            yield client, served[0]
        finally:
            client.close()
            served[0].close()


def test_a_payload_of_many_parts_arrives_complete_at_a_slow_reader(way):
    parts = [b"", os.urandom(1), b"", os.urandom(70_000), os.urandom(1_000_000), b""]
    with connected(way) as (client, server):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)  # every send is a partial one

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
    for pause_s in (0.0, 0.001, 0.05):
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


def test_a_read_beyond_its_timeout_fails(way):
    with connected(way) as (_, server):
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.recv(1)


def test_a_connection_with_a_high_number_serves_too(way):
    """Above 1024, the limit of select()."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("this system allows no so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    low = [os.open(os.devnull, os.O_RDONLY) for _ in range(1050)]
    try:
        with connected(way) as (client, server):
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


def test_a_peer_that_sends_byte_by_byte_meets_the_deadline(monkeypatch):
    shorten_handshake(monkeypatch, 0.4)
    with nothing_left(), listen("tcp:127.0.0.1:0") as listener:
        with (
            outcome_of(lambda: handshake.admit(listener.accept()[0], SECRET)) as outcome,
            dial(address_of(listener)) as sock,
        ):
            while not outcome:  # a deadline that restarts with every byte never comes
                time.sleep(0.02)
                with suppress(OSError):
                    sock.send(b"S")
        assert isinstance(outcome[0], WireError), repr(outcome[0])
        assert str(outcome[0]) == "no proof of the secret within 0.4 s"


def test_a_client_drops_a_silent_server(monkeypatch, way):
    shorten_handshake(monkeypatch, 0.3)
    with nothing_left(), listen(way) as listener, pytest.raises(WireError):
        handshake.connect(address_of(listener), SECRET)


def test_a_client_without_an_answer_leaves_no_socket(way):
    with nothing_left():
        with listen(way) as listener:
            place = address_of(listener)
        with pytest.raises(OSError, match="refused"):
            handshake.connect(place, SECRET)


def test_an_address_is_used_once(way):
    with listen(way) as listener, pytest.raises(OSError, match="in use"):
        listen(address_of(listener))


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
