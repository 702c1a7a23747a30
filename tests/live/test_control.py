"""Control connections: messages arrive in order in both directions, and either side notices the end."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from leaks import nothing_left, wait_until

from syncline.live import clock, frames, handshake, transport
from syncline.live.control import ControlServer, Lost
from syncline.live.frames import MAX_JSON, Header, Kind
from syncline.live.messages import Hello, Stop, Warn, encode
from syncline.live.process import CONTROL_LOST
from syncline.live.transport import Tls, dial

SECRET = b"the run's own"
HELLO = encode(Hello("shard", 2, "unix:there", pid=1))
WHO = ("kind", "role", "index", "address", "pid")


@pytest.fixture
def server(way):
    with nothing_left():
        made = ControlServer(way[0], SECRET, way[1])
        made.tls = way[1]
        yield made
        made.close()


def received(made: ControlServer):
    return made.messages.get(timeout=10)


# A process of the run: {} is what it does with its connection.
PROCESS = """
import sys, threading, time
from syncline.live.control import ControlClient
from syncline.live.messages import Hello, Warn
from syncline.live.transport import Tls
address, cert, key = sys.argv[1:]
hello = Hello("worker", 1, "unix:there")
known = threading.Event()
def on_message(message):
    known.wait()
    control.send(message)
control = ControlClient(address, b"the run's own", Tls(cert, key) if cert else None, hello, on_message)
known.set()
{}
while True:
    time.sleep(1)
"""

SEND_CONCURRENTLY = """
def send_all(name):
    for number in range(50):
        control.send(Warn(f"{name}" + "x" * 5000, number))
for name in range(4):
    threading.Thread(target=send_all, args=(name,)).start()
"""


@contextmanager
def process(address: str, tls: Tls | None, does: str = "") -> Iterator[subprocess.Popen]:
    paths = ["", ""] if tls is None else [tls.cert, tls.key]
    child = subprocess.Popen(
        [sys.executable, "-c", PROCESS.format(does), address, *paths], stderr=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def test_messages_arrive_in_order_in_both_directions(server):
    with process(server.address, server.tls) as child:
        peer, message = received(server)
        assert message is peer.hello
        assert (str(peer), peer.hello.pid, peer.hello.address) == ("worker 1", child.pid, "unix:there")
        for number in range(200):
            peer.send(Warn("ü" * number, number))
        for number in range(200):
            assert received(server) == (peer, Warn("ü" * number, number))
        child.kill()
        assert isinstance(received(server)[1], Lost)
        peer.send(Stop(0.0001))  # to a lost process: no error


def test_threads_that_send_concurrently_do_not_mix_their_messages(server):
    with process(server.address, server.tls, SEND_CONCURRENTLY):
        assert isinstance(received(server)[1], Hello)
        messages = [received(server)[1] for _ in range(200)]
        for name in range(4):
            assert [message.at for message in messages if message.text == f"{name}" + "x" * 5000] == list(range(50))


@pytest.mark.parametrize("is_read", [True, False])
def test_a_process_ends_silently_when_the_launcher_is_lost(way, is_read):
    """Also if the launcher dies with unread messages, which resets the connection."""
    address, tls = way
    with nothing_left(), transport.listen(address) as listener:
        place = transport.address_of(listener)
        with process(place, tls, "" if is_read else "for _ in range(100): control.send(Warn('', 0.0))") as child:
            sock = handshake.admit(listener.accept()[0], SECRET, tls)
            while frames.receive_json(sock)["kind"] == "clock":
                clock.answer_clock(sock)
            time.sleep(0.1)
            sock.close()
            _, said = child.communicate(timeout=10)
            assert (child.returncode, said) == (CONTROL_LOST, "")


# Hostile peers


def test_messages_of_unauthenticated_peers_are_ignored(server):
    for said in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(200), Header(Kind.JSON, size=2).pack() + b"{}"):
        with dial(server.address) as sock, contextlib.suppress(OSError):
            sock.sendall(said)
    with pytest.raises(OSError):  # noqa: PT011  # which one depends on who hangs up first
        handshake.connect(server.address, b"a guess", server.tls)
    assert server.messages.empty()


@pytest.mark.parametrize(
    "hello",
    [
        {},
        *({**HELLO, field: value} for field in WHO for value in (None, [], {}, 1.5, True)),
        *({key: value for key, value in HELLO.items() if key != field} for field in HELLO),
        {**HELLO, "index": "2"},
        {**HELLO, "kind": "Ready"},
        {**HELLO, "more": 1},
        {**HELLO, "address": "x" * MAX_JSON},
    ],
    ids=lambda hello: str(hello)[:60],
)
def test_an_invalid_hello_is_ignored(hello):
    with nothing_left():
        made = ControlServer("unix:", SECRET, None)
        sock = handshake.connect(made.address, SECRET)
        with contextlib.suppress(OSError):
            frames.send_json(sock, hello)
            sock.settimeout(10)
            assert sock.recv(1) == b""
        assert made.messages.empty()
        sock.close()
        made.close()


@pytest.mark.parametrize("said", [Header(Kind.STOP).pack(), Header(Kind.JSON, size=1).pack() + b"[", b"no frame" * 20])
def test_a_process_that_violates_the_protocol_is_lost(said):
    with nothing_left():
        made = ControlServer("unix:", SECRET, None)
        sock = handshake.connect(made.address, SECRET)
        frames.send_json(sock, HELLO)
        assert isinstance(received(made)[1], Hello)
        sock.sendall(said)
        assert isinstance(received(made)[1], Lost)
        sock.close()
        made.close()


@pytest.mark.parametrize("way", ["unix", "tcp with TLS"], indirect=True)
def test_silent_unauthenticated_peers_neither_take_all_threads_nor_block_the_run(monkeypatch, way):
    for module in (transport, handshake):
        monkeypatch.setattr(module, "HANDSHAKE_S", 0.5)
    with nothing_left():
        made = ControlServer(way[0], SECRET, way[1])
        threads = threading.active_count()
        peers = [dial(made.address) for _ in range(2 * handshake.MAX_UNPROVED)]
        assert wait_until(lambda: threading.active_count() - threads >= handshake.MAX_UNPROVED - 4)
        assert threading.active_count() - threads <= handshake.MAX_UNPROVED
        for _ in range(50):  # its own deadline is as short as theirs
            with contextlib.suppress(OSError):
                sock = handshake.connect(made.address, SECRET, way[1])
                break
        frames.send_json(sock, HELLO)
        assert isinstance(received(made)[1], Hello)
        for each in (sock, *peers):
            each.close()
        made.close()
