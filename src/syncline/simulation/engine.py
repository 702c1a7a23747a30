"""Virtual time: the loop that drives the strategies, with true gradients or with times alone.

A worker's cycle: its blocks arrive, it computes, its gradient travels to every shard, each shard's strategy answers.
Workers are in workers.py, messages under way in transport.py, shards in syncline/server/.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from syncline.learning.server import Shard
from syncline.progress import Limits, Totals
from syncline.records.time_use import TimeUse
from syncline.rounds import SINGLE, Rounds
from syncline.server.interpreter import Deadlock, Log, ShardInterpreter
from syncline.simulation.communication import Communication
from syncline.simulation.event_queue import EventQueue
from syncline.simulation.learners import Learners
from syncline.simulation.messages import (
    Block,
    Computed,
    Early,
    Event,
    NetworkTimer,
    PullTimer,
    Push,
    PushPart,
    Sizes,
    StrategyTimer,
    event_of,
    plain,
)
from syncline.simulation.tensor_table import TensorTable
from syncline.simulation.transport import InstantTransport, NetworkTransport, Transport
from syncline.simulation.workers import Workers
from syncline.strategies.protocol import PullRule, Strategy
from syncline.timing.cluster import Cluster

PAUSED = "paused"  # what `run` returns in place of why it ended


class Observer(Protocol):
    """Watches a run; the virtual clock stands still meanwhile."""

    def updated(self, simulation: "Simulation") -> int:
        """Every shard has applied the update that was asked for. Returns the update at which to be called again."""
        ...


class Simulation:
    """One run in virtual time.

    Args:
        strategies: one state machine a shard.
        cluster: durations.
        block_bytes: size on the wire of each shard's block.
        push_bytes: that of a push of it, without what leaves early; None: the same.
        pull_bytes: that of a pull of it after a worker's first; None: the same.
        early: parts of a push that leave while the gradient is computed.
        batch_size: samples in a mini-batch.
        limits: when to end.
        observer: called after updates.
        rules: the pull side of each worker; empty where a worker waits for one answer of every shard.
        learning: the shards' parameters and the workers' gradients; None simulates time alone.
        log: receives every event and command; None for none.
        first_count: gradients that the first update waits for, where the strategy changes that number.
        rounds: the mini-batches of each push.
    """

    def __init__(
        self,
        *,
        strategies: Sequence[Strategy],
        cluster: Cluster,
        block_bytes: Sequence[int],
        batch_size: int,
        limits: Limits,
        observer: Observer,
        rules: Sequence[PullRule] = (),
        learning: tuple[Sequence[Shard], Learners] | None = None,
        log: Log | None = None,
        first_count: int | None = None,
        rounds: Rounds = SINGLE,
        push_bytes: Sequence[int] | None = None,
        pull_bytes: Sequence[int] | None = None,
        early: Sequence[Early] = (),
    ) -> None:
        assert len(strategies) == len(block_bytes) == cluster.num_shards
        self.totals = Totals(cluster.num_workers)
        self.time_use: TimeUse | None = None  # known at the end
        self._strategies, self._cluster, self._limits, self._observer = strategies, cluster, limits, observer
        parameters, learners = learning or ((), None)
        self._learners: Learners | None = learners
        self._queue = EventQueue[Event]()
        sizes = Sizes(block_bytes, push_bytes or block_bytes, pull_bytes or block_bytes, early)
        self._communication = _communication(cluster, sizes, receives=not rules)
        self._workers = Workers(
            cluster,
            self._queue,
            rules=rules,
            learners=self._learners,
            communication=self._communication,
            totals=self.totals,
            log=log,
            rounds=rounds,
        )
        self._transport = _transport(self._queue, self._workers, cluster, sizes, self._communication)
        self._workers.send_gradient = self._transport.send_gradient
        if rules or isinstance(self._transport, NetworkTransport):
            for part in parameters:
                part.extra_versions = math.inf  # blocks that are under way, or not taken yet, hold versions, too
        self._shards = self._transport.shards = self._interpreters(parameters, batch_size, log, first_count, rounds)
        self._handlers = self._all_handlers(computes=learning is not None or log is not None)
        self._observer_at = 1  # update at which the observer wants to be called
        self._next_check = 1.0  # update at which it is called, or the run ends
        self._is_begun = False
        self._ended_by: str | None = None
        self._count()

    def _interpreters(
        self, parameters: Sequence[Shard], batch_size: int, log: Log | None, first_count: int | None, rounds: Rounds
    ) -> list[ShardInterpreter]:
        """Of each shard; `parameters` are empty where only time is simulated."""
        return [
            ShardInterpreter(
                number,
                strategy,
                num_workers=self._cluster.num_workers,
                batch_size=batch_size,
                limits=None,  # each continues until the last one has ended
                driver=self._transport,
                parameters=parameters[number] if parameters else None,
                log=log,
                first_count=first_count,
                rounds=rounds,
            )
            for number, strategy in enumerate(self._strategies)
        ]

    def stop(self, reason: str) -> None:
        """End the run after the current event."""
        self._ended_by = reason

    def pause(self) -> None:
        """Leave `run` after the current event, unless that ends it."""
        if self._ended_by is None:
            self._ended_by = PAUSED

    def run(self) -> str:
        """Simulate to the end, or until the observer calls `pause`: then another call continues.

        Returns:
            Why it ended: "epochs", "max_updates", "max_time_s", "diverged", or what `stop` was given; or PAUSED.

        Raises:
            Deadlock: the strategy holds every worker.
        """
        self._begin()
        queue, handlers, limits = self._queue, self._handlers, self._limits
        first, sample_limit = self._shards[0].totals, limits.samples
        for event in queue.events(until=limits.time_s):
            reason = handlers[type(event)](event)
            if reason is None and (first.updates >= self._next_check or first.samples >= sample_limit):
                reason = self._check_limits()
            if reason is not None:
                return self._paused() if reason == PAUSED else self._end(reason)
        if not queue:
            raise Deadlock(queue.now, [strategy.state_dict() for strategy in self._strategies])
        queue.now = limits.time_s
        return self._end("max_time_s")

    def _paused(self) -> str:
        self._ended_by = None
        return PAUSED

    def _all_handlers(self, computes: bool) -> Mapping[type[Event], Callable[[Any], str | None]]:
        """What handles each event; it returns why the run ends, if it does.

        Args:
            computes: a finished gradient is computed or written to the log; else it only leaves.
        """
        return {
            Computed: self._workers.finish if computes else self._transport.send_gradient,
            Push: self._transport.push_arrived,
            PushPart: self._transport.push_part,
            Block: self._workers.receive,
            StrategyTimer: self._strategy_timer,
            PullTimer: self._workers.pull_timer,
            NetworkTimer: self._transport.network_timer,
        }

    def _begin(self) -> None:
        """At first every worker is sent the blocks of all shards."""
        if not self._is_begun:
            self._is_begun = True
            for worker in range(self._cluster.num_workers):
                for shard in range(self._cluster.num_shards):
                    self._transport.grant(shard, worker, 0)

    def _strategy_timer(self, event: StrategyTimer) -> None:
        shard = self._shards[event.shard]
        if shard.wakes_at == self._queue.now:  # else another time was asked for since
            shard.fire_timer(self._queue.now)

    def _check_limits(self) -> str | None:
        """The first shard has come to where the run may end or the observer is due. Returns why it ends, or PAUSED."""
        totals, limits = self.totals, self._limits
        before = totals.updates
        self._count()
        if totals.updates == before:
            return None  # other shards are not as far yet
        self._ended_by = limits.reached(totals.samples, totals.updates)
        if totals.updates >= self._observer_at:
            self._observer_at = self._observer.updated(self)
        self._next_check = min(self._observer_at, limits.updates)
        return self._ended_by

    def _count(self) -> None:
        """Bring the totals up to now; the shard that is furthest behind tells how far the run is."""
        self.totals.time_s = self._queue.now
        self.totals.updates = min(shard.totals.updates for shard in self._shards)
        self.totals.samples = min(shard.totals.samples for shard in self._shards)
        self.totals.waits_for = self._shards[0].totals.waits_for

    def _end(self, reason: str) -> str:
        """Complete the totals."""
        self._count()
        totals, now = self.totals, self._queue.now
        of_shards = Totals.of_shards([shard.totals for shard in self._shards])
        totals.used_by_worker, totals.discarded_by_worker = of_shards.used_by_worker, of_shards.discarded_by_worker
        totals.staleness, totals.max_lead = of_shards.staleness, of_shards.max_lead
        totals.wasted_by_worker = of_shards.wasted_by_worker
        totals.interrupted_by_worker = [
            cancelled + rejected
            for cancelled, rejected in zip(totals.interrupted_by_worker, of_shards.interrupted_by_worker, strict=True)
        ]
        totals.busy_s_by_worker = [
            self._cluster.busy_s(worker) - self._workers.cancelled_s[worker] for worker in range(totals.num_workers)
        ]
        for at, event in self._queue.scheduled():  # what nobody waits for any more was not computed
            if isinstance(event, Computed):
                totals.busy_s_by_worker[event] -= max(0.0, at - now)
        self.time_use = self._time_use()
        return reason

    def _time_use(self) -> TimeUse:
        """Of the run, which ends now."""
        totals, communication, now = self.totals, self._communication, self._queue.now
        if isinstance(self._transport, NetworkTransport):
            communication.end(now, [worker for worker, missing in enumerate(self._workers.num_missing) if not missing])
        computing_s, total_s = sum(totals.busy_s_by_worker), totals.num_workers * now
        communicating_s, queueing_s = communication.seconds, communication.queueing_s
        return TimeUse(
            total_s=total_s,
            computing_s=computing_s,
            sending_s=communicating_s - queueing_s,
            queueing_s=queueing_s,
            waiting_s=max(0.0, total_s - computing_s - communicating_s),
            links_s=self._transport.links_s(),
        )

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that the arguments do not tell of a run that is paused: tensors, and plain types that JSON can hold.

        They are the run's own: it changes them when it continues.
        """
        table = TensorTable()
        state = {
            "totals": self.totals.state_dict(),
            "checks": (self._observer_at, self._next_check),
            "cluster": self._cluster.state_dict(),
            "communication": self._communication.state_dict(),
            "queue": self._queue.state_dict(lambda event: plain(event, table)),
            "workers": self._workers.state_dict(table),
            "transport": self._transport.state_dict(table),
            "learners": None if self._learners is None else self._learners.state_dict(table),
            "shards": [
                (
                    shard.state_dict(),
                    [(push, table.put(gradient)) for push, gradient in shard.pending_gradients().items()],
                )
                for shard in self._shards
            ],
        }
        return table.tensors, state

    def load_state_dict(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` gave; for a simulation with the same arguments that has not run yet."""
        assert not self._is_begun
        self._is_begun = True
        parameters = self._shards[0].parameters
        table = TensorTable(tensors, None if parameters is None else parameters.current.weights.device)
        self.totals = self._workers.totals = Totals.from_state(state["totals"])
        self._observer_at, self._next_check = state["checks"]
        self._cluster.load_state_dict(state["cluster"])
        self._communication.load_state_dict(state["communication"])
        self._workers.load_state_dict(state["workers"], table)
        self._queue.load_state_dict(state["queue"], lambda words: event_of(words, table))
        self._transport.load_state_dict(state["transport"], table)
        if self._learners is not None:
            self._learners.load_state_dict(state["learners"], table)
            for at, event in self._queue.scheduled():
                if isinstance(event, Computed):
                    self._learners.begin(event, at)
        for shard, (theirs, pending) in zip(self._shards, state["shards"], strict=True):
            shard.load_state_dict(theirs, {push: table.gradient(gradient) for push, gradient in pending})


def _transport(
    queue: EventQueue[Event], workers: Workers, cluster: Cluster, sizes: Sizes, communication: Communication
) -> Transport:
    if cluster.sends_instantly and cluster.num_shards == 1:
        return InstantTransport(queue, workers)
    return NetworkTransport(queue, workers, cluster=cluster, sizes=sizes, communication=communication)


def _communication(cluster: Cluster, sizes: Sizes, receives: bool) -> Communication:
    network = cluster.network
    push_s, pull_s = (network.latency_s + sum(each) * network.seconds_a_byte for each in (sizes.push, sizes.pull))
    return Communication(cluster.num_workers, cluster.num_shards, (push_s, pull_s), receives)
