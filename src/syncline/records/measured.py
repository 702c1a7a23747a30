"""How long gradients and messages took in a run, from its event log."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of what each worker did, in its order; a list entry a worker."""

    gradient_s: list[Array]  # from the start of each gradient to its end, injected delays included
    injected_s: list[Array]  # of each gradient: the delay that the scenario injected
    push_s: list[Array]  # from the end of a gradient to its arrival at a shard
    pull_s: list[Array]  # from the last grant to the start of the gradient that follows

    @property
    def own_s(self) -> list[Array]:
        """Seconds of each gradient without injected delays."""
        return [spent - injected for spent, injected in zip(self.gradient_s, self.injected_s, strict=True)]

    @property
    def messages_s(self) -> Array:
        """Of all pushes and pulls."""
        return np.concatenate([*self.push_s, *self.pull_s])


def measured(events: "pa.Table", num_workers: int) -> Measured:
    """What each worker's gradients and messages took.

    Gradients that were cancelled, or were still being computed at the end, are left out.

    Args:
        events: as `records.events.read_events` returns them, in the order of time.
    """
    names = ("kind", "worker", "at", "value", "because")
    kind, worker, at, value, because = (np.array(events[name].to_pylist()) for name in names)
    taken = Measured([], [], [], [])
    for number in range(num_workers):
        own = worker == number
        begins, ends = at[own & (kind == "started")], at[own & (kind == "computed")]
        began = begins[np.searchsorted(begins, ends, side="left") - 1] if len(ends) else ends
        injected = np.zeros(len(ends))
        delays = own & (kind == "delayed") & (because == "compute")
        places = np.searchsorted(ends, at[delays], side="left")
        there = places < len(ends)  # the others are of gradients that were cancelled
        np.add.at(injected, places[there], value[delays][there])
        granted = at[own & np.isin(kind, ("granted", "repeated", "resumed"))]
        pushed = at[own & (kind == "pushed")] if len(ends) else ends
        later = begins[np.searchsorted(granted, begins, side="right") > 0]
        taken.gradient_s.append(ends - began)
        taken.injected_s.append(injected)
        taken.push_s.append(pushed - _last(ends, pushed))
        taken.pull_s.append(later - _last(granted, later))
    return taken


def _last(moments: Array, before: Array) -> Array:
    """The last of these ascending moments at or before each of `before`; there is one."""
    last: Array = moments[np.searchsorted(moments, before, side="right") - 1] if len(before) else before
    return last
