"""Sockets: addresses, options.

An address is "unix:NAME" (Linux's abstract sockets: no file that could stay behind) or "tcp:HOST:PORT".
"""

import errno
import os
import secrets
import select
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

HANDSHAKE_S = 20.0  # a loaded machine may take seconds to schedule a process
BUFFER_BYTES = 1 << 20  # asked for on each socket
SPIN_S = 5e-5  # about what it takes to wake a thread that sleeps
TCP_THIN_LINEAR_TIMEOUTS = 16  # of Linux; `socket` does not name it
RETRY_S = 0.1  # after a temporary shortage of file descriptors or memory

_ABSTRACT = "\0syncline-"
_TEMPORARY = {errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class WireError(ConnectionError):
    """The peer violates the protocol, or does not know the secret; the connection must be closed."""


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


def dial(address: str, dead_s: float | None = None) -> socket.socket:
    """A connection before the handshake.

    Args:
        dead_s: it ends when the peer's host has not answered for so long; None: the system's default.

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
        sock.settimeout(HANDSHAKE_S)
        sock.connect(target)
    except BaseException:
        sock.close()
        raise
    return sock


def _prepare(sock: socket.socket, dead_s: float | None) -> None:
    """Set what a connection has from its beginning, or from the socket that accepts it.

    Buffers; no delay for small messages; keep-alive probes, a few before the connection ends; more frequent
    repetitions: a small message that is lost is sent again up to six times without a longer pause each time. Over a
    network that loses many packets, a host that is there would else not answer for seconds, and be treated as lost.
    """
    if sock.family == socket.AF_UNIX:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # TCP tunes its own
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1)
    if dead_s is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        interval_s = max(1, int(dead_s / 4))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, interval_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(1000 * dead_s)))


def spin_seconds(threads: int) -> float:
    """How long `wait_readable` is to poll on a host with so many busy threads: only if each has a core of its own."""
    return SPIN_S if threads <= len(os.sched_getaffinity(0)) else 0.0


def wait_readable(socks: Sequence[socket.socket], timeout_s: float | None, spin_s: float = 0.0) -> list[socket.socket]:
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
