"""The events of a run in virtual time, ordered by time and then by the order in which they were scheduled."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

_E = TypeVar("_E")


class EventQueue(Generic[_E]):
    """A heap of times, each of them once and as a plain float, beside what is due at them.

    With 10,000 workers the size of what is touched decides the speed. Therefore events are not in the heap, and a time
    stays in it when its events have been cancelled.
    """

    def __init__(self) -> None:
        self.now = 0.0  # seconds; of the event that came last
        self._due: dict[float, _E | list[_E]] = {}  # several events at one time are a list, in order
        self._times: list[float] = []  # the heap
        self._current: deque[_E] = deque()  # due now, after the event that came last

    def push(self, at: float, event: _E) -> None:
        """Schedule an event, which is no list, at a time that is not before `now`."""
        due = self._due.setdefault(at, event)
        if due is event:
            heappush(self._times, at)
        elif type(due) is list:
            due.append(event)
        else:
            self._due[at] = [due, event]  # type: ignore[list-item]

    def events(self, until: float) -> Iterator[_E]:
        """The events up to a time, each of them at `now`; ends when none is left, or the next one comes later.

        What is scheduled meanwhile is among them. Whoever stops in between continues with another call.
        """
        due_at, times, current = self._due, self._times, self._current
        while current:
            yield current.popleft()
        while times and times[0] <= until:
            at = heappop(times)
            due = due_at.pop(at, None)
            if due is None:
                continue  # all of it was cancelled
            self.now = at
            if type(due) is list:
                current.extend(due)
                while current:
                    yield current.popleft()
            else:
                yield due  # type: ignore[misc]

    def cancel(self, at: float, event: _E) -> None:
        """Remove an event that was scheduled at this time and has not come."""
        due = self._due.get(at)
        if due == event or due == [event]:
            del self._due[at]
        elif type(due) is list and event in due:
            due.remove(event)
        else:
            self._current.remove(event)
        if len(self._times) > 64 + 4 * len(self._due):  # most times in the heap have no event left
            self._times[:] = self._due
            heapify(self._times)

    def scheduled(self) -> list[tuple[float, _E]]:
        """All events that are to come, with their times; those at one time in order."""
        first = [(self.now, event) for event in self._current]
        return first + [(at, event) for at, due in self._due.items() for event in _listed(due)]

    def __len__(self) -> int:
        """Times in the heap."""
        return len(self._times)

    def state_dict(self, plain: Callable[[_E], Any]) -> dict[str, Any]:
        """Plain types, where `plain` gives such for an event."""
        return {"now": self.now, "events": [(at, plain(event)) for at, event in self.scheduled()]}

    def load_state_dict(self, state: dict[str, Any], event: Callable[[Any], _E]) -> None:
        """Continue from what `state_dict` gave; for an empty queue."""
        self.now = state["now"]
        for at, words in state["events"]:
            self.push(at, event(words))


def _listed(due: _E | list[_E]) -> Iterable[_E]:
    return due if isinstance(due, list) else [due]
