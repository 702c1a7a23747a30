"""Virtual time: the loop that drives the strategies, with true gradients or with times alone.

A worker's cycle: its blocks arrive, it computes, its gradient travels to every shard, each shard's strategy answers
with commands, which are carried out here. Nothing else schedules events. What workers hold is in workers.py, what
messages take in network.py, shards in syncline/server/.

Where one shard and messages that take no time are simulated, there is no network: each message is at its receiver at
once, and nothing is scheduled but the ends of gradients, timers of the strategy, and losses of workers.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from syncline.learning.parameters import Gradient, Parameters
from syncline.progress import Limits, Totals
from syncline.records import rows
from syncline.records.rows import Log
from syncline.records.time_use import TimeUse
from syncline.rounds import SINGLE, Rounds
from syncline.server.shard import Deadlock, Shard
from syncline.simulation.communication import Communication
from syncline.simulation.event_queue import EventQueue
from syncline.simulation.events import (
    Back,
    Block,
    Computed,
    Event,
    Lost,
    Message,
    NetworkTimer,
    PullTimer,
    Push,
    Sizes,
    StrategyTimer,
    from_json,
    to_json,
)
from syncline.simulation.network import MessageNetwork
from syncline.simulation.tensor_table import TensorTable
from syncline.simulation.worker_gradients import WorkerGradients
from syncline.simulation.workers import Workers
from syncline.strategies.protocol import Command, Grant, Interrupt, PullRule, Repeat, Strategy, WakeAt
from syncline.timing.cluster import Cluster

MOST_LOST = 1000  # times that each worker may be lost, in the mean, without an update
PAUSED = "paused"  # what `run` returns in place of why it ended


class Observer(Protocol):
    """Watches a run; the virtual clock stands still meanwhile."""

    def updated(self, totals: Totals) -> tuple[int, str | None]:
        """Every shard has applied the update that was asked for.

        Returns:
            The update at which to be called again; and why the run is to end, PAUSED to leave `run` unless it ends, or
            None.
        """
        ...


def ending(reached: str | None, asked: str | None) -> str | None:
    """Why a run ends whose limits, and whose observer, say this; PAUSED, or None."""
    return reached if asked is None or (asked == PAUSED and reached is not None) else asked


class Simulation:
    """One run in virtual time.

    Args:
        strategies: one state machine a shard.
        cluster: durations.
        block_bytes: size on the wire of each shard's block.
        push_bytes: that of a push of it; None: the same.
        pull_bytes: that of a pull of it after a worker's first; None: the same.
        batch_size: samples in a mini-batch.
        limits: when to end.
        observer: called after updates.
        rules: the pull side of each worker; empty where a worker waits for one answer of every shard.
        overlap: a worker begins its next gradient when it has pushed, and waits for the answers before it pushes that.
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
        overlap: bool = False,
        learning: tuple[Sequence[Parameters], WorkerGradients] | None = None,
        log: Log | None = None,
        first_count: int | None = None,
        rounds: Rounds = SINGLE,
        push_bytes: Sequence[int] | None = None,
        pull_bytes: Sequence[int] | None = None,
    ) -> None:
        assert len(strategies) == len(block_bytes) == cluster.num_shards
        num_workers, num_shards = cluster.num_workers, cluster.num_shards
        self.totals = Totals(num_workers)
        self.time_use: TimeUse | None = None  # known at the end
        parameters: Sequence[Parameters] = () if learning is None else learning[0]
        self._worker_gradients = None if learning is None else learning[1]
        self._cluster, self._limits, self._observer = cluster, limits, observer
        self._log, self._rounds = log, rounds
        self._queue = EventQueue[Event]()
        sizes = Sizes(block_bytes, push_bytes or block_bytes, pull_bytes or block_bytes)
        is_instant = cluster.sends_instantly and num_shards == 1 and not overlap
        self._network = None if is_instant else MessageNetwork(cluster, sizes)
        self._network_timer_at = math.inf  # when the next one is due
        self._goes_on_at_once = is_instant and not rules  # a worker, when it is granted
        self._overlap = overlap
        self._communication = Communication(num_workers, num_shards, _alone_s(cluster, sizes), receives=not rules)
        self._workers = Workers(num_workers, num_shards, rules, overlap, self._worker_gradients, self.totals, log)
        self._shards = [
            Shard(
                number,
                strategy,
                num_workers=num_workers,
                batch_size=batch_size,
                limits=None,  # each continues until the last one has ended
                parameters=parameters[number] if parameters else None,
                log=log,
                first_count=first_count,
                rounds=rounds,
            )
            for number, strategy in enumerate(strategies)
        ]
        self._num_pushes = 0  # that have arrived anywhere
        self._compute_s = cluster.compute_s if rounds == SINGLE else self._round_s
        self._handlers = self._all_handlers()
        self._observer_at = 1  # update at which the observer wants to be called
        self._next_check = 1.0  # update at which it is called, or the run ends
        self._is_begun = False
        self._num_lost = self._updates_at_loss = 0  # workers since the last update, which was of this number
        self._count()

    def _all_handlers(self) -> Mapping[type[Event], Callable[[Any], str | None]]:
        """What handles each kind of event; it returns why the run ends, if it does."""
        push = self._push_at_once if self._network is None else self._push_over_network
        is_bare = self._worker_gradients is None and self._log is None and not self._cluster.loses_workers
        computed = push if is_bare else self._computed
        return {
            Computed: self._computed_meanwhile if self._overlap else computed,
            Push: self._push_arrived,
            Block: self._block_arrived_meanwhile if self._overlap else self._block_arrived,
            StrategyTimer: self._strategy_timer,
            PullTimer: self._pull_timer,
            NetworkTimer: self._network_timer,
            Lost: self._lost,
            Back: self._back,
        }

    def run(self) -> str:
        """Simulate to the end, or until the observer asks to pause: then another call continues.

        Returns:
            Why it ended: "epochs", "max_updates", "max_time_s", "diverged", or what the observer said; or PAUSED.

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
                return reason if reason == PAUSED else self._end(reason)
        if not queue:
            raise Deadlock(queue.now, [shard.state_dict()["strategy"] for shard in self._shards])
        queue.now = limits.time_s
        return self._end("max_time_s")

    def _begin(self) -> None:
        """At first every worker is sent the blocks of all shards."""
        if not self._is_begun:
            self._is_begun = True
            for worker in range(self._cluster.num_workers):
                self._await_loss(worker)
                for shard in self._shards:
                    shard.send(worker)
                    self._grant(shard, worker)
            for shard in self._shards:
                self._carry_out(shard, shard.begin(0.0))

    # Commands

    def _carry_out(self, shard: Shard, commands: Iterable[Command]) -> None:
        for command in commands:
            if type(command) is Grant:  # faster than `match`, which counts with times alone
                self._grant(shard, command.worker)
            elif type(command) is Repeat:
                self._repeat(shard, command.worker)
            elif type(command) is Interrupt:
                if self._network is None:  # else the block that follows cancels what the worker computes
                    self._cancel(command.worker)
            elif type(command) is WakeAt and shard.wakes_at < math.inf:
                self._queue.push(shard.wakes_at, StrategyTimer(shard.number))

    def _grant(self, shard: Shard, worker: int) -> None:
        """The shard's current block leaves for the worker."""
        version, worker_gradients, workers = shard.totals.updates, self._worker_gradients, self._workers
        if self._goes_on_at_once:
            workers.versions[0][worker] = version
            if worker_gradients is not None:
                worker_gradients.take(worker, 0)
            self._start(worker)
            return
        number, weights = shard.number, None if worker_gradients is None else worker_gradients.pin(shard.number, worker)
        if self._network is None:
            self._go_on(worker, workers.receive_under_rule(worker, number, version, weights, self._queue.now))
        else:
            self._answer(Block(worker, number, version, self._queue.now, weights))

    def _repeat(self, shard: Shard, worker: int) -> None:
        """The permission to continue at the version that it has leaves for the worker."""
        if self._network is None:
            self._start(worker)
        else:
            self._answer(Block(worker, shard.number, shard.version, self._queue.now, repeats=True))

    def _answer(self, block: Block) -> None:
        if self._worker_gradients is not None:
            self._worker_gradients.sent(block.worker, block.shard, block.weights, self._queue.now)
        self._communication.granted(block.worker, self._queue.now)
        self._send(block)

    # What a worker does

    def _start(self, worker: int) -> None:
        """The worker begins its next gradient."""
        queue, duration = self._queue, self._compute_s(worker)
        if self._log is not None:
            because = self._rounds.of(worker).describe(self._workers.num_sent[worker])
            self._log(rows.started(queue.now, worker, self._workers.versions[0][worker], duration, because))
        self._workers.finishes_at[worker] = at = queue.now + duration
        queue.push(at, worker)
        if self._worker_gradients is not None:
            self._worker_gradients.begin(worker, at)
        if self._overlap:
            self._communication.computes_until[worker] = at

    def _round_s(self, worker: int) -> float:
        """Seconds of all mini-batches of the worker's next push."""
        num_batches = self._rounds.of(worker).size(self._workers.num_sent[worker])
        return sum(self._cluster.compute_s(worker) for _ in range(num_batches))

    def _cancel(self, worker: int) -> None:
        self._queue.cancel(self._workers.cancel(worker, self._queue.now), worker)

    def _go_on(self, worker: int, when: float | None) -> None:
        """The worker's pull rule has said when it may continue."""
        now = self._queue.now
        if when is not None and when <= now:
            self._workers.pull(worker, now)
            self._communication.started(worker, now, 0.0)
            self._start(worker)
            return
        self._workers.goes_on_at[worker] = when
        if when is not None:
            self._queue.push(when, PullTimer(worker))

    def _pushed(self, worker: int) -> None:
        """The worker has sent its gradient; its rule may let it continue."""
        if self._workers.rules:
            self._go_on(worker, self._workers.rules[worker].pushed(self._queue.now))

    def _push_at_once(self, worker: int, loss: float = 0.0, gradient: Gradient | None = None) -> None:
        """A finished gradient is at the shard; a worker with a pull rule continues before."""
        workers, shard = self._workers, self._shards[0]
        version = tag = workers.versions[0][worker]
        workers.num_sent[worker] = 1 + (number := workers.num_sent[worker])
        if workers.rules:
            tag = workers.rules[worker].tag
            self._pushed(worker)
        push = self._num_pushes
        self._num_pushes = push + 1
        self._carry_out(shard, shard.push(self._queue.now, push, worker, version, tag, number, loss, gradient))

    def _push_over_network(self, worker: int, loss: float = 0.0, gradient: Gradient | None = None) -> None:
        """A finished gradient leaves for every shard.

        Where a worker does not wait for all blocks, another shard comes first each time: else one block would always be
        the last, and never be taken.
        """
        now, workers, num_shards = self._queue.now, self._workers, len(self._shards)
        workers.num_missing[worker] = num_shards
        workers.num_sent[worker] = 1 + (number := workers.num_sent[worker])
        first = workers.rules[worker].tag % num_shards if workers.rules else 0
        for turn in range(first, first + num_shards):
            shard = turn % num_shards
            version = workers.versions[shard][worker]
            tag = workers.rules[worker].tag if workers.rules else version
            self._send(Push(worker, shard, version, tag, loss, gradient, number, now))
        self._communication.sent(worker, now)
        self._pushed(worker)

    def _send(self, message: Message) -> None:
        """A message leaves."""
        assert self._network is not None
        if (arrives := self._network.send(self._queue.now, message)) is not None:
            self._queue.push(arrives, message)
        self._await_network()

    def _await_network(self) -> None:
        assert self._network is not None
        at = self._network.next_through
        if at != self._network_timer_at:
            self._network_timer_at = at
            if at < math.inf:
                self._queue.push(at, NetworkTimer())

    # Events

    def _computed(self, worker: Computed) -> str | None:
        """A worker has finished its gradient."""
        loss, gradient = self._workers.finish(worker, self._queue.now)
        if not math.isfinite(loss):
            return "diverged"
        push = self._push_at_once if self._network is None else self._push_over_network
        push(worker, loss, gradient)
        return None

    def _computed_meanwhile(self, worker: Computed) -> str | None:
        """A worker has finished its gradient, perhaps before all shards have answered its last push."""
        now, workers = self._queue.now, self._workers
        if workers.num_missing[worker]:
            workers.finishes_at[worker], workers.held[worker] = math.inf, now
            return None
        return self._push_and_go_on(worker, now)

    def _push_and_go_on(self, worker: int, computed_at: float) -> str | None:
        """What the worker has computed leaves; it begins the next gradient with all that has arrived until now."""
        loss, gradient = self._workers.finish(worker, computed_at)
        if not math.isfinite(loss):
            return "diverged"
        self._workers.take_received(worker)
        self._push_over_network(worker, loss, gradient)
        self._start(worker)
        return None

    def _block_arrived_meanwhile(self, block: Block) -> str | None:
        worker, workers, now = block.worker, self._workers, self._queue.now
        if self._cluster.loses_workers and workers.is_void(worker, block.sent_at):
            workers.drop(block)
        elif workers.receive_meanwhile(block):
            self._communication.started(worker, now, block.through_at - block.sent_at)
            if (computed_at := workers.held.pop(worker, None)) is not None:
                return self._push_and_go_on(worker, computed_at)
            if workers.finishes_at[worker] == math.inf:  # its first blocks
                workers.take_received(worker)
                self._start(worker)
        return None

    def _push_arrived(self, push: Push) -> None:
        assert self._network is not None
        now, worker, shard = self._queue.now, push.worker, self._shards[push.shard]
        if self._cluster.loses_workers and self._workers.is_void(worker, push.sent_at):
            if push.gradient is not None:
                push.gradient.release()
            return
        if self._cluster.update_s and not push.is_handled:
            push.is_handled = True
            self._queue.push(self._network.handled_at(now, push.shard), push)
            return
        is_stale = shard.is_stale(worker, push.version)
        self._workers.num_arrived[worker] = push.number + 1
        if push.number == self._workers.num_sent[worker] - 1:
            self._communication.arrived(worker, now, push.through_at - push.sent_at, is_stale)
        if is_stale:
            shard.reject(now, worker, push.version, push.gradient)
            return
        number = self._num_pushes
        self._num_pushes = number + 1
        self._carry_out(
            shard, shard.push(now, number, worker, push.version, push.tag, push.number, push.loss, push.gradient)
        )

    def _block_arrived(self, block: Block) -> None:
        worker, workers, now = block.worker, self._workers, self._queue.now
        if self._cluster.loses_workers and workers.is_void(worker, block.sent_at):
            workers.drop(block)
            return
        if workers.rules:
            when = workers.receive_under_rule(worker, block.shard, block.version, block.weights, now)
            self._go_on(worker, when)
            return
        if workers.is_overtaken(block):
            return
        was_computing = workers.num_missing[worker] == 0
        if was_computing:
            self._cancel(worker)
        if workers.receive(block):
            if not was_computing:
                self._communication.started(worker, now, block.through_at - block.sent_at)
            self._start(worker)

    def _strategy_timer(self, event: StrategyTimer) -> None:
        shard = self._shards[event.shard]
        if shard.wakes_at == self._queue.now:  # else another time was asked for since
            self._carry_out(shard, shard.fire_timer(self._queue.now))

    def _pull_timer(self, timer: PullTimer) -> None:
        if self._workers.goes_on_at[timer.worker] == self._queue.now:  # else its rule has said something else since
            self._go_on(timer.worker, self._queue.now)

    def _network_timer(self, timer: NetworkTimer) -> None:
        """Of what is through the shared network, only latency and delays are left."""
        assert self._network is not None
        for at, message in self._network.through(self._queue.now):
            self._queue.push(at, message)
        self._await_network()

    def _await_loss(self, worker: int) -> None:
        if (absence := self._cluster.next_absence(worker, self._queue.now)) is not None:
            lost_at, back_at = absence
            self._queue.push(lost_at, Lost(worker, back_at))

    def _lost(self, event: Lost) -> None:
        """A worker's process is lost, and what is on its way from it or to it."""
        now, worker = self._queue.now, event.worker
        self._num_lost = self._num_lost + 1 if self._updates_at_loss == self._shards[0].version else 0
        self._updates_at_loss = self._shards[0].version
        if self._num_lost > MOST_LOST * self._cluster.num_workers:
            raise ValueError(f"no update in {self._num_lost:,} losses of workers: their gradients never arrive")
        at = self._workers.lose(worker, now)
        if self._network is not None:
            self._network.forget(worker)
        if at < math.inf:
            self._queue.cancel(at, worker)
        self._communication.lost(worker, now, is_computing=at < math.inf)
        self._queue.push(event.back_at, Back(worker))
        for shard in self._shards:
            self._carry_out(shard, shard.leave(now, worker, "lost"))

    def _back(self, event: Back) -> None:
        now, worker = self._queue.now, event.worker
        self._workers.come_back(worker, now, over_network=self._network is not None)
        self._communication.back(worker, now)
        self._await_loss(worker)
        for shard in self._shards:
            self._carry_out(shard, shard.join(now, worker))

    # The end of a run

    def _check_limits(self) -> str | None:
        """The first shard has come to where the run may end or the observer is due. Returns why it ends, or PAUSED."""
        totals, limits = self.totals, self._limits
        before = totals.updates, totals.samples
        self._count()
        if (totals.updates, totals.samples) == before:
            return None  # other shards are not as far yet
        reason = limits.reached(totals.samples, totals.updates)
        if totals.updates >= self._observer_at:
            self._observer_at, asked = self._observer.updated(totals)
            reason = ending(reason, asked)
        self._next_check = min(self._observer_at, limits.updates)
        return reason

    def _count(self) -> None:
        """Bring the totals up to now; the shard that is furthest behind tells how far the run is."""
        self.totals.time_s = self._queue.now
        self.totals.updates = min(shard.totals.updates for shard in self._shards)
        self.totals.samples = min(shard.totals.samples for shard in self._shards)
        self.totals.waits_for = self._shards[0].totals.waits_for

    def _end(self, reason: str) -> str:
        """Complete the totals."""
        for worker, computed_at in self._workers.held.items():
            self._workers.finish(worker, computed_at)
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
        nic_busy_s = None
        if self._network is not None:
            workers = self._workers
            computing = [worker for worker, missing in enumerate(workers.num_missing) if not missing]
            communication.end(now, [*computing, *workers.lost_at])
            pushes = (event for _, event in self._queue.scheduled() if isinstance(event, Push))
            nic_busy_s = self._network.busy_s(now, sum(self._workers.num_sent), pushes)
        computing_s, total_s = sum(totals.busy_s_by_worker), totals.num_workers * now
        absent_s = self._workers.away_s + sum(now - lost_at for lost_at in self._workers.lost_at.values())
        communicating_s, queueing_s = communication.seconds, communication.queueing_s
        return TimeUse(
            total_s=total_s,
            computing_s=computing_s,
            sending_s=communicating_s - queueing_s,
            queueing_s=queueing_s,
            waiting_s=max(0.0, total_s - computing_s - communicating_s - absent_s),
            absent_s=absent_s,
            nic_busy_s=nic_busy_s,
        )

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that the arguments do not tell of a run that is paused: tensors, and plain types that JSON can hold.

        They are the run's own: it changes them when it continues.
        """
        table = TensorTable()
        state = {
            "totals": self.totals.state_dict(),
            "checks": (self._observer_at, self._next_check),
            "losses": (self._num_lost, self._updates_at_loss),
            "cluster": self._cluster.state_dict(),
            "communication": self._communication.state_dict(),
            "queue": self._queue.state_dict(lambda event: to_json(event, table)),
            "workers": self._workers.state_dict(table),
            "pushes": self._num_pushes,
            "network": None if self._network is None else self._network.state_dict(table),
            "learners": None if self._worker_gradients is None else self._worker_gradients.state_dict(table),
            "shards": [
                (
                    shard.state_dict(),
                    [(push, table.put(gradient)) for push, gradient in shard.pending_gradients().items()],
                    [(worker, number, table.put(version)) for worker, number, version in shard.sent_versions()],
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
        self.totals = Totals.from_state(state["totals"])
        self._observer_at, self._next_check = state["checks"]
        self._num_lost, self._updates_at_loss = state["losses"]
        self._cluster.load_state_dict(state["cluster"])
        self._communication.load_state_dict(state["communication"])
        self._workers.load_state_dict(state["workers"], self.totals, table)
        self._queue.load_state_dict(state["queue"], lambda words: from_json(words, table))
        self._num_pushes = state["pushes"]
        if self._network is not None:
            self._network.load_state_dict(state["network"], table)
            self._network_timer_at = self._network.next_through
        if self._worker_gradients is not None:
            self._worker_gradients.load_state_dict(state["learners"], table)
            for at, event in self._queue.scheduled():
                if isinstance(event, Computed):
                    self._worker_gradients.begin(event, at)
            for worker, at in self._workers.held.items():
                self._worker_gradients.begin(worker, at)
        for shard, (theirs, pending, sent) in zip(self._shards, state["shards"], strict=True):
            gradients = {push: table.gradient(gradient) for push, gradient in pending}
            versions = [(worker, number, table.sent(version)) for worker, number, version in sent]
            shard.load_state_dict(theirs, gradients, versions)


def _alone_s(cluster: Cluster, sizes: Sizes) -> list[list[float]]:
    """Of each worker the seconds that a push, and all blocks of a pull, take on an idle network."""
    ways = (True, sum(sizes.push)), (False, sum(sizes.pull))
    return [
        [cluster.network.alone_s(is_push, worker, size) for is_push, size in ways]
        for worker in range(cluster.num_workers)
    ]
