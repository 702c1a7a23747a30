"""How the workers of a run spent their time, and what bound the run.

| share | the states of records/spans.py |
|---|---|
| computing | computing and interrupted, with the delays injected there |
| sending | sending and receiving, with the delays injected there; of a collective, the exchange once all are ready |
| queueing | the part of sending for which messages queue at a NIC, where known; not included in sending |
| waiting | held by the strategy or at a barrier; with a pull rule, for blocks, including their transfer |
| absent | absent |

A run is bound by the network if a link of the server was busy for a larger share of the time than any worker computed,
or if workers spent most time sending and queueing. Else it is bound by computing or by waiting, whichever took more
time.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.records import spans
from syncline.records.spans import Timeline
from syncline.strategies.collective import Averaging

if TYPE_CHECKING:
    import pyarrow as pa

NETWORK = "network"
_SHARE_OF = {
    **dict.fromkeys((spans.COMPUTING, spans.INTERRUPTED), "computing"),
    **dict.fromkeys((spans.SENDING, spans.RECEIVING), "sending"),
    **dict.fromkeys((spans.ANSWER, spans.WAITING, spans.BLOCKS), "waiting"),
    spans.ABSENT: "absent",
}
_SHARE_OF_DELAY = {"compute": "computing", "slow": "computing", "push": "sending", "pull": "sending"}


@dataclass(frozen=True, slots=True)
class TimeUse:
    """Total seconds of all workers in the states of the table above."""

    total_s: float
    computing_s: float
    sending_s: float
    waiting_s: float
    queueing_s: float | None = None  # None: not known, and so in sending_s
    absent_s: float = 0.0
    nic_busy_s: Sequence[tuple[float, float]] | None = None  # receiving and sending, of each shard; None: not known

    def summary(self, time_s: float, busy_by_worker: Sequence[float]) -> dict[str, Any]:
        """Its part of summary.json.

        Args:
            time_s: of the run.
            busy_by_worker: share of the time that each worker computed.
        """
        parts = {
            "computing": self.computing_s,
            "sending": self.sending_s,
            "queueing": self.queueing_s,
            "waiting": self.waiting_s,
            "absent": self.absent_s,
        }
        shares = {name: _share(seconds, self.total_s) for name, seconds in parts.items() if seconds is not None}
        links = [{"in": _share(got, time_s), "out": _share(sent, time_s)} for got, sent in self.nic_busy_s or ()]
        busiest = max((max(link.values()) for link in links), default=0.0)
        summary = {"time_shares": shares, "bound_by": what_bound(shares, max(busy_by_worker), busiest)}
        return summary if self.nic_busy_s is None else summary | {"link_busy": links}


def what_bound(shares: Mapping[str, float], busiest_worker: float, busiest_link: float) -> str:
    """One of network, computing, waiting, by the rule above; all arguments are shares of the time."""
    if busiest_link > busiest_worker:
        return NETWORK
    spent = {
        "computing": shares["computing"],
        "waiting": shares["waiting"],
        NETWORK: shares["sending"] + shares.get("queueing", 0.0),
    }
    return max(spent, key=spent.__getitem__)


def time_use_of(timeline: Timeline) -> TimeUse:
    """The time use of a run with a complete log."""
    seconds = defaultdict[str, float](float)
    for span in (span for lane in timeline.workers for span in lane):
        length_s = span.end_s - span.begin_s
        is_delay = span.kind == spans.DELAY
        share = _SHARE_OF_DELAY[span.about["reason"]] if is_delay else _SHARE_OF.get(span.kind, "not recorded")
        seconds["total"] += length_s
        seconds[share] += length_s
    total, computing, sending, waiting = (seconds[share] for share in ("total", "computing", "sending", "waiting"))
    return TimeUse(total, computing, sending, waiting, absent_s=seconds["absent"])


def time_use_of_collective(
    timeline: Timeline, events: "pa.Table", averaged: Sequence[Sequence[Averaging]], turn: Callable[[int], int]
) -> TimeUse:
    """As `time_use_of`: an exchange begins when the last of its group has computed; the others wait for it.

    Args:
        averaged: of each turn, members and receivers of each mean.
        turn: step -> that after its gradient.
    """
    use, num_workers = time_use_of(timeline), len(timeline.workers)
    pushed = np.array(events["kind"].to_pylist()) == "pushed"
    pushes, computed_at = (np.array(events[name].to_pylist())[pushed] for name in ("push", "at"))
    computed = np.full((pushes.max(initial=-1) // num_workers + 1, num_workers), np.nan)  # [steps, P]
    computed[pushes // num_workers, pushes % num_workers] = computed_at
    waiting_s = 0.0
    turns = np.array([turn(step) for step in range(len(computed))], dtype=int)
    for number, of_turn in enumerate(averaged):
        there = computed[turns == number]
        for members, receivers in of_turn:
            last = there[:, list(members)].max(axis=1, keepdims=True)
            waiting_s += float(np.nansum(last - there[:, list(receivers)]))  # steps that all have computed
    return replace(use, waiting_s=waiting_s, sending_s=use.sending_s + max(0.0, use.waiting_s - waiting_s))


def _share(seconds: float, total_s: float) -> float:
    return seconds / total_s if total_s else 0.0
