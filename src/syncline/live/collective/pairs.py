"""One asynchronous peer's replica among others: averaging with one of them, and with whoever asks.

On a connection of the one that asks, after the handshake and a JSON object of kind `average`:

    AVERAGE    asks
    REPLICA    the answer, once the replica of the one that is asked is free: weights, buffers and counts, which is its
               until the averaging is over
    REPLICA    those of the one that asks; both ends compute the same mean

Each holds its own lock meanwhile, that of the lower rank first: so no circle of peers can wait for each other. A thread
a connection answers, whatever the worker does.
"""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from syncline.learning.peer_replica import PeerReplica
from syncline.live.collective.process_group import MemberLost
from syncline.live.wire.frames import Header, Kind, byte_view, receive, receive_into, send, send_json
from syncline.live.wire.handshake import connect
from syncline.live.wire.sockets import WireError


class Pairs:
    """The replica of this rank, its versions and its connections.

    Args:
        version: of the replica: averagings and steps so far.
        dead_s: as in `dial`.

    Attributes:
        lock: who holds it may change the replica, or read it.
        read_version: that the worker computes at.
        addresses: of all peers; known when the run begins.
    """

    def __init__(self, rank: int, replica: PeerReplica, version: int, secret: bytes, dead_s: float | None) -> None:
        self.lock = threading.Lock()
        self.replica, self.version, self.read_version = replica, version, version
        self.addresses: Sequence[str] = ()
        self._rank, self._secret, self._dead_s = rank, secret, dead_s
        self._links: dict[int, socket.socket] = {}  # on which this peer asks
        # What is received by who asks, and by who answers.
        self._asked, self._told = ([torch.empty_like(t, device="cpu") for t in replica.averaged] for _ in range(2))

    def read(self) -> None:
        """The worker reads the replica, whose lock is held."""
        self.replica.read()
        self.read_version = self.version

    @contextmanager
    def averaged_with(self, peer: int) -> Iterator[int]:
        """This replica, with the statistics of what was computed, and the peer's become their mean.

        Yields:
            The version of the peer's; the lock of this one is held until the end.

        Raises:
            MemberLost: the peer is lost.
        """
        with ExitStack() as held:
            try:
                link = self._link(peer)
                if self._rank < peer:
                    held.enter_context(self.lock)
                send(link, Header(Kind.AVERAGE))
                version = self._receive(link, self._asked)
                if self._rank > peer:
                    held.enter_context(self.lock)
                self.replica.take_statistics(self.version - self.read_version)
                self._send(link)
            except OSError as error:
                raise MemberLost(f"an averaging with worker {peer} failed: {error}") from None
            self._average(self._asked)
            yield version + 1

    def serve(self, sock: socket.socket) -> None:
        """Answer on this connection until it ends."""
        try:
            while receive(sock).kind is Kind.AVERAGE:
                with self.lock:
                    self._send(sock)
                    self._receive(sock, self._told)
                    self._average(self._told)
        except OSError:
            pass  # a peer that is lost is missed by the coordinator
        finally:
            sock.close()

    def close(self) -> None:
        """Ask nobody any more; the threads that answer end with the connections of those that ask."""
        for link in self._links.values():
            link.close()

    def _link(self, peer: int) -> socket.socket:
        if peer not in self._links:
            self._links[peer] = connect(self.addresses[peer], self._secret, self._dead_s)
            send_json(self._links[peer], {"kind": "average"})
        return self._links[peer]

    def _average(self, other: Sequence[Tensor]) -> None:
        self.replica.average(other)
        self.version += 1

    def _send(self, sock: socket.socket) -> None:
        parts = [byte_view(tensor.cpu()) for tensor in self.replica.averaged]
        send(sock, Header(Kind.REPLICA, version=self.version), parts)

    def _receive(self, sock: socket.socket, into: Sequence[Tensor]) -> int:
        """Returns the version of the replica that was received."""
        header, views = receive(sock), [byte_view(tensor) for tensor in into]
        if header.kind is not Kind.REPLICA or header.size != sum(view.nbytes for view in views):
            raise WireError(f"{header.kind.name} of {header.size} bytes where a replica was expected")
        for view in views:
            receive_into(sock, view)
        return header.version
