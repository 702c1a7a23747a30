"""NICs that share their bandwidth among the messages that they send or receive at one time.

This is TCP in equilibrium: rates are max-min fair at every moment (Bertsekas and Gallager, Data Networks, 2nd edition
1992, section 6.5.2). No flow could be faster without slowing down one that is no faster. Before equilibrium, a flow
that began later has less: its weight is smaller (discriminatory processor sharing; Altman, Avrachenkov and Ayesta 2006,
Queueing Systems 53:53-63).
"""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

_M = TypeVar("_M")
LEAST = 1e-100  # weight and rate of a flow: small, and not 0


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
        later_weight: as in `shares`.
    """

    def __init__(self, seconds_a_byte: float, later_weight: float = 1.0) -> None:
        self._seconds_a_byte, self._later_weight = seconds_a_byte, later_weight
        self._now = 0.0
        self._waiting: dict[Flow, deque[tuple[float, _M]]] = {}  # (seconds at full bandwidth, message), in order
        self._left: dict[Flow, float] = {}  # seconds of the first message left at full bandwidth; by when a flow began
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
        self._rates = rates = shares(self._left, self._later_weight)
        self.next_through = min((self._now + left / rates[flow] for flow, left in self._left.items()), default=math.inf)


def shares(flows: Iterable[Flow], later_weight: float = 1.0) -> dict[Flow, float]:
    """The share of bandwidth, in (0, 1], of each flow: max-min fair, or weighted so.

    Progressive filling: the NIC with the smallest share for each of its flows is their bottleneck and sets their rates.

    Args:
        flows: in the order in which they began.
        later_weight: weight of a flow over that of the one before it at the same NIC, in (0, 1]; 1: all are equal.
    """
    open_flows, before = dict[Flow, float](), Counter[tuple[bool, str, int]]()
    for flow in flows:
        open_flows[flow] = max(LEAST, later_weight ** max(before[nic] for nic in flow.nics))
        before.update(flow.nics)
    rates, free = dict[Flow, float](), dict.fromkeys(before, 1.0)
    while open_flows:
        wanted = defaultdict[tuple[bool, str, int], float](float)
        for flow, weight in open_flows.items():
            for nic in flow.nics:
                wanted[nic] += weight
        tightest = min(wanted, key=lambda nic: free[nic] / wanted[nic])
        part = free[tightest] / wanted[tightest]
        for flow in [flow for flow in open_flows if tightest in flow.nics]:
            rates[flow] = max(LEAST, part * open_flows.pop(flow))
            for nic in flow.nics:
                free[nic] = max(0.0, free[nic] - rates[flow])
    return rates
