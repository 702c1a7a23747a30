"""The launcher's talk with its processes: in order, both ways, and an end is noticed at either side."""

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

from syncline.live import transport, wire
from syncline.live.control import ControlServer
from syncline.live.exits import LINE_LOST
from syncline.live.transport import Tls, dial
from syncline.live.wire import MAX_JSON, Frame, Kind

SECRET = b"the run's own"
HELLO = {"role": "shard", "index": 2, "pid": 1, "address": "unix:there"}


@pytest.fixture
def headquarters(way):
    with nothing_left():
        made = ControlServer(way[0], SECRET, way[1])
        made.tls = way[1]
        yield made
        made.close()


def heard(made: ControlServer):
    return made.messages.get(timeout=10)


# A process of the run: {} is what it does with its line.
PROCESS = """
import sys, threading, time
from syncline.live.control import ControlClient
from syncline.live.transport import Tls
address, cert, key = sys.argv[1:]
hello = {{"role": "worker", "index": 1, "address": "unix:there"}}
known = threading.Event()
def on_message(message):
    known.wait()
    line.tell("echo", said=message)
line = ControlClient(address, b"the run's own", Tls(cert, key) if cert else None, hello, on_message)
known.set()
{}
while True:
    time.sleep(1)
"""

TALK_AT_ONCE = """
def talk(name):
    for number in range(50):
        line.tell(str(name), number=number, text="x" * 5000)
for name in range(4):
    threading.Thread(target=talk, args=(name,)).start()
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


def test_messages_come_in_order_both_ways(headquarters):
    with process(headquarters.address, headquarters.tls) as child:
        peer, message = heard(headquarters)
        assert message == {"kind": "hello"}
        assert (str(peer), peer.pid, peer.address) == ("worker 1", child.pid, "unix:there")
        for number in range(200):
            peer.tell("progress", number=number, text="ü" * number)
        for number in range(200):
            said = {"kind": "progress", "number": number, "text": "ü" * number}
            assert heard(headquarters) == (peer, {"kind": "echo", "said": said})
        child.kill()
        assert heard(headquarters)[1]["kind"] == "lost"
        peer.tell("stop")  # to nobody: no error


def test_threads_that_tell_at_once_do_not_mix_their_words(headquarters):
    with process(headquarters.address, headquarters.tls, TALK_AT_ONCE):
        assert heard(headquarters)[1] == {"kind": "hello"}
        told = [heard(headquarters)[1] for _ in range(200)]
        for name in range(4):
            assert [message["number"] for message in told if message["kind"] == str(name)] == list(range(50))


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_process_ends_without_a_word_when_the_launcher_is_gone(way, is_heard):
    """Also when the launcher dies with words in its ear that it did not read, which resets the connection."""
    address, tls = way
    with nothing_left(), transport.listen(address) as listener:
        place = transport.address_of(listener)
        with process(place, tls, "" if is_heard else "for _ in range(100): line.tell('progress')") as child:
            sock = wire.welcome(listener.accept()[0], SECRET, tls)
            while wire.receive_json(sock)["kind"] == "clock":
                wire.tell_clock(sock)
            time.sleep(0.1)
            sock.close()
            _, said = child.communicate(timeout=10)
            assert (child.returncode, said) == (LINE_LOST, "")


# Hostile ones


def test_strangers_are_not_heard(headquarters):
    for said in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(200), Frame(Kind.JSON, size=2).pack() + b"{}"):
        with dial(headquarters.address) as sock, contextlib.suppress(OSError):
            sock.sendall(said)
    with pytest.raises(OSError):  # noqa: PT011  # which one depends on who hangs up first
        wire.connect(headquarters.address, b"a guess", headquarters.tls)
    assert headquarters.messages.empty()


@pytest.mark.parametrize(
    "hello",
    [
        {},
        *({**HELLO, field: value} for field in HELLO for value in (None, [], {}, 1.5, True)),
        *({key: value for key, value in HELLO.items() if key != field} for field in HELLO),
        {**HELLO, "index": "2"},
        {**HELLO, "address": "x" * MAX_JSON},
    ],
    ids=lambda hello: str(hello)[:60],
)
def test_a_hello_without_what_it_must_say_is_not_heard(hello):
    with nothing_left():
        made = ControlServer("unix:", SECRET, None)
        sock = wire.connect(made.address, SECRET)
        with contextlib.suppress(OSError):
            wire.send_json(sock, hello)
            sock.settimeout(10)
            assert sock.recv(1) == b""
        assert made.messages.empty()
        sock.close()
        made.close()


@pytest.mark.parametrize("said", [Frame(Kind.STOP).pack(), Frame(Kind.JSON, size=1).pack() + b"[", b"no frame" * 20])
def test_a_process_that_speaks_nonsense_is_lost(said):
    with nothing_left():
        made = ControlServer("unix:", SECRET, None)
        sock = wire.connect(made.address, SECRET)
        wire.send_json(sock, HELLO)
        assert heard(made)[1] == {"kind": "hello"}
        sock.sendall(said)
        assert heard(made)[1]["kind"] == "lost"
        sock.close()
        made.close()


@pytest.mark.parametrize("way", ["unix", "tcp with TLS"], indirect=True)
def test_silent_strangers_keep_neither_all_threads_nor_the_processes_of_the_run_away(monkeypatch, way):
    for module in (transport, wire):
        monkeypatch.setattr(module, "HANDSHAKE_S", 0.5)
    with nothing_left():
        made = ControlServer(way[0], SECRET, way[1])
        threads = threading.active_count()
        strangers = [dial(made.address) for _ in range(2 * transport.MAX_STRANGERS)]
        assert wait_until(lambda: threading.active_count() - threads >= transport.MAX_STRANGERS - 4)
        assert threading.active_count() - threads <= transport.MAX_STRANGERS
        for _ in range(50):  # its own patience is as short as theirs
            with contextlib.suppress(OSError):
                sock = wire.connect(made.address, SECRET, way[1])
                break
        wire.send_json(sock, HELLO)
        assert heard(made)[1] == {"kind": "hello"}
        for open_one in (sock, *strangers):
            open_one.close()
        made.close()
