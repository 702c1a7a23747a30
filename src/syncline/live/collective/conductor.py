"""Asynchronous peers as one run: how far all of them are, and when all are to pause or to end.

A thread of the first peer. Each peer, the first one too, has a connection to it, with JSON objects after the handshake:

    from a peer   join      its rank, address and tally: it is ready
                  progress  a part of its tally, now and then
                  diverged  its loss is no number: it does nothing until all are to pause
                  paused    its tally; between two steps, as all are to pause
                  saved     its part of the checkpoint is a copy by now
    to a peer     begin     the addresses of all, and the run's time 0 on the coordinator's clock
                  snapshot  the run's totals: write one at once; the run goes on
                  pause     whether the run ends: then what is being computed is dropped
                  save      the totals, when all have paused: write the checkpoint that is due
                  go        all have saved
                  end       why, the totals, and of a stop the checkpoint's number, when all have paused

Nobody asks for an averaging while all are paused, so that what they save is one moment of the run. Whatever the peers
do until they know of an end counts: a run may make a few updates more than `max_updates`.
"""

import math
import queue
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from syncline.config import RunConfig
from syncline.live.checkpoints import StateWriter
from syncline.live.collective.member_control import MemberControl
from syncline.live.wire.control_messages import ProgressReport, Ready
from syncline.live.wire.frames import receive_json, send_json
from syncline.progress import REPORT_EVERY_S, Limits, Totals

TICK_S = 0.02  # between two looks at what the coordinator has asked for


@dataclass(slots=True)
class Tally:
    """What one peer has done since the run's beginning."""

    steps: int = 0
    samples: int = 0
    time_s: float = 0.0  # when its last step ended
    busy_s: float = 0.0  # computing
    loss_sum: float = 0.0  # of its gradients since its last snapshot
    loss_count: int = 0
    num_rows: int = 0  # of its event log
    staleness: list[int] = field(default_factory=list)  # as in `Totals`


class Conductor:
    """See above.

    Args:
        totals: of the run so far.
        writer: of the first peer, of whose states the next ones are due.
    """

    def __init__(
        self, config: RunConfig, num_train: int, control: MemberControl, totals: Totals, writer: StateWriter
    ) -> None:
        self._config, self._num_train, self._control, self._max_lead = config, num_train, control, totals.max_lead
        self._limits = Limits.of(config, num_train)
        self._snapshots, self._checkpoints = copy(writer.snapshots), copy(writer.checkpoints)
        self._tallies = [Tally() for _ in range(config.cluster.workers)]
        self._addresses = [""] * config.cluster.workers
        self._links: dict[int, socket.socket] = {}  # by rank
        self._inbox: queue.SimpleQueue[tuple[int, Mapping[str, Any]]] = queue.SimpleQueue()
        self._zero_s, self._next_report, self._has_diverged = math.inf, 0.0, False
        self._thread = threading.Thread(target=self._run, name="conductor", daemon=True)
        self.start, self.join = self._thread.start, self._thread.join

    def serve(self, sock: socket.socket, message: Mapping[str, Any]) -> None:
        """Read this connection, which began with `join`, until it ends."""
        rank = int(message["rank"])
        self._links[rank] = sock
        with suppress(OSError):  # a peer that is lost is missed by the coordinator
            while True:
                self._inbox.put((rank, message))
                message = receive_json(sock)

    def _run(self) -> None:
        self._await_all("join")
        self._control.client.send(Ready())
        begin_s = self._control.begin_s.get() - self._totals().time_s
        self._zero_s = self._control.client.clock.to_local(begin_s)
        self._tell("begin", addresses=self._addresses, zero_s=begin_s)
        while not (why := self._why_to_end()):
            self._receive(TICK_S)
            samples = sum(tally.samples for tally in self._tallies)
            if self._snapshots.is_due(samples):
                self._snapshots.advance(samples)
                self._tell("snapshot", totals=self._totals().state_dict())
            if self._checkpoints.is_due(samples):
                self._pause(is_last=False)
                self._checkpoints.advance(self._totals().samples)
                self._tell("save", totals=self._totals().state_dict())
                self._await_all("saved")
                self._tell("go")
        self._pause(is_last=True)
        why, totals = "diverged" if self._has_diverged else why, self._totals()
        if why == "max_time_s":
            totals.time_s = max(totals.time_s, self._limits.time_s)
        self._tell("end", why=why, totals=totals.state_dict(), checkpoint=self._control.stop_checkpoint)

    def _why_to_end(self) -> str:
        """Empty: the run goes on."""
        if self._has_diverged:
            return "diverged"
        samples, updates = (sum(getattr(tally, name) for tally in self._tallies) for name in ("samples", "steps"))
        is_late = time.monotonic() - self._zero_s >= self._limits.time_s
        reached = self._limits.reached(samples, updates) or ("max_time_s" if is_late else "")
        return reached or self._control.stop_reason

    def _pause(self, is_last: bool) -> None:
        self._tell("pause", is_last=is_last)
        self._await_all("paused")

    def _await_all(self, kind: str) -> None:
        """Until each peer has sent a message of this kind."""
        missing = set(range(len(self._tallies)))
        while missing:
            rank, found = self._receive()
            if found == kind:
                missing.discard(rank)

    def _receive(self, timeout_s: float | None = None) -> tuple[int, str]:
        """Take in the next message. Returns its rank and kind; -1 and none: there was none within these seconds."""
        try:
            rank, message = self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return -1, ""
        for name, value in message.get("tally", {}).items():
            setattr(self._tallies[rank], name, value)
        self._addresses[rank] = message.get("address", self._addresses[rank])
        self._has_diverged |= message["kind"] == "diverged"
        steps = [tally.steps for tally in self._tallies]
        self._max_lead = max(self._max_lead, max(steps) - min(steps))
        now = time.monotonic()
        if message["kind"] == "progress" and now >= self._next_report:
            self._next_report = now + REPORT_EVERY_S
            totals = self._totals()
            loss = totals.loss if totals.loss_count else None
            report = ProgressReport(totals.updates, totals.samples, totals.time_s, loss, self._num_train)
            self._control.client.send(report)
        return rank, message["kind"]

    def _tell(self, kind: str, **about: Any) -> None:
        """All peers, the one with this thread last: with `end` its process may end."""
        for rank in sorted(self._links, reverse=True):
            with suppress(OSError):  # as in `serve`
                send_json(self._links[rank], {"kind": kind, **about})

    def _totals(self) -> Totals:
        tallies = self._tallies
        return Totals(
            len(tallies),
            time_s=max(tally.time_s for tally in tallies),
            updates=sum(tally.steps for tally in tallies),
            samples=sum(tally.samples for tally in tallies),
            max_lead=self._max_lead,
            staleness=[sum(counts) for counts in zip_longest(*(tally.staleness for tally in tallies), fillvalue=0)],
            used_by_worker=[tally.steps for tally in tallies],
            busy_s_by_worker=[tally.busy_s for tally in tallies],
            loss_sum=sum(tally.loss_sum for tally in tallies),
            loss_count=sum(tally.loss_count for tally in tallies),
        )
