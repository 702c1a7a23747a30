"""What goes over a socket: a proof that both sides know the run's secret, then frames of checked kind and length.

    handshake   server: magic, version, 32 random bytes
                client: magic, version, 32 random bytes, HMAC-SHA256(secret, "client" | server's bytes | client's bytes)
                server: HMAC-SHA256(secret, "server" | client's bytes | server's bytes)
    frame       header of `HEADER.size` bytes, payload of header.size bytes

Until the proof is made, exactly that many bytes are read and nothing is parsed. Nothing is ever unpickled: a payload is
numbers of a length known beforehand, or JSON of at most `MAX_JSON` bytes.
"""

import hmac
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from syncline.live.transport import HANDSHAKE_S, Socket, Tls, TlsSocket, WireError, dial, tune

MAGIC = b"SYNCLINE"
VERSION = 2
NONCE = 32
PROOF = 32
MAX_JSON = 1 << 20
CLOCK_QUESTIONS = 5
READ_BYTES = 1 << 16  # asked for at a time, unless it is known where it is to go
INTRODUCTION = struct.Struct(f"!{len(MAGIC)}sH{NONCE}s")


class Kind(IntEnum):
    JSON = 1  # either way: anything but tensors
    PUSH = (
        2  # worker -> shard: gradient, buffers to the first shard, versions of all blocks where a pull rule chose them
    )
    BLOCK = 3  # shard -> worker: weights, and buffers from the first shard; the worker may go on
    STOP = 4  # shard -> worker: the run is over at this shard
    REPEAT = 5  # shard -> worker: it may go on at the version it has


HEADER = struct.Struct("!BxHIqqqIId7dQ")
_KINDS = {int(kind): kind for kind in Kind}


@dataclass(slots=True)
class Frame:
    """The header of every frame; what a kind does not need stays 0."""

    kind: Kind
    worker: int = 0
    iteration: int = 0  # PUSH: the worker's own count, from 0; BLOCK: the iteration it is to go on with
    version: int = 0  # of the block
    tag: int = 0  # PUSH: what the strategy is to take for the version
    cut: int = 0  # PUSH: since the last one, gradients whose injected delay an interrupt broke off
    wasted: int = 0  # PUSH: since the last one, gradients that were finished and not sent, for an interrupt had come
    loss: float = 0.0
    # Seconds. PUSH: when the gradient was begun and finished (of the run's clock); injected: the stretch of a slow
    # worker and the delay of the gradient, both before `computed_at`, then of the last pull and of this push.
    started_at: float = 0.0
    computed_at: float = 0.0
    slow_s: float = 0.0
    delay_s: float = 0.0
    pulled_at: float = 0.0
    pull_delay_s: float = 0.0
    push_delay_s: float = 0.0
    size: int = 0  # bytes of payload

    def pack(self) -> bytes:
        return HEADER.pack(
            self.kind,
            VERSION,
            self.worker,
            self.iteration,
            self.version,
            self.tag,
            self.cut,
            self.wasted,
            self.loss,
            self.started_at,
            self.computed_at,
            self.slow_s,
            self.delay_s,
            self.pulled_at,
            self.pull_delay_s,
            self.push_delay_s,
            self.size,
        )


def parse(header: bytes | bytearray | memoryview) -> Frame:
    """The frame of these `HEADER.size` bytes.

    Raises:
        WireError: another version, or an unknown kind.
    """
    kind, version, *rest = HEADER.unpack(header)
    if version != VERSION:
        raise WireError(f"wire format {version}, this version speaks {VERSION}")
    known = _KINDS.get(kind)
    if known is None:
        raise WireError(f"unknown kind of frame {kind}")
    return Frame(known, *rest)


def send(sock: Socket, frame: Frame, payload: Sequence[memoryview] = ()) -> None:
    """Send a frame; `frame.size` is set to the bytes of the payload."""
    frame.size = sum(part.nbytes for part in payload)
    parts = [memoryview(frame.pack()), *(part.cast("B") for part in payload if part.nbytes)]
    if isinstance(sock, TlsSocket):  # has no sendmsg
        for part in parts:
            sock.sendall(part)
        return
    while parts:
        sent = sock.sendmsg(parts)
        while parts and sent >= parts[0].nbytes:
            sent -= parts.pop(0).nbytes
        if sent:
            parts[0] = parts[0][sent:]


def receive(sock: Socket) -> Frame:
    """The next frame; its payload is still to be received.

    Raises:
        WireError: the peer closed the connection, or sent what is no frame.
    """
    header = bytearray(HEADER.size)
    receive_into(sock, memoryview(header))
    return parse(header)


def receive_into(sock: Socket, view: memoryview) -> None:
    """Fill `view` to its last byte.

    Raises:
        WireError: the peer closed the connection before.
    """
    view = view.cast("B") if view.nbytes else view
    while view.nbytes:
        view = view[_receive_some(sock, view) :]


def _receive_some(sock: Socket, view: memoryview) -> int:
    """Receive once into `view`; returns how many bytes, at least one.

    Raises:
        WireError: the peer closed the connection, or died with something unread, which resets it.
    """
    try:
        got = sock.recv_into(view)
    except ConnectionResetError:
        got = 0
    if got == 0:
        raise WireError("the connection was closed")
    return got


class Reader:
    """Frames with their payloads, in as few calls of the system as can be.

    What comes is read into a small buffer, which holds a tiny frame whole; the rest of a large payload goes straight to
    its place.
    """

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._begin = self._end = 0  # what was received and not taken yet
        self._missing: list[memoryview] = []  # of the payload that was begun

    @property
    def pending(self) -> bool:
        """Something was received already: the socket may not show as readable."""
        return self._end > self._begin or (isinstance(self._sock, TlsSocket) and self._sock.pending() > 0)

    def next(self) -> Frame:
        """The next frame; its payload is still to be taken.

        Raises:
            WireError: the peer closed the connection, or sent what is no frame.
        """
        if self._begin == self._end:
            self._begin = self._end = 0
        elif READ_BYTES - self._begin < HEADER.size:
            left = self._end - self._begin
            self._buffer[:left] = bytes(self._buffer[self._begin : self._end])
            self._begin, self._end = 0, left
        while self._end - self._begin < HEADER.size:
            self._end += _receive_some(self._sock, self._buffer[self._end :])
        frame = parse(self._buffer[self._begin : self._begin + HEADER.size])
        self._begin += HEADER.size
        return frame

    def payload(self, frame: Frame, views: Sequence[memoryview]) -> None:
        """Take the payload of `frame`, which must be exactly as long as `views` together.

        Raises:
            WireError: it is not, or the peer closed the connection.
        """
        is_whole = self.begin(frame, views)
        while not is_whole:
            is_whole = self.more()

    def begin(self, frame: Frame, views: Sequence[memoryview]) -> bool:
        """As `payload`, without waiting. Returns whether it is there already; else `more` goes on with it.

        Raises:
            WireError: it is of another length.
        """
        expected = sum(view.nbytes for view in views)
        if frame.size != expected:
            raise WireError(f"{frame.kind.name} of {frame.size} bytes, expected {expected}")
        self._missing.clear()
        for view in views:
            here = min(self._end - self._begin, view.nbytes)
            if here:
                view[:here] = self._buffer[self._begin : self._begin + here]
                self._begin += here
            if here < view.nbytes:
                self._missing.append(view[here:])
        return not self._missing

    def more(self) -> bool:
        """Receive once what is missing of the payload that was begun. Returns whether it is whole.

        Raises:
            WireError: the peer closed the connection.
        """
        place = self._missing[0]
        got = _receive_some(self._sock, place)
        if got < place.nbytes:
            self._missing[0] = place[got:]
        else:
            del self._missing[0]
        return not self._missing


def send_json(sock: Socket, message: dict[str, Any]) -> None:
    send(sock, Frame(Kind.JSON), [memoryview(json.dumps(message).encode())])


def receive_json(sock: Socket) -> dict[str, Any]:
    """The next frame, which must be JSON.

    Raises:
        WireError: it is not, it is too long, or no object.
    """
    frame = receive(sock)
    if frame.kind is not Kind.JSON:
        raise WireError(f"{frame.kind.name} where JSON was expected")
    return receive_json_payload(sock, frame)


def receive_json_payload(sock: Socket, frame: Frame) -> dict[str, Any]:
    """The payload of a frame of JSON; errors as `receive_json`."""
    if frame.size > MAX_JSON:
        raise WireError(f"JSON of {frame.size} bytes, at most {MAX_JSON} are allowed")
    text = bytearray(frame.size)
    receive_into(sock, memoryview(text))
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"broken JSON ({type(error).__name__})") from None
    if not isinstance(message, dict):
        raise WireError("JSON that is no object")
    return message


# Clocks


@dataclass(frozen=True, slots=True)
class Clock:
    """The peer's monotonic clock, which on another host began at another time."""

    offset_s: float = 0.0  # it minus ours
    error_s: float = 0.0  # of this, at most: half of a round trip

    def ours(self, theirs: float) -> float:
        """Our monotonic time at this moment of the peer's."""
        return theirs - self.offset_s


def ask_clock(sock: Socket) -> Clock:
    """How far the peer's clock is from ours, by the quickest of a few questions.

    An offset within its error is taken for none: on one host both are the same clock.
    """
    best = Clock(error_s=float("inf"))
    for _ in range(CLOCK_QUESTIONS):
        asked = time.monotonic()
        send_json(sock, {"kind": "clock"})
        theirs = receive_json(sock).get("now")
        now = time.monotonic()
        if not isinstance(theirs, float):
            raise WireError("an answer without the time")
        if now - asked < 2 * best.error_s:
            best = Clock(theirs - (asked + now) / 2, (now - asked) / 2)
    return best if abs(best.offset_s) > best.error_s else Clock(0.0, best.error_s)


def tell_clock(sock: Socket) -> None:
    """Answer one of its questions, which was received."""
    send_json(sock, {"now": time.monotonic()})


# Proof of the secret


def make_secret(path: Path) -> bytes:
    """A new secret, in a file that only its owner may read; whatever was there is replaced."""
    secret = secrets.token_hex(32).encode()
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
    return secret


def admit(sock: Socket, secret: bytes) -> None:
    """The server's side of the handshake.

    Raises:
        WireError: the peer does not know the secret, speaks another version, or is too slow.
    """
    nonce = secrets.token_bytes(NONCE)
    with _deadline(sock) as receive_all:
        sock.sendall(INTRODUCTION.pack(MAGIC, VERSION, nonce))
        answer = receive_all(INTRODUCTION.size + PROOF)
        theirs = _introduction(answer[: INTRODUCTION.size])
        if not hmac.compare_digest(answer[INTRODUCTION.size :], _proof(secret, b"client", nonce, theirs)):
            raise WireError("the peer does not know the run's secret")
        sock.sendall(_proof(secret, b"server", theirs, nonce))


def prove(sock: Socket, secret: bytes) -> None:
    """The client's side of the handshake.

    Raises:
        WireError: as `admit`.
    """
    nonce = secrets.token_bytes(NONCE)
    with _deadline(sock) as receive_all:
        theirs = _introduction(receive_all(INTRODUCTION.size))
        sock.sendall(INTRODUCTION.pack(MAGIC, VERSION, nonce) + _proof(secret, b"client", theirs, nonce))
        if not hmac.compare_digest(receive_all(PROOF), _proof(secret, b"server", nonce, theirs)):
            raise WireError("the server does not know the run's secret")


class _deadline:
    """The handshake as a whole has `HANDSHAKE_S`: a peer that sends a byte now and then gets no more."""

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        self._ends = time.monotonic() + HANDSHAKE_S

    def __enter__(self) -> "_deadline":
        self._sock.settimeout(HANDSHAKE_S)
        return self

    def __call__(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            self._sock.settimeout(max(self._ends - time.monotonic(), 1e-3))
            try:
                part = self._sock.recv(size - len(received))
            except TimeoutError:
                raise WireError(f"no proof of the secret within {HANDSHAKE_S:g} s") from None
            if not part:
                raise WireError("the connection was closed before the proof of the secret")
            received += part
        return bytes(received)

    def __exit__(self, *_: object) -> None:
        self._sock.settimeout(None)


def _introduction(data: bytes) -> bytes:
    magic, version, nonce = INTRODUCTION.unpack(data)
    if magic != MAGIC:
        raise WireError("the peer is none of ours")
    if version != VERSION:
        raise WireError(f"the peer speaks wire format {version}, this version {VERSION}")
    assert isinstance(nonce, bytes)
    return nonce


def _proof(secret: bytes, role: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(secret, role + first + second, "sha256")


def connect(
    address: str, secret: bytes, tls: Tls | None = None, dead_s: float | None = None, timeout_s: float = HANDSHAKE_S
) -> Socket:
    """A connection that has proved the secret; `dead_s` and `timeout_s` as in `dial`.

    Raises:
        OSError: nobody listens there. WireError: the handshake failed.
    """
    raw = dial(address, dead_s, timeout_s)
    sock: Socket = raw
    try:
        if tls is not None:
            sock = tls.connect(raw)
        prove(sock, secret)
    except BaseException:
        sock.close()
        raise
    return sock


def welcome(raw: socket.socket, secret: bytes, tls: Tls | None = None) -> Socket:
    """The server's side of `connect`, of a connection that it has accepted; errors close it."""
    sock: Socket = raw
    try:
        tune(raw)
        if tls is not None:
            sock = tls.serve(raw)
        admit(sock, secret)
    except BaseException:
        sock.close()
        raise
    return sock
