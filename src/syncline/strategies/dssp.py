"""Dynamic Stale Synchronous Parallel (Zhao et al. 2019; dssp.txt, section III, Algorithms 1 and 2).

Server, on a push of worker p (Algorithm 1; r_p: extra iterations p may still run beyond s_L):
    1-2    t_p <- t_p + 1; update the weights with g_p
    3-5    if r_p > 0: spend one, grant p
    7-9    else if t_p - t_slowest <= s_L: grant p
    11-16  else if p is a fastest worker: r_p <- controller(p); if r_p > 0: spend one, grant p
    17     else hold p until the slowest worker's next push
Controller (Algorithm 2): from the last two push times of p and of the slowest worker predict their next pushes, and
return the r in [0, r_max] whose push of p is nearest to some push of the slowest.

Departures, each a decision where the pseudo-code is open:
- Lines 13-15 grant without spending, which would allow r + 1 iterations; here the grant spends one: exactly r.
- Line 17 is the else-branch of line 13, or a worker would be granted twice.
- Line 17's waiting has three interpretations (`bound`). `paper`: at the slowest worker's next push a held worker is
  examined again from line 3, the controller included, so that s_U = s_L + r_max is not enforced. `hard`: the same, but
  no grant takes p beyond t_slowest + s_U + 1 pushes. `catchup`: a held worker waits until it is within s_L. Only `hard`
  bounds the lead: with `catchup`, too, a worker that is not held may get extra iterations repeatedly.
- Line 2's aggregation of simultaneous pushes: they are applied one by one, in order of arrival.
- Push times are kept for every push of every worker (Algorithm 2 keeps only the caller's). With fewer than two of
  either worker there is no interval yet, and r = 0. A predicted push in the past is moved to now.
"""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from syncline.checks import one_of, ranged
from syncline.strategies.clocks import Clocks, refuse
from syncline.strategies.machine import Machine
from syncline.strategies.protocol import (
    Apply,
    Command,
    Event,
    Grant,
    Hold,
    PushArrived,
    StrategyOptions,
    WorkerJoined,
    WorkerLeft,
)

BOUNDS = ("paper", "hard", "catchup")


@dataclass(frozen=True, slots=True)
class DsspOptions(StrategyOptions):
    name: str = "dssp"
    s_lower: int = ranged(3, ">= 0")  # s_L: leads up to it are always granted
    # s_U - s_L: most extra iterations that the controller, which tries all, may grant at a time
    r_max: int = ranged(12, "in 0 .. 10,000")
    bound: str = one_of("paper", BOUNDS)

    single_server: ClassVar[bool] = True

    @property
    def s_upper(self) -> int:
        """s_U, the upper end of the staleness range."""
        return self.s_lower + self.r_max

    @property
    def lead_bound(self) -> int | None:
        return self.s_upper + 1 if self.bound == "hard" else None

    def lead_note(self, lead: int) -> str:
        if self.bound == "hard" or lead <= self.s_upper + 1:
            return ""
        return f"strategy.bound={self.bound} does not bound it, hard does: to s_lower + r_max + 1 = {self.s_upper + 1}"

    def start(self, num_workers: int) -> "Dssp":
        return Dssp(num_workers, self)


class Dssp(Machine):
    clocks: Clocks
    extra: dict[int, int]  # r_p where it is above 0
    held: dict[int, int]  # worker -> its pushes, in order of arrival
    last_push: dict[int, float]  # A[p][0], seconds
    push_before: dict[int, float]  # A[p][1], seconds

    def __init__(self, num_workers: int, options: DsspOptions) -> None:
        self.options = options
        self.clocks = Clocks(range(num_workers))
        self.extra, self.held, self.last_push, self.push_before = {}, {}, {}, {}
        self.near = cache(f"lead {{}} <= s_L {options.s_lower}".format)
        self.not_asked = cache(f"lead {{}} > s_L {options.s_lower}, not asked".format)
        self.no_extra = cache(f"lead {{}} > s_L {options.s_lower}, r* = 0".format)

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, PushArrived):
            at, worker, clocks, held = event.at, event.worker, self.clocks, self.held
            if worker not in clocks.counts:
                raise refuse(event, "no such worker", clocks)
            before = self.last_push.get(worker)
            if before is not None:
                if worker in held or at < before:
                    raise refuse(event, "held, or time runs backwards", clocks, f"held={list(held)}")
                self.push_before[worker] = before
            self.last_push[worker] = at
            is_slowest = held and worker == clocks.slowest
            lead = clocks.tick(worker)
            commands: list[Command] = [Apply((event.push,)), self._decide(worker, lead, at)]
            return commands + self._reexamine(at) if is_slowest else commands
        match event:
            case WorkerJoined(worker=worker):
                self.clocks.join(event)
                return [Grant(worker, "joined")]
            case WorkerLeft(at=at, worker=worker):
                self.clocks.leave(event)
                self.held.pop(worker, None)
                for table in (self.extra, self.last_push, self.push_before):
                    table.pop(worker, None)
                return self._reexamine(at)
        raise refuse(event, "no timer is set", self.clocks)

    def _decide(self, worker: int, lead: int, now: float) -> Grant | Hold:
        """Lines 3 to 17 for one worker."""
        options = self.options
        if options.bound == "hard" and lead > options.s_upper:
            self.held[worker] = self.clocks.counts[worker]
            return Hold(worker, f"lead {lead} > s_U {options.s_upper}")
        extra = self.extra.pop(worker, 0) if self.extra else 0
        if extra == 0:
            if lead <= options.s_lower:
                return Grant(worker, self.near(lead))
            asks = self.clocks.is_fastest(worker) and not (worker in self.held and options.bound == "catchup")
            extra = self.controller(worker, now) if asks else 0
            if extra == 0:
                self.held[worker] = self.clocks.counts[worker]
                return Hold(worker, self.no_extra(lead) if asks else self.not_asked(lead))
        if extra > 1:
            self.extra[worker] = extra - 1
        return Grant(worker, f"lead {lead}, {extra - 1} more beyond s_L {options.s_lower}")

    def _reexamine(self, now: float) -> list[Command]:
        """Line 17: commands for the held workers at the slowest worker's push."""
        minimum, maximum, extra = self.clocks.minimum, self.clocks.maximum, self.extra
        near = minimum + self.options.s_lower
        # The others stay held.
        asking = [(p, count) for p, count in self.held.items() if not near < count < maximum or p in extra]
        granted: list[Command] = []
        for worker, count in asking:
            command = self._decide(worker, count - minimum, now)
            if type(command) is Grant:
                del self.held[worker]
                granted.append(command)
        return granted

    def controller(self, worker: int, now: float) -> int:
        """Algorithm 2: the number of extra iterations with a push of `worker` nearest to one of the slowest worker.

        Sim_p[r] = A[p][0] + r I_p and Sim_slowest[k] = A[slowest][0] + (k + 1) I_slowest, neither before `now`;
        the r in [0, r_max] that minimises |Sim_slowest[k] - Sim_p[r]| over k in [0, r_max]; ties: the smallest r.
        """
        slowest = self.clocks.slowest
        if worker not in self.push_before or slowest not in self.push_before:
            return 0
        own = self.last_push[worker] - self.push_before[worker]
        others = self.last_push[slowest] - self.push_before[slowest]
        r_max = self.options.r_max
        start, first = self.last_push[worker], self.last_push[slowest] + others
        if first <= now:
            return 0  # the slowest worker's push is due: a push now is the nearest
        best, best_wait = 0, float("inf")
        for r in range(r_max + 1):
            mine = max(now, start + r * own)
            # Sim_slowest grows by equal steps: the nearest push is one of the two around `mine`.
            k = min(max(int((mine - first) / others), 0), r_max)
            for theirs in (first + k * others, first + min(k + 1, r_max) * others):
                wait = abs(theirs - mine)
                if wait < best_wait:
                    best, best_wait = r, wait
        return best
