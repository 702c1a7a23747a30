"""Sockets: addresses, TLS, options. What is said over them is wire.py's.

An address is "unix:NAME" (Linux's abstract sockets: no file that could stay behind) or "tcp:HOST:PORT".
"""

import secrets
import select
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

HANDSHAKE_S = 20.0  # a loaded machine may take seconds to schedule a process
BUFFER_BYTES = 1 << 20  # asked for on each socket
RECORD_BYTES = 1 << 20  # most that is handed to TLS at once

_T = TypeVar("_T")
_ABSTRACT = "\0syncline-"


class WireError(ConnectionError):
    """The peer sent what no peer of ours sends, or does not know the secret; the connection is of no more use."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS for hosts that share no trusted network: one certificate and its key, known to all processes of a run."""

    cert: str  # PEM file
    key: str  # PEM file

    def serve(self, sock: socket.socket) -> "TlsSocket":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        return self._wrap(context, sock, server_side=True)

    def connect(self, sock: socket.socket) -> "TlsSocket":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # the certificate itself is pinned
        context.load_verify_locations(self.cert)
        return self._wrap(context, sock, server_side=False)

    def _wrap(self, context: ssl.SSLContext, sock: socket.socket, server_side: bool) -> "TlsSocket":
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        sock.settimeout(HANDSHAKE_S)
        try:
            return TlsSocket(context.wrap_socket(sock, server_side=server_side))
        except (ssl.SSLError, TimeoutError) as error:
            raise WireError(f"TLS: {error}") from None


class TlsSocket:
    """A TLS connection that one thread may read while another one writes, which OpenSSL alone does not allow."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._timeout: float | None = None
        self.family = sock.family
        sock.setblocking(False)

    def recv_into(self, view: memoryview) -> int:
        return self._when_ready(lambda: self._sock.recv_into(view))

    def recv(self, size: int) -> bytes:
        return self._when_ready(lambda: self._sock.recv(size))

    def sendall(self, data: memoryview | bytes) -> None:
        view = memoryview(data).cast("B")
        while view.nbytes:
            part = view[:RECORD_BYTES]
            view = view[self._when_ready(lambda part=part: self._sock.send(part)) :]  # type: ignore[misc]

    def _when_ready(self, action: Callable[[], _T]) -> _T:
        while True:
            try:
                with self._lock:
                    return action()
            except ssl.SSLWantReadError:
                ready, _, _ = select.select([self._sock], [], [], self._timeout)
            except ssl.SSLWantWriteError:
                _, ready, _ = select.select([], [self._sock], [], self._timeout)
            except ssl.SSLError as error:
                raise WireError(f"TLS: {error}") from None
            if not ready:
                raise TimeoutError

    def pending(self) -> int:
        """Bytes that were received already: `fileno` does not show them as readable."""
        return self._sock.pending()

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def fileno(self) -> int:
        return self._sock.fileno()

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()


Socket = socket.socket | TlsSocket


def listen(address: str) -> socket.socket:
    """A listening socket; "unix:" and "tcp:HOST:0" pick a free name or port.

    Raises:
        OSError: the address is taken or not of this machine.
    """
    kind, _, rest = address.partition(":")
    if kind == "unix":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(f"{_ABSTRACT}{rest or secrets.token_hex(8)}")
    else:
        host, _, port = rest.rpartition(":")
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, int(port)))
    _enlarge(sock)
    sock.listen(128)
    return sock


def address_of(sock: socket.socket) -> str:
    """The address under which `connect` finds this listening socket."""
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname().decode().removeprefix(_ABSTRACT)}"
    host, port = sock.getsockname()[:2]
    return f"tcp:{host}:{port}"


def dial(address: str) -> socket.socket:
    """A connection that has proved nothing yet.

    Raises:
        OSError: nobody listens there.
    """
    kind, _, rest = address.partition(":")
    if kind == "unix":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        target: Any = f"{_ABSTRACT}{rest}"
    else:
        host, _, port = rest.rpartition(":")
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        target = (host, int(port))
    try:
        _enlarge(sock)
        sock.settimeout(HANDSHAKE_S)
        sock.connect(target)
    except BaseException:
        sock.close()
        raise
    return tune(sock)


def tune(sock: socket.socket) -> socket.socket:
    """The options of a connection: no waiting for more data, and a dead host is noticed."""
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


def _enlarge(sock: socket.socket) -> None:
    if sock.family == socket.AF_UNIX:  # TCP tunes its own
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)


def default_address() -> str:
    """For processes of one host."""
    return "unix:" if sys.platform == "linux" else "tcp:127.0.0.1:0"
