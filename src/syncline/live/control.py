"""The talk between the launcher of a run and its processes: JSON over the same wire, an event a message.

process -> launcher   hello (role, index, pid, address), ready, progress, snapshot, warning, restart, done, stopped,
                      here (what it does, the answer to where)
launcher -> process   addresses (of the shards), begin (zero_s), where, stop, end (why)
"""

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syncline.live.transport import MAX_STRANGERS, Socket, Tls, WireError, accept, address_of, listen
from syncline.live.wire import connect, receive_json, send_json, welcome

Message = dict[str, Any]
HELLO = {"role": str, "index": int, "pid": int, "address": str}


@dataclass(eq=False)
class Peer:
    """A process of the run, as the launcher sees it."""

    sock: Socket
    role: str  # shard, worker
    index: int
    pid: int
    address: str  # a shard's
    is_done: bool = False  # it said that it has nothing left to do

    def tell(self, kind: str, **content: Any) -> None:
        with contextlib.suppress(OSError):  # its end is heard by its reader
            send_json(self.sock, {"kind": kind, **content})

    def __str__(self) -> str:
        return f"{self.role} {self.index}"


class Headquarters:
    """The launcher's end: every message of every process in one queue; {"kind": "lost"} when a connection ends."""

    def __init__(self, address: str, secret: bytes, tls: Tls | None) -> None:
        self._listener = listen(address)
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
            hello = receive_json(sock)
            if any(type(hello.get(name)) is not kind for name, kind in HELLO.items()):
                raise WireError("a hello without what it must say")
            peer = Peer(sock, **{name: hello[name] for name in HELLO})
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


class Line:
    """A process's end.

    Args:
        address: of the headquarters.
        hello: role, index and address.
        on_message: called on a thread of its own with every message.
    """

    def __init__(
        self, address: str, secret: bytes, tls: Tls | None, hello: Message, on_message: Callable[[Message], None]
    ) -> None:
        self._sock = connect(address, secret, tls)
        self._lock = threading.Lock()
        self._on_message = on_message
        self.tell("hello", pid=os.getpid(), **hello)
        threading.Thread(target=self._read, name="line", daemon=True).start()

    def tell(self, kind: str, **content: Any) -> None:
        with self._lock, contextlib.suppress(OSError):
            send_json(self._sock, {"kind": kind, **content})

    def _read(self) -> None:
        while True:
            try:
                message = receive_json(self._sock)
            except OSError:
                os._exit(1)  # the launcher is gone: nobody is left to work for
            self._on_message(message)
