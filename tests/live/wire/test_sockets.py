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
