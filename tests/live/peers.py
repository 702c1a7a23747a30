"""Both ends of a connection, and threads."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from syncline.live.wire import handshake, sockets

SECRET = b"the run's own"


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    a, b = socket.socketpair()
    with a, b:
        yield a, b


def in_thread(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


@contextmanager
def outcome_of(action: Callable[[], object]) -> Iterator[list]:
    """What `action`, on a thread of its own, returned or raised."""
    outcome = []

    def run() -> None:
        try:
            outcome.append(action())
        except Exception as error:
            outcome.append(error)

    thread = in_thread(run)
    yield outcome
    thread.join(30)
    assert not thread.is_alive(), "it waits for ever"


def shorten_handshake(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for module in (sockets, handshake):
        monkeypatch.setattr(module, "HANDSHAKE_S", seconds)
