"""The talk between the launcher of a run and its processes: JSON over the same wire, an event a message.

process -> launcher   clock, hello (role, index, pid, address), ready, progress, snapshot, warning, unreachable,
                      restart, done, stopped, here (what it does, the answer to where)
launcher -> process   now (the answer to clock), addresses (of the shards), begin (zero_s, on the launcher's clock),
                      where, stop, end (why)

The agents of several hosts speak likewise; see agent.py.
"""

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from syncline.live.exits import LINE_LOST
from syncline.live.transport import HANDSHAKE_S, MAX_STRANGERS, Socket, Tls, WireError, accept, address_of, listen
from syncline.live.wire import ask_clock, connect, receive_json, send_json, tell_clock, welcome

Message = dict[str, Any]
HELLO = {"role": str, "index": int, "pid": int, "address": str}


@dataclass(eq=False)
class Peer:
    """A process of the run, as the launcher sees it."""

    sock: Socket
    role: str  # shard, worker, agent
    index: int
    pid: int
    address: str  # a shard's; the host's, of an agent
    about: Message = field(default_factory=dict)  # what else its hello said
    is_done: bool = False  # it said that it has nothing left to do

    def tell(self, kind: str, **content: Any) -> None:
        with contextlib.suppress(OSError):  # its end is heard by its reader
            send_json(self.sock, {"kind": kind, **content})

    def hang_up(self) -> None:
        """Its reader ends, and says that it is lost."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def __str__(self) -> str:
        return f"{self.role} {self.index}"


class ControlServer:
    """The launcher's end: every message of every process in one queue; {"kind": "lost"} when a connection ends.

    Args:
        dead_s: a process whose host has given no sign of life for so long is lost.
    """

    def __init__(self, address: str, secret: bytes, tls: Tls | None, dead_s: float | None = None) -> None:
        self._listener = listen(address, dead_s)
        self._secret = secret
        self._tls = tls
        self.address = address_of(self._listener)
        self.messages: queue.SimpleQueue[tuple[Peer, Message]] = queue.SimpleQueue()
        self._strangers = threading.Semaphore(MAX_STRANGERS)
        threading.Thread(target=self._accept, name="headquarters", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def _accept(self) -> None:
        while (sock := accept(self._listener)) is not None:
            self._strangers.acquire()
            threading.Thread(target=self._meet, args=(sock,), daemon=True).start()

    def _meet(self, raw: socket.socket) -> None:
        try:
            sock = welcome(raw, self._secret, self._tls)
        except OSError:
            return  # a stranger
        finally:
            self._strangers.release()
        try:
            while (hello := receive_json(sock)).get("kind") == "clock":
                tell_clock(sock)
            if any(type(hello.get(name)) is not kind for name, kind in HELLO.items()):
                raise WireError("a hello without what it must say")
            about = {name: value for name, value in hello.items() if name not in (*HELLO, "kind")}
            peer = Peer(sock, **{name: hello[name] for name in HELLO}, about=about)
        except OSError:
            sock.close()
            return
        self.messages.put((peer, {"kind": "hello"}))
        try:
            while True:
                self.messages.put((peer, receive_json(sock)))
        except OSError as error:
            self.messages.put((peer, {"kind": "lost", "why": str(error)}))
            sock.close()


class ControlClient:
    """A process's end.

    Args:
        address: of the headquarters.
        hello: role, index and address, and whatever else is to be said.
        on_message: called on a thread of its own with every message.
        on_loss: likewise when the launcher is gone; without it the process ends, for nobody is left to work for.
        dead_s, timeout_s: as in `dial`.

    Raises:
        OSError: nobody is there. WireError: the handshake failed.
    """

    def __init__(
        self,
        address: str,
        secret: bytes,
        tls: Tls | None,
        hello: Message,
        on_message: Callable[[Message], None],
        on_loss: Callable[[], None] = lambda: os._exit(LINE_LOST),
        dead_s: float | None = None,
        timeout_s: float = HANDSHAKE_S,
    ) -> None:
        self._sock = connect(address, secret, tls, dead_s, timeout_s)
        self._lock = threading.Lock()
        self._on_message, self._on_loss = on_message, on_loss
        self.clock = ask_clock(self._sock)  # the launcher's
        self.tell("hello", pid=os.getpid(), clock_error_s=self.clock.error_s, **hello)
        threading.Thread(target=self._read, name="line", daemon=True).start()

    def tell(self, kind: str, **content: Any) -> None:
        with self._lock, contextlib.suppress(OSError):
            send_json(self._sock, {"kind": kind, **content})

    def _read(self) -> None:
        while True:
            try:
                message = receive_json(self._sock)
            except OSError:
                self._on_loss()
                return
            self._on_message(message)
