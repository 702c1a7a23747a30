"""Sockets: addresses, TLS, options.

An address is "unix:NAME" (Linux's abstract sockets: no file that could stay behind) or "tcp:HOST:PORT".
"""

import errno
import os
import secrets
import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

HANDSHAKE_S = 20.0  # a loaded machine may take seconds to schedule a process
BUFFER_BYTES = 1 << 20  # asked for on each socket
RECORD_BYTES = 1 << 20  # most that is handed to TLS at once
SPIN_S = 5e-5  # about what it takes to wake a thread that sleeps
TCP_THIN_LINEAR_TIMEOUTS = 16  # of Linux; `socket` does not name it
RETRY_S = 0.1  # after a temporary shortage of file descriptors or memory

_T = TypeVar("_T")
_ABSTRACT = "\0syncline-"
_TEMPORARY = {errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class WireError(ConnectionError):
    """The peer violates the protocol, or does not know the secret; the connection must be closed."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS for hosts that share no trusted network: one certificate and its key, known to all processes of a run."""

    cert: str  # PEM file
    key: str  # PEM file

    @classmethod
    def of(cls, cert: str, key: str) -> "Tls | None":
        """None if no files are given."""
        return cls(cert, key) if cert else None

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
        sock.getpeername()  # raises if it was reset already; wrap_socket would, too, but leak its socket
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
        ends = None if self._timeout is None else time.monotonic() + self._timeout
        while True:
            try:
                with self._lock:
                    return action()
            except ssl.SSLWantReadError:
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            except ssl.SSLError as error:
                raise WireError(f"TLS: {error}") from None
            poll = select.poll()
            try:
                poll.register(self._sock, event)
            except ValueError:
                raise WireError("the connection was closed") from None
            if not poll.poll(None if ends is None else max(ends - time.monotonic(), 0.0) * 1000):
                raise TimeoutError

    def pending(self) -> int:
        """Bytes that were received already: `fileno` does not show them as readable."""
        return self._sock.pending()

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def fileno(self) -> int:
        return self._sock.fileno()

    def shutdown(self, how: int) -> None:
        # Not SSLSocket's own, after which the threads that read and write would go on without TLS.
        socket.socket.shutdown(self._sock, how)

    def close(self) -> None:
        with self._lock:
            self._sock.close()


Socket = socket.socket | TlsSocket


def listen(address: str, dead_s: float | None = None) -> socket.socket:
    """A listening socket; "unix:" and "tcp:HOST:0" pick a free name or port, "tcp:HOST:LOW-HIGH" one of these.

    Args:
        dead_s: as in `dial`, of the connections that are accepted.

    Raises:
        OSError: the address is in use, or not one of this machine.
    """
    kind, _, rest = address.partition(":")
    if kind == "unix":
        return _bind(socket.AF_UNIX, f"{_ABSTRACT}{rest or secrets.token_hex(8)}", dead_s)
    host, _, port = rest.rpartition(":")
    low, _, high = port.partition("-")
    for number in range(int(low), int(high or low) + 1):
        try:
            return _bind(socket.AF_INET, (host, number), dead_s)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or number == int(high or low):
                raise
    raise AssertionError("a range of ports is not empty")


def _bind(family: int, address: Any, dead_s: float | None) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        _prepare(sock, dead_s)  # inherited by the connections that it accepts
        sock.listen(128)
    except BaseException:
        sock.close()
        raise
    return sock


def accept(listener: socket.socket) -> socket.socket | None:
    """The next connection; None when the listener was closed."""
    while True:
        try:
            return listener.accept()[0]
        except OSError as error:
            if error.errno not in _TEMPORARY:
                return None
            time.sleep(RETRY_S)


def address_of(sock: socket.socket) -> str:
    """The address under which `connect` finds this listening socket."""
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname().decode().removeprefix(_ABSTRACT)}"
    host, port = sock.getsockname()[:2]
    return f"tcp:{host}:{port}"


def dial(address: str, dead_s: float | None = None, timeout_s: float = HANDSHAKE_S) -> socket.socket:
    """A connection before the handshake.

    Args:
        dead_s: it ends when the peer's host has not answered for so long; None: the system's default.
        timeout_s: to be connected.

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
        _prepare(sock, dead_s)
        sock.settimeout(timeout_s)
        sock.connect(target)
    except BaseException:
        sock.close()
        raise
    return tune(sock)


def tune(sock: socket.socket) -> socket.socket:
    """Set the options of a connection: no delay for small messages, keep-alive probes, and more frequent repetitions.

    A small message that is lost is sent again up to six times without a longer pause each time: over a network that
    loses many packets, a host that is there would else not answer for seconds, and be treated as lost.
    """
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            sock.setsockopt(socket.IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1)
    return sock


def _prepare(sock: socket.socket, dead_s: float | None) -> None:
    """Set what must be set before the connection: buffers, and keep-alive probes, a few before it ends."""
    if sock.family == socket.AF_UNIX:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # TCP tunes its own
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    elif dead_s is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        interval_s = max(1, int(dead_s / 4))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, interval_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(1000 * dead_s)))


def spin_seconds(threads: int) -> float:
    """How long `wait_readable` is to poll on a host with so many busy threads: only if each has a core of its own."""
    return SPIN_S if threads <= len(os.sched_getaffinity(0)) else 0.0


def wait_readable(socks: Sequence[Socket], timeout_s: float | None, spin_s: float = 0.0) -> list[Socket]:
    """Wait until one of these can be read. Returns those that can; none: not within so many seconds.

    Args:
        spin_s: how long to poll before the thread sleeps; see `spin_seconds`.
    """
    if timeout_s is not None:
        spin_s = min(spin_s, timeout_s)
        timeout_s -= spin_s
    ends = time.monotonic() + spin_s
    while time.monotonic() < ends:
        if readable := select.select(socks, [], [], 0.0)[0]:
            return readable
    return select.select(socks, [], [], timeout_s)[0]
