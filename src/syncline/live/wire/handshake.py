"""The handshake: before anything else, both ends of a connection prove that they know the run's secret.

    server: magic, version, 32 random bytes
    client: magic, version, 32 random bytes, HMAC-SHA256(secret, "client" | server's bytes | client's bytes)
    server: HMAC-SHA256(secret, "server" | client's bytes | server's bytes)

Until then exactly that many bytes are read, and nothing is parsed.
"""

import hmac
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable

from syncline.live.wire.frames import VERSION
from syncline.live.wire.sockets import HANDSHAKE_S, WireError, accept, dial

MAGIC = b"SYNCLINE"
NONCE_BYTES = 32
PROOF_BYTES = 32
PREAMBLE = struct.Struct(f"!{len(MAGIC)}sH{NONCE_BYTES}s")
MAX_UNPROVED = 64  # connections of a listener that have not completed the handshake


def connect(address: str, secret: bytes, dead_s: float | None = None) -> socket.socket:
    """A connection after the client's side of the handshake; `dead_s` as in `dial`.

    Raises:
        OSError: nobody listens there. WireError: the handshake failed.
    """
    sock = dial(address, dead_s)
    try:
        client_handshake(sock, secret)
    except BaseException:
        sock.close()
        raise
    return sock


def admit(sock: socket.socket, secret: bytes) -> socket.socket:
    """The server's side of `connect`, for an accepted connection; an error closes it."""
    try:
        server_handshake(sock, secret)
    except BaseException:
        sock.close()
        raise
    return sock


class Listener:
    """Accepts connections and serves each that completes the handshake, on a thread of its own.

    A peer without the secret costs a thread until the handshake fails; at most `MAX_UNPROVED` are in it at once. Where
    the system starts no further thread, a connection is closed, and its peer tries again.

    Args:
        sock: listens; closing it ends the accepting.
        serve: is called on the connection's thread, and closes the connection.
        name: of the thread that accepts.
    """

    def __init__(self, sock: socket.socket, secret: bytes, serve: Callable[[socket.socket], None], name: str) -> None:
        self.refused = 0  # connections whose handshake failed
        self._sock, self._secret, self._serve = sock, secret, serve
        self._unproved = threading.Semaphore(MAX_UNPROVED)
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def _accept(self) -> None:
        while (sock := accept(self._sock)) is not None:
            self._unproved.acquire()
            try:
                threading.Thread(target=self._admit, args=(sock,), name="connection", daemon=True).start()
            except RuntimeError:  # of the limit of processes, or of memory
                sock.close()
                self._unproved.release()

    def _admit(self, sock: socket.socket) -> None:
        try:
            admit(sock, self._secret)
        except OSError:
            self.refused += 1
            return
        finally:
            self._unproved.release()
        self._serve(sock)


def server_handshake(sock: socket.socket, secret: bytes) -> None:
    """The server's side. Raises WireError if the peer does not know the secret, uses another version or is too slow."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    ends = time.monotonic() + HANDSHAKE_S  # of the handshake as a whole
    sock.settimeout(HANDSHAKE_S)
    sock.sendall(PREAMBLE.pack(MAGIC, VERSION, nonce))
    answer = _receive(sock, PREAMBLE.size + PROOF_BYTES, ends)
    theirs = _nonce(answer[: PREAMBLE.size])
    if not hmac.compare_digest(answer[PREAMBLE.size :], _proof(secret, b"client", nonce, theirs)):
        raise WireError("the peer does not know the run's secret")
    sock.sendall(_proof(secret, b"server", theirs, nonce))
    sock.settimeout(None)


def client_handshake(sock: socket.socket, secret: bytes) -> None:
    """The client's side. Raises WireError as `server_handshake`."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    ends = time.monotonic() + HANDSHAKE_S  # of the handshake as a whole
    sock.settimeout(HANDSHAKE_S)
    theirs = _nonce(_receive(sock, PREAMBLE.size, ends))
    sock.sendall(PREAMBLE.pack(MAGIC, VERSION, nonce) + _proof(secret, b"client", theirs, nonce))
    if not hmac.compare_digest(_receive(sock, PROOF_BYTES, ends), _proof(secret, b"server", nonce, theirs)):
        raise WireError("the server does not know the run's secret")
    sock.settimeout(None)


def _receive(sock: socket.socket, size: int, ends: float) -> bytes:
    """So many bytes, until this moment of the monotonic clock, also if the peer sends a byte now and then."""
    received = bytearray()
    while len(received) < size:
        sock.settimeout(max(ends - time.monotonic(), 1e-3))
        try:
            part = sock.recv(size - len(received))
        except TimeoutError:
            raise WireError(f"no proof of the secret within {HANDSHAKE_S:g} s") from None
        if not part:
            raise WireError("the connection was closed before the proof of the secret")
        received += part
    return bytes(received)


def _nonce(preamble: bytes) -> bytes:
    magic, version, nonce = PREAMBLE.unpack(preamble)
    if magic != MAGIC:
        raise WireError("the peer is not a Syncline process")
    if version != VERSION:
        raise WireError(f"the peer uses wire format {version}, this version {VERSION}")
    assert isinstance(nonce, bytes)
    return nonce


def _proof(secret: bytes, role: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(secret, role + first + second, "sha256")
