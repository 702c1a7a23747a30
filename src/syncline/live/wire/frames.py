"""Frames over a socket: a header of checked kind and length, then the payload.

    frame    header of `HEADER.size` bytes, payload of `Header.size` bytes
    payload  PUSH   the gradient, buffers to the first shard, versions of all blocks if a pull rule chose them, the
                    worker's report
             BLOCK, HELD   weights, and buffers from the first shard
             JSON   an object
             REPLICA   weights, buffers and counts of an asynchronous peer
             STOP, REPEAT, SAVE, AVERAGE   none

Nothing is ever unpickled: a payload is numbers of a length known beforehand, or JSON of at most `MAX_JSON` bytes.
"""

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from syncline.live.wire.sockets import WireError
from syncline.server.report import PushReport

if TYPE_CHECKING:
    from torch import Tensor

VERSION = 8  # of the format
MAX_JSON = 1 << 20
DIRECT_BYTES = 1 << 16  # a payload up to this size is sent by the calling thread: handing it over would take longer
READ_BYTES = 1 << 16  # received at a time, unless the destination is known
HEADER = struct.Struct("!B?HqqddQ")
REPORT = struct.Struct("!IqqqdII8d")  # the fields of PushReport, in order
_report_fields = attrgetter(*(field.name for field in fields(PushReport)))


class Kind(IntEnum):
    JSON = 1  # either direction: anything but tensors
    PUSH = 2  # worker -> shard
    BLOCK = 3  # shard -> worker: the worker may continue with this block
    STOP = 4  # shard -> worker: the run has ended at this shard
    REPEAT = 5  # shard -> worker: the worker may continue at the version it has
    SAVE = 6  # shard -> worker: a checkpoint has been written, in which the worker's next push was that of `iteration`
    HELD = 7  # shard -> worker: the block at which the worker was held when the run resumes; its answer is yet to come
    AVERAGE = 8  # peer -> peer: the replicas of both are to become their mean
    REPLICA = 9  # either direction: that of the sender, of this version


_KINDS = {int(kind): kind for kind in Kind}
_WITHOUT_PAYLOAD = frozenset({Kind.STOP, Kind.REPEAT, Kind.SAVE, Kind.AVERAGE})


@dataclass(frozen=True, slots=True)
class Header:
    """What precedes every payload. All but `kind`, `size` and a replica's version belong to blocks or SAVE, else 0."""

    kind: Kind
    size: int = 0  # bytes of payload
    iteration: int = 0  # the worker's next
    version: int = 0  # of the block, or replica
    zero_s: float = 0.0  # the start of the run on the shard's monotonic clock
    resumes: bool = False  # the worker continues with what it kept for the checkpoint; of its first block
    checkpoint: float = 0.0  # number of the checkpoint; of SAVE alone

    def pack(self) -> bytes:
        return HEADER.pack(
            self.kind, self.resumes, VERSION, self.iteration, self.version, self.zero_s, self.checkpoint, self.size
        )


def parse(header: bytes | bytearray | memoryview) -> Header:
    """The header in these `HEADER.size` bytes.

    Raises:
        WireError: another version of the format, an unknown kind, or one that has no payload with one.
    """
    kind, resumes, version, iteration, block_version, zero_s, checkpoint, size = HEADER.unpack(header)
    if version != VERSION:
        raise WireError(f"wire format {version}, this version uses {VERSION}")
    known = _KINDS.get(kind)
    if known is None:
        raise WireError(f"unknown kind of frame {kind}")
    if size and known in _WITHOUT_PAYLOAD:
        raise WireError(f"{known.name} of {size} bytes, expected 0")
    return Header(known, size, iteration, block_version, zero_s, resumes, checkpoint)


def pack_report(report: PushReport) -> bytes:
    return REPORT.pack(*_report_fields(report))


def unpack_report(data: bytes | bytearray | memoryview) -> PushReport:
    """The report in these `REPORT.size` bytes."""
    return PushReport(*REPORT.unpack(data))


def byte_view(tensor: "Tensor") -> memoryview:
    """The bytes of a contiguous tensor on the CPU, as payload."""
    if not tensor.numel():
        return memoryview(b"")
    return memoryview(tensor.numpy()).cast("B")  # type: ignore[arg-type]  # numpy 2.4's stubs lack __buffer__ here


def send(sock: socket.socket, header: Header, payload: Sequence[memoryview] = ()) -> None:
    """Send a frame; `header.size` is set to the bytes of the payload."""
    header = replace(header, size=sum(part.nbytes for part in payload))
    parts = [memoryview(header.pack()), *(part.cast("B") for part in payload if part.nbytes)]
    while parts:
        sent = sock.sendmsg(parts)
        while parts and sent >= parts[0].nbytes:
            sent -= parts.pop(0).nbytes
        if sent:
            parts[0] = parts[0][sent:]


def receive(sock: socket.socket) -> Header:
    """As `Reader.next`; nothing beyond the header is received."""
    header = bytearray(HEADER.size)
    receive_into(sock, memoryview(header))
    return parse(header)


def receive_into(sock: socket.socket, view: memoryview) -> None:
    """Fill `view` to its last byte. Raises WireError if the peer closed the connection before."""
    view = view.cast("B") if view.nbytes else view
    while view.nbytes:
        view = view[_receive_some(sock, view) :]


def _receive_some(sock: socket.socket, view: memoryview) -> int:
    """Receive once into `view`; returns how many bytes, at least one.

    Raises:
        WireError: the peer closed the connection, or ended with unread data, which resets the connection.
    """
    try:
        got = sock.recv_into(view)
    except ConnectionResetError:
        got = 0
    if got == 0:
        raise WireError("the connection was closed")
    return got


class Reader:
    """Frames with their payloads, in as few system calls as possible.

    Received bytes go to a small buffer, which holds a tiny frame whole; the rest of a large payload goes straight to
    its destination.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._begin = self._end = 0  # of what was received and not taken yet
        self._missing: list[memoryview] = []  # of the payload that has begun

    @property
    def pending(self) -> bool:
        """Something was received already: the socket may not show as readable."""
        return self._end > self._begin

    def next(self) -> Header:
        """The next header; its payload is still to be taken.

        Raises:
            WireError: the peer closed the connection, or sent something that is not a frame.
        """
        if self._begin == self._end:
            self._begin = self._end = 0
        elif READ_BYTES - self._begin < HEADER.size:
            left = self._end - self._begin
            self._buffer[:left] = bytes(self._buffer[self._begin : self._end])
            self._begin, self._end = 0, left
        while self._end - self._begin < HEADER.size:
            self._end += _receive_some(self._sock, self._buffer[self._end :])
        header = parse(self._buffer[self._begin : self._begin + HEADER.size])
        self._begin += HEADER.size
        return header

    def payload(self, header: Header, views: Sequence[memoryview]) -> None:
        """Receive the payload of this frame, which must be exactly as long as `views` together.

        Raises:
            WireError: it is not, or the peer closed the connection.
        """
        is_complete = self.begin(header, views)
        while not is_complete:
            is_complete = self.more()

    def begin(self, header: Header, views: Sequence[memoryview]) -> bool:
        """As `payload`, without waiting. Returns whether the payload is complete; if not, `more` continues it.

        Raises:
            WireError: it is of another length.
        """
        expected = sum(view.nbytes for view in views)
        if header.size != expected:
            raise WireError(f"{header.kind.name} of {header.size} bytes, expected {expected}")
        self._missing.clear()
        for view in views:
            buffered = min(self._end - self._begin, view.nbytes)
            if buffered:
                view[:buffered] = self._buffer[self._begin : self._begin + buffered]
                self._begin += buffered
            if buffered < view.nbytes:
                self._missing.append(view[buffered:])
        return not self._missing

    def more(self) -> bool:
        """Receive once more of the payload that has begun. Returns whether it is complete.

        Raises:
            WireError: the peer closed the connection.
        """
        view = self._missing[0]
        got = _receive_some(self._sock, view)
        if got < view.nbytes:
            self._missing[0] = view[got:]
        else:
            del self._missing[0]
        return not self._missing


def send_json(sock: socket.socket, message: Mapping[str, Any]) -> None:
    send(sock, Header(Kind.JSON), [memoryview(json.dumps(message).encode())])


def receive_json(sock: socket.socket) -> dict[str, Any]:
    """The next frame, which must be a JSON object. Raises WireError if it is not, or it is too long."""
    header = receive(sock)
    if header.kind is not Kind.JSON:
        raise WireError(f"{header.kind.name} where JSON was expected")
    if header.size > MAX_JSON:
        raise WireError(f"JSON of {header.size} bytes, at most {MAX_JSON} are allowed")
    text = bytearray(header.size)
    receive_into(sock, memoryview(text))
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"broken JSON ({type(error).__name__})") from None
    if not isinstance(message, dict):
        raise WireError("JSON that is not an object")
    return message
