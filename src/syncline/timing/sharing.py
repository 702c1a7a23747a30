"""Network cards that are shared: what goes through a card at one time goes on together, each message slower for it.

This is TCP without its ups and downs: rates are max-min fair at every moment (Bertsekas and Gallager, Data Networks,
2nd edition 1992, section 6.5.2). No message can be faster unless another one, no faster than it, were slower.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

_M = TypeVar("_M")


class Flow(NamedTuple):
    """One way of a connection: what is sent over it arrives in that order, one message after another."""

    is_push: bool
    worker: int
    shard: int

    @property
    def cards(self) -> tuple[tuple[bool, str, int], tuple[bool, str, int]]:
        """That it goes through, each one way: no push meets a pull."""
        return (self.is_push, "worker", self.worker), (self.is_push, "shard", self.shard)


class FairShareNetwork(Generic[_M]):
    """All messages under way, and when the next of them is through.

    Args:
        seconds_a_byte: of every card, > 0.
    """

    def __init__(self, seconds_a_byte: float) -> None:
        self._seconds_a_byte = seconds_a_byte
        self._now = 0.0
        # of each line in use: (seconds it needs alone, message), in order; then of the first what is left, and its rate
        self._waiting: dict[Flow, deque[tuple[float, _M]]] = {}
        self._left: dict[Flow, float] = {}
        self._rates: dict[Flow, float] = {}
        self.next_through = math.inf
        """When `through` has something to give, if nothing is sent before."""

    def send(self, now: float, line: Flow, size_bytes: int, message: _M) -> None:
        """A message is ready to go."""
        waiting = self._waiting.setdefault(line, deque())
        waiting.append((size_bytes * self._seconds_a_byte, message))
        if len(waiting) == 1:
            self._advance(now)
            self._left[line] = waiting[0][0]
            self._share()

    def through(self, now: float) -> list[_M]:
        """The messages whose last byte has left the receiver's card by now, which is not past `next_through`.

        After it `next_through` is later than now.
        """
        messages = []
        while self.next_through <= now:  # again, where one without size follows, or two end at once but for rounding
            ending = [line for line, left in self._left.items() if self._now + left / self._rates[line] <= now]
            self._advance(now)
            for line in ending:
                waiting = self._waiting[line]
                messages.append(waiting.popleft()[1])
                if waiting:
                    self._left[line] = waiting[0][0]
                else:
                    del self._waiting[line], self._left[line]
            self._share()
        return messages

    def left_s(self, now: float, is_push: bool, shard: int) -> float:
        """Seconds that what is under way to or from a shard would still keep its card busy, if it were alone there."""
        self._advance(now)
        lines = [line for line in self._waiting if (line.is_push, line.shard) == (is_push, shard)]
        later = (seconds for line in lines for seconds, _ in islice(self._waiting[line], 1, None))
        return sum(self._left[line] for line in lines) + sum(later)

    def state_dict(self, plain: Callable[[_M], Any]) -> dict[str, Any]:
        """What is under way, each message as `plain` gives it."""
        lines = [
            (list(line), self._left[line], [(seconds, plain(message)) for seconds, message in waiting])
            for line, waiting in self._waiting.items()
        ]
        return {"now": self._now, "lines": lines}

    def load_state_dict(self, state: Mapping[str, Any], message: Callable[[Any], _M]) -> None:
        """Go on from what `state_dict` gave."""
        self._now = state["now"]
        for words, left, waiting in state["lines"]:
            line = Flow(*words)
            self._left[line] = left
            self._waiting[line] = deque((seconds, message(words)) for seconds, words in waiting)
        self._share()

    def _advance(self, now: float) -> None:
        for line, rate in self._rates.items():
            self._left[line] = max(0.0, self._left[line] - (now - self._now) * rate)
        self._now = now

    def _share(self) -> None:
        self._rates = rates = fair_rates(self._left)
        self.next_through = min((self._now + left / rates[line] for line, left in self._left.items()), default=math.inf)


def fair_rates(lines: Iterable[Flow]) -> dict[Flow, float]:
    """The max-min fair part of a card, in (0, 1], that each line has.

    Card by card, the one of which a line gets least first: it is what holds its lines back, and they have done with it.
    """
    rates = dict[Flow, float]()
    open_lines = dict.fromkeys(lines)
    free = dict.fromkeys((card for line in open_lines for card in line.cards), 1.0)
    while open_lines:
        wanted = Counter(card for line in open_lines for card in line.cards)
        tightest = min(wanted, key=lambda card: free[card] / wanted[card])
        part = free[tightest] / wanted[tightest]
        for line in [line for line in open_lines if tightest in line.cards]:
            rates[line] = part
            del open_lines[line]
            for card in line.cards:
                free[card] = max(0.0, free[card] - part)
    return rates
