"""Control connections: messages arrive in order in both directions, and either side notices the end."""

import contextlib
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from leaks import nothing_left
from live.peers import SECRET

from syncline.live.node.control import ControlClient, ControlServer, Lost
from syncline.live.node.process import CONTROL_LOST
from syncline.live.wire import clock, frames, handshake, sockets
from syncline.live.wire.control_messages import Hello, Stop, Warn, encode
from syncline.live.wire.frames import MAX_JSON, Header, Kind
from syncline.live.wire.sockets import dial

HELLO = encode(Hello("shard", 2, "unix:there", pid=1))


@pytest.fixture
def server(way):
    with nothing_left():
        made = ControlServer(way, SECRET)
        yield made
        made.close()


def received(made: ControlServer):
    return made.messages.get(timeout=10)


# A process of the run: {} is what it does with its connection.
PROCESS = """
import sys, time
from syncline.live.node.control import ControlClient
from syncline.live.wire.control_messages import Hello, Warn
(address,) = sys.argv[1:]
hello = Hello("worker", 1, "unix:there")
control = ControlClient(address, b"the run's own", hello, print)
{}
while True:
    time.sleep(1)
"""


@contextmanager
def process(address: str, does: str = "") -> Iterator[subprocess.Popen]:
    child = subprocess.Popen([sys.executable, "-c", PROCESS.format(does), address], stderr=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def test_messages_of_several_threads_arrive_in_order_in_both_directions(server, monkeypatch):
    got, lost = queue.SimpleQueue(), threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: lost.set())
    client = ControlClient(server.address, SECRET, Hello("worker", 1, "unix:there"), got.put)
    peer, message = received(server)
    assert message is peer.hello
    assert (str(peer), peer.hello.pid, peer.hello.address) == ("worker 1", os.getpid(), "unix:there")
    for number in range(200):
        peer.send(Warn("ü" * number, number))
    assert [got.get(timeout=10) for _ in range(200)] == [Warn("ü" * number, number) for number in range(200)]

    def send_all(text: str) -> None:
        for number in range(50):
            client.send(Warn(text, number))

    texts = [f"{name}" + "x" * 5000 for name in range(4)]
    threads = [threading.Thread(target=send_all, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    messages = [received(server)[1] for _ in range(200)]
    for text in texts:
        assert [message.at for message in messages if message.text == text] == list(range(50))
    for thread in threads:
        thread.join()
    peer.sock.shutdown(socket.SHUT_RDWR)
    assert lost.wait(10)
    client._sock.close()
    assert isinstance(received(server)[1], Lost)
    peer.send(Stop(0.0001))  # to a lost process: no error


@pytest.mark.parametrize(("way", "is_read"), [("unix:", True), ("tcp:127.0.0.1:0", False)], indirect=["way"])
def test_a_process_ends_silently_when_the_coordinator_is_lost(way, is_read):
    """Also if the coordinator dies with unread messages, which resets the connection."""
    with nothing_left(), sockets.listen(way) as listener:
        place = sockets.address_of(listener)
        with process(place, "" if is_read else "for _ in range(100): control.send(Warn('', 0.0))") as child:
            sock = handshake.admit(listener.accept()[0], SECRET)
            while frames.receive_json(sock)["kind"] == "clock":
                clock.answer_clock(sock)
            time.sleep(0.1)
            sock.close()
            _, said = child.communicate(timeout=60)
            assert (child.returncode, said) == (CONTROL_LOST, "")


# Hostile peers


def test_messages_of_unauthenticated_peers_are_ignored(server):
    for said in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(200), Header(Kind.JSON, size=2).pack() + b"{}"):
        with dial(server.address) as sock, contextlib.suppress(OSError):
            sock.sendall(said)
    with pytest.raises(OSError):  # noqa: PT011  # which one depends on who hangs up first
        handshake.connect(server.address, b"a guess")
    assert server.messages.empty()


@pytest.mark.parametrize(
    "hello",
    [{}, {**HELLO, "index": "2"}, {**HELLO, "kind": "Ready"}, {**HELLO, "address": "x" * MAX_JSON}],
    ids=lambda hello: str(hello)[:60],
)
def test_an_invalid_hello_is_ignored(hello):
    with nothing_left():
        made = ControlServer("unix:", SECRET)
        sock = handshake.connect(made.address, SECRET)
        with contextlib.suppress(OSError):
            frames.send_json(sock, hello)
            sock.settimeout(10)
            assert sock.recv(1) == b""
        assert made.messages.empty()
        sock.close()
        made.close()
