"""The event queue against a plain list that is sorted by (time, order of scheduling)."""

import math
from dataclasses import dataclass

from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.simulation.event_queue import EventQueue


@dataclass(eq=False)
class Event:
    number: int


class SortedList:
    """A slow and obvious queue with the same interface."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[tuple[float, int, Event]] = []

    def push(self, at: float, event: Event) -> None:
        self.events.append((at, event.number, event))

    def pop(self, until: float) -> Event | None:
        self.events.sort(key=lambda entry: entry[:2])
        if self.events[0][0] > until:
            return None
        self.now, _, event = self.events.pop(0)
        return event

    def cancel(self, event: Event) -> None:
        self.events = [entry for entry in self.events if entry[2] is not event]


# Few different delays, so that many events share a time; 0: an event that is due at once.
DELAYS_S = [0.0, 0.5, 1.0, 2.0]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.sampled_from(DELAYS_S)),
        st.tuples(st.just("pop"), st.sampled_from([*DELAYS_S, math.inf])),
        st.tuples(st.just("cancel"), st.floats(0.0, 1.0)),
        st.tuples(st.just("save"), st.just(0.0)),
    ),
    max_size=60,
)


@scaled(200)
@given(steps=steps)
def test_it_returns_what_a_sorted_list_returns(steps: list[tuple[str, float]]) -> None:
    queue, model, events = EventQueue[Event](), SortedList(), list[Event]()
    for step, value in steps:
        if step == "push":
            events.append(Event(len(events)))
            queue.push(queue.now + value, events[-1])
            model.push(model.now + value, events[-1])
        elif step == "pop" and model.events:
            assert next(queue.events(queue.now + value), None) is model.pop(model.now + value)
        elif step == "cancel" and model.events:
            at, _, event = model.events[int(value * (len(model.events) - 1))]
            model.cancel(event)
            queue.cancel(at, event)
        elif step == "save":
            state, queue = queue.state_dict(lambda event: event.number), EventQueue[Event]()
            queue.load_state_dict(state, events.__getitem__)
        assert queue.now == model.now
        due = sorted((at, event.number) for at, event in queue.scheduled())
        assert due == sorted((at, number) for at, number, _ in model.events)
    while model.events:
        assert next(queue.events(math.inf)) is model.pop(math.inf)
    assert not list(queue.events(math.inf))


def test_times_of_cancelled_events_do_not_fill_the_heap() -> None:
    queue = EventQueue[Event]()
    queue.push(1e9, Event(-1))
    for number in range(10_000):
        event = Event(number)
        queue.push(float(number), event)
        queue.cancel(float(number), event)
    assert len(queue) < 100
    assert [event.number for _, event in queue.scheduled()] == [-1]
