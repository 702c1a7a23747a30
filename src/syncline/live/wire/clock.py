"""Clocks: the run's, and those of other processes; a monotonic clock begins at another time on every host."""

import socket
import time
from dataclasses import dataclass

from syncline.live.wire.frames import receive_json, send_json
from syncline.live.wire.sockets import WireError

CLOCK_REQUESTS = 5


@dataclass(slots=True)
class RunClock:
    """Seconds of the run, by this process's monotonic clock."""

    zero_s: float = 0.0  # monotonic; set when the run begins

    def now(self) -> float:
        return time.monotonic() - self.zero_s


@dataclass(frozen=True, slots=True)
class Clock:
    """The peer's monotonic clock, relative to ours."""

    offset_s: float = 0.0  # theirs minus ours
    error_s: float = 0.0  # of the offset, at most: half of a round trip

    def to_local(self, theirs: float) -> float:
        """Our monotonic time at this moment of the peer's."""
        return theirs - self.offset_s


def measure_clock(sock: socket.socket) -> Clock:
    """The peer's clock, by the request with the shortest round trip.

    An offset within its error counts as none: on one host both are the same clock.

    Raises:
        WireError: the peer answered with something else.
    """
    best = Clock(error_s=float("inf"))
    for _ in range(CLOCK_REQUESTS):
        asked = time.monotonic()
        send_json(sock, {"kind": "clock"})
        theirs = receive_json(sock).get("now")
        now = time.monotonic()
        if not isinstance(theirs, float):
            raise WireError("an answer without the time")
        if now - asked < 2 * best.error_s:
            best = Clock(theirs - (asked + now) / 2, (now - asked) / 2)
    return best if abs(best.offset_s) > best.error_s else Clock(0.0, best.error_s)


def answer_clock(sock: socket.socket) -> None:
    """Answer one of these requests, which was received."""
    send_json(sock, {"now": time.monotonic()})
