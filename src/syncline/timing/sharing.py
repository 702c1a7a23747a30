"""NICs that share their bandwidth among the messages that they send or receive at one time.

This is TCP in equilibrium: rates are max-min fair at every moment (Bertsekas and Gallager, Data Networks, 2nd edition
1992, section 6.5.2). No flow could be faster without slowing down one that is no faster.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

_M = TypeVar("_M")


class Flow(NamedTuple):
    """One direction of a connection; its messages are sent one after another and arrive in that order."""

    is_push: bool
    worker: int
    shard: int

    @property
    def nics(self) -> tuple[tuple[bool, str, int], tuple[bool, str, int]]:
        """The two that it passes through, each in one direction: pushes and pulls do not share bandwidth."""
        return (self.is_push, "worker", self.worker), (self.is_push, "shard", self.shard)


class FairShareNetwork(Generic[_M]):
    """The messages in flight, and when the next of them is delivered.

    Args:
        seconds_a_byte: of every NIC, > 0.
    """

    def __init__(self, seconds_a_byte: float) -> None:
        self._seconds_a_byte = seconds_a_byte
        self._now = 0.0
        self._waiting: dict[Flow, deque[tuple[float, _M]]] = {}  # (seconds at full bandwidth, message), in order
        self._left: dict[Flow, float] = {}  # seconds that the first message still needs at full bandwidth
        self._rates: dict[Flow, float] = {}  # shares of the bandwidth, in (0, 1]
        self.next_through = math.inf
        """When the next message is delivered, if none is sent before."""

    def send(self, now: float, flow: Flow, size_bytes: int, message: _M) -> None:
        """Queue a message on its flow."""
        waiting = self._waiting.setdefault(flow, deque())
        waiting.append((size_bytes * self._seconds_a_byte, message))
        if len(waiting) == 1:
            self._advance(now)
            self._left[flow] = waiting[0][0]
            self._share()

    def through(self, now: float) -> list[_M]:
        """Remove and return the messages whose last byte the receiver's NIC has received by now.

        `now` is at most `next_through`, which is later than `now` afterwards.
        """
        messages = []
        while self.next_through <= now:  # repeats for messages of size 0 and ends that differ by rounding
            ending = [flow for flow, left in self._left.items() if self._now + left / self._rates[flow] <= now]
            self._advance(now)
            for flow in ending:
                waiting = self._waiting[flow]
                messages.append(waiting.popleft()[1])
                if waiting:
                    self._left[flow] = waiting[0][0]
                else:
                    del self._waiting[flow], self._left[flow]
            self._share()
        return messages

    def left_s(self, now: float, is_push: bool, shard: int) -> float:
        """Seconds that the messages in flight to or from a shard need at the full bandwidth of its NIC."""
        self._advance(now)
        flows = [flow for flow in self._waiting if (flow.is_push, flow.shard) == (is_push, shard)]
        later = (seconds for flow in flows for seconds, _ in islice(self._waiting[flow], 1, None))
        return sum(self._left[flow] for flow in flows) + sum(later)

    def state_dict(self, plain: Callable[[_M], Any]) -> dict[str, Any]:
        """The messages in flight in plain types; `plain` converts a message."""
        flows = [
            (list(flow), self._left[flow], [(seconds, plain(message)) for seconds, message in waiting])
            for flow, waiting in self._waiting.items()
        ]
        return {"now": self._now, "lines": flows}

    def load_state_dict(self, state: Mapping[str, Any], message: Callable[[Any], _M]) -> None:
        """Restore a state from `state_dict`; `message` reverts `plain`."""
        self._now = state["now"]
        for words, left, waiting in state["lines"]:
            flow = Flow(*words)
            self._left[flow] = left
            self._waiting[flow] = deque((seconds, message(words)) for seconds, words in waiting)
        self._share()

    def _advance(self, now: float) -> None:
        for flow, rate in self._rates.items():
            self._left[flow] = max(0.0, self._left[flow] - (now - self._now) * rate)
        self._now = now

    def _share(self) -> None:
        self._rates = rates = fair_rates(self._left)
        self.next_through = min((self._now + left / rates[flow] for flow, left in self._left.items()), default=math.inf)


def fair_rates(flows: Iterable[Flow]) -> dict[Flow, float]:
    """The max-min fair share of bandwidth, in (0, 1], of each flow.

    Progressive filling: the NIC with the smallest share for each of its flows is their bottleneck and sets their rates.
    """
    rates = dict[Flow, float]()
    open_flows = dict.fromkeys(flows)
    free = dict.fromkeys((nic for flow in open_flows for nic in flow.nics), 1.0)
    while open_flows:
        wanted = Counter(nic for flow in open_flows for nic in flow.nics)
        tightest = min(wanted, key=lambda nic: free[nic] / wanted[nic])
        part = free[tightest] / wanted[tightest]
        for flow in [flow for flow in open_flows if tightest in flow.nics]:
            rates[flow] = part
            del open_flows[flow]
            for nic in flow.nics:
                free[nic] = max(0.0, free[nic] - part)
    return rates
