"""Virtual time: an event heap that drives the strategies' state machines, with true gradients or with times alone.

A worker's cycle: its blocks arrive (pull), it computes, its gradient travels to every shard (push), each shard's
strategy answers. The gradient is computed when the finishing event fires, at the snapshot the worker was granted; what
is interrupted before is never computed. Events are ordered by (time, order of scheduling), so a run depends on nothing
but its inputs.
"""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Protocol

from torch import Tensor

from syncline.learning.server import Gradient, Shard, Version
from syncline.progress import Limits, Totals
from syncline.records.time_use import TimeUse
from syncline.simulation.communication import Communication
from syncline.simulation.tensor_table import TensorTable
from syncline.simulation.worker import Workers
from syncline.strategies.protocol import (
    Apply,
    Command,
    Discard,
    Grant,
    Hold,
    Interrupt,
    PullRule,
    PushArrived,
    Repeat,
    Strategy,
    TimerFired,
    WaitFor,
    WakeAt,
)
from syncline.timing.cluster import Cluster
from syncline.timing.sharing import FairShareNetwork, Flow

PAUSED = "paused"  # what `run` returns in place of why it ended

# What a state holds as it is; load_state_dict says the rest.
_PLAIN = (
    *("_versions", "_samples", "_missing", "_ends", "_unspent_s", "_timers", "_goes_at", "_made", "_pulls", "_blocks"),
    *("_observer_at", "_next_look", "_staleness", "_counts", "_num_pushes"),
)


class Observer(Protocol):
    """Who watches a run; the virtual clock stands still meanwhile."""

    def updated(self, simulation: "Simulation") -> int:
        """Every shard has made the update that was asked for. Returns the update at which to be called again."""
        ...


Log = Callable[[float, str, int, int, int, int, float, str], None]
"""(at, kind, worker, shard, push, version, value, because); the columns of records/events.py."""


class Deadlock(RuntimeError):
    """Nobody is computing and nothing is under way: a fault of a strategy."""


class Simulation:
    """One run in virtual time.

    Args:
        strategies: one state machine a shard.
        cluster: durations.
        block_bytes: size on the wire of each shard's block.
        batch_size: samples in one gradient.
        limits: when to end.
        observer: told of updates.
        rules: the pull side of each worker; none where a worker waits for one answer of every shard.
        learning: the shards' parameters and the workers' gradients; None simulates time alone.
        log: told of every event and command; None for none.
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
        learning: tuple[Sequence[Shard], Workers] | None = None,
        log: Log | None = None,
    ) -> None:
        assert len(strategies) == len(block_bytes) == cluster.num_shards
        num_workers, num_shards = cluster.num_workers, cluster.num_shards
        self.totals = Totals(num_workers)
        self._strategies = strategies
        self._cluster = cluster
        # One shard and messages that take no time: they need no place in the heap.
        self._is_direct = cluster.sends_instantly and cluster.num_shards == 1
        self._cards: FairShareNetwork[_Push | _Block] | None = cluster.network.fair_share_network()
        self._cards_at = math.inf  # when they are seen to next
        self._compute_s = cluster.compute_s
        self._block_bytes = block_bytes
        self._batch_size = batch_size
        self._limits = limits
        self._observer = observer
        self._shards: Sequence[Shard] = () if learning is None else learning[0]
        self._workers: Workers | None = None if learning is None else learning[1]
        if not self._is_direct or rules:
            for part in self._shards:
                part.extra_versions = math.inf  # blocks that are under way, or not taken yet, hold versions, too
        self._log = log
        # What is due, by its time; several that are due at one time are a list, in the order of scheduling. The heap
        # holds each time once, as a plain float: with 10,000 workers it is the size of what is touched that counts. A
        # time of which nothing is left to do stays until it comes.
        self._due: dict[float, _Entry | _Entries] = {}
        self._times: list[float] = []
        self._happening: _Entries = []  # what is due now
        self._first_is_done = False  # the first time in the heap has been dealt with and may be overwritten
        self._now = 0.0
        self._versions = [0] * num_shards
        self._samples = [0] * num_shards
        self._version_of = [
            array("q", bytes(8 * num_workers)) for _ in range(num_shards)
        ]  # of each block that each worker has
        self._missing = [num_shards] * num_workers  # blocks that a worker still waits for
        self._ends = [math.inf] * num_workers  # when the gradient that a worker began last is finished
        self._unspent_s = [0.0] * num_workers  # of gradients that were broken off
        self._min_valid_version: dict[int, int] = {}  # worker -> pushes computed at an older version are void
        self._timers = [math.inf] * num_shards  # what each strategy's last WakeAt asked for
        self._rules = rules
        self._goes_at: list[float | None] = [None] * num_workers  # when its rule lets a waiting worker go on
        self._made = [0] * num_workers  # gradients sent, where messages take time
        self._blocks = [0] * num_shards  # of weights sent by each shard, likewise
        network = cluster.network
        alone_s = network.latency_s + sum(block_bytes) * network.seconds_a_byte
        self._communication = Communication(num_workers, num_shards, alone_s, receives=not rules)
        self.time_use: TimeUse | None = None  # known at the end
        self._pulls = [0] * len(rules)  # gradients begun
        self._inboxes: list[dict[int, tuple[int, Version | None]]] = [
            {} for _ in rules
        ]  # the newest block of each shard
        # push -> (worker, version, gradient) of pushes that have arrived and are neither applied nor discarded
        self._pending: list[dict[int, tuple[int, int, Gradient | None]]] = [{} for _ in range(num_shards)]
        self._observer_at = 1  # update at which the observer wants to be called
        self._next_look = 1.0  # update at which it is called, or the run ends
        self._staleness: list[int] = []  # staleness -> gradients used
        # pushes that each shard has received from each worker
        self._counts = [[0] * num_workers for _ in range(num_shards)]
        self._num_pushes = 0  # that have arrived anywhere
        self._is_begun = False
        self._ended_by: str | None = None

    def stop(self, reason: str) -> None:
        """End the run after the event under way."""
        self._ended_by = reason

    def pause(self) -> None:
        """Leave `run` after the event under way, unless that ends it."""
        if self._ended_by is None:
            self._ended_by = PAUSED

    def run(self) -> str:
        """Simulate to the end, or until the observer calls `pause`: then another call goes on.

        Returns:
            Why it ended: "epochs", "max_updates", "max_time_s", "diverged", or what `stop` was given; or PAUSED.

        Raises:
            Deadlock: the strategy holds everybody.
        """
        if not self._is_begun:
            self._is_begun = True
            for worker in range(self._cluster.num_workers):
                for shard in range(self._cluster.num_shards):
                    self._send_block(worker, shard)
        # The loop is one function, and what it touches at every step is local: a timing-only run is this loop alone.
        times, due, time_limit, totals, log = self._times, self._due, self._limits.time_s, self.totals, self._log
        strategies, pending, workers = self._strategies, self._pending, self._workers
        versions, version_of, samples = self._versions, self._version_of, self._samples
        staleness, counts, ends = self._staleness, self._counts, self._ends
        batch_size, is_direct, compute_s = self._batch_size, self._is_direct, self._compute_s
        sample_limit, rules = self._limits.samples, self._rules
        most, push, number = max(self._counts[0]), self._num_pushes, 0
        while True:
            if self._first_is_done:
                heappop(times)
                self._first_is_done = False
            if not times:
                raise Deadlock(f"nobody can go on at {self._now:.6f} s: {[s.state_dict() for s in self._strategies]}")
            now = times[0]
            if now > time_limit:
                self._now = time_limit
                return self._end("max_time_s")
            self._now = now
            self._first_is_done = True
            popped = due.pop(now, None)
            if popped is None:
                continue  # all of it was broken off
            entries: Iterable[_Entry | None]
            if isinstance(popped, list):
                self._happening = popped
                entries = iter(popped)  # which tells at any time what is left
            else:
                entries = (popped,)
            for entry in entries:
                commands: list[Command]
                if type(entry) is int:  # the worker has finished its gradient
                    worker, loss, gradient = entry, 0.0, None
                    if workers is not None:
                        loss, gradient = workers.compute(worker)
                        totals.loss_sum += loss
                        totals.loss_count += 1
                        if not math.isfinite(loss):
                            return self._end("diverged")
                    if log is not None:
                        log(now, "computed", worker, -1, -1, version_of[0][worker], loss, "")
                    if not is_direct:
                        self._send_gradient(worker, loss, gradient)
                        continue
                    shard, number = 0, counts[0][worker]
                    version = tag = version_of[0][worker]
                    if rules:
                        rule = rules[worker]
                        tag = rule.tag
                        when = rule.pushed(now)
                        if when is not None:
                            self._go_on(worker, when)
                elif type(entry) is _Block:
                    if rules:
                        self._land(entry.worker, entry.shard, entry.version, entry.block)
                    else:
                        self._block_arrived(entry)
                    continue
                elif type(entry) is _Push:
                    worker, shard, version, tag = entry.worker, entry.shard, entry.version, entry.tag
                    loss, gradient, number = entry.loss, entry.gradient, entry.number
                    is_void = version < self._min_valid_version.get(worker, 0)
                    if number == self._made[worker] - 1:
                        self._communication.arrived(worker, now, entry.through_at - entry.sent_at, is_void)
                    if is_void:
                        totals.wasted_by_worker[worker] += 1
                        self._drop(worker, version, 0.0, "on its way")
                        if workers is not None and gradient is not None:
                            workers.release(gradient)
                        continue
                elif type(entry) is _Wake:
                    if entry.shard < 0:
                        if entry.worker < 0:
                            self._pass_on()
                        elif self._goes_at[entry.worker] == now:  # else it was to start at another time
                            self._go_on(entry.worker, now)
                        continue
                    if self._timers[entry.shard] != now:
                        continue  # another time was asked for since
                    shard = entry.shard
                    self._timers[shard] = math.inf
                    worker = -1
                else:
                    continue  # it was broken off by what happened a moment ago

                # The shard's strategy answers.
                if worker >= 0:
                    counts[shard][worker] = count = counts[shard][worker] + 1
                    if count > most and shard == 0:  # only now can the lead be larger than ever before
                        most = count
                        totals.max_lead = max(totals.max_lead, most - min(counts[0]))
                    pending[shard][push] = (worker, version, gradient)
                    if log is not None:
                        log(now, "pushed", worker, shard, push, tag, number, "")
                    commands = strategies[shard].handle(PushArrived(now, push, worker, tag, loss))
                    push += 1
                else:
                    if log is not None:
                        log(now, "timer", -1, shard, -1, versions[shard], 0.0, "")
                    commands = strategies[shard].handle(TimerFired(now))
                for command in commands:
                    if type(command) is Apply:
                        current = versions[shard]
                        if workers is not None:
                            self._learn(shard, command)
                        for used in command.pushes:
                            owner, computed_at, _ = pending[shard].pop(used)
                            stale = current - computed_at
                            if stale >= len(staleness):
                                staleness.extend([0] * (stale + 1 - len(staleness)))
                            staleness[stale] += 1
                            if log is not None:
                                log(now, "applied", owner, shard, used, current + 1, stale, command.because)
                        versions[shard] = current + 1
                        samples[shard] += len(command.pushes) * batch_size
                    elif type(command) is Grant:
                        if log is not None:
                            self._log_answer("granted", shard, command)
                        if not is_direct:
                            self._send_block(command.worker, shard)
                        elif rules:
                            self._land(command.worker, 0, versions[0], None if workers is None else workers.pin(0))
                        else:
                            version_of[0][command.worker] = versions[0]
                            if workers is not None:
                                workers.receive(command.worker, 0)
                            # _start and _schedule, written out: no other calls are made so often
                            granted = command.worker
                            duration = compute_s(granted)
                            if log is not None:
                                log(now, "started", granted, -1, -1, versions[0], duration, "")
                            ends[granted] = at = now + duration
                            if at in due:
                                self._schedule(at, granted)
                                continue
                            due[at] = granted
                            if self._first_is_done:
                                self._first_is_done = False
                                heapreplace(times, at)
                            else:
                                heappush(times, at)
                    elif type(command) is Hold:
                        if log is not None:
                            self._log_answer("held", shard, command)
                    else:
                        self._obey(shard, command)
                if versions[shard] >= self._next_look or samples[shard] >= sample_limit:
                    self._look()
                    if self._ended_by == PAUSED:
                        self._num_pushes = push
                        self._put_back(list(entries) if isinstance(entries, Iterator) else [])
                        return PAUSED
                    if self._ended_by is not None:
                        return self._end(self._ended_by)

    def _put_back(self, entries: "_Entries") -> None:
        """The run is paused: these are due now, before whatever has become due now since."""
        self._ended_by = None
        if entries:
            self._due[self._now] = [*entries, *_listed(self._due.get(self._now, []))]
        self._times[:] = sorted(self._due)
        self._first_is_done = False

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that the arguments do not tell of a run that is paused: tensors, and plain types that JSON can hold.

        They are the run's own: it changes them when it goes on.
        """
        shelf = TensorTable()
        state = {name: getattr(self, name) for name in _PLAIN} | {
            "totals": self.totals.state_dict(),
            "strategies": [strategy.state_dict() for strategy in self._strategies],
            "rules": [rule.state_dict() for rule in self._rules],
            "cluster": self._cluster.state_dict(),
            "communication": self._communication.state_dict(),
            "cards": None if self._cards is None else self._cards.state_dict(lambda message: _plain(message, shelf)),
            "workers": None if self._workers is None else self._workers.state_dict(shelf),
            "version_of": [versions.tolist() for versions in self._version_of],
            "min_valid_version": list(self._min_valid_version.items()),
            "inboxes": [
                [(shard, version, shelf.put(block)) for shard, (version, block) in inbox.items()]
                for inbox in self._inboxes
            ],
            "pending": [
                [(push, worker, version, shelf.put(gradient)) for push, (worker, version, gradient) in pending.items()]
                for pending in self._pending
            ],
            "due": [
                (at, due if isinstance(due, int) else [_plain(entry, shelf) for entry in _listed(due)])
                for at, due in self._due.items()
            ],
        }
        return shelf.tensors, state

    def load_state_dict(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave; for a simulation with the same arguments that has not run yet."""
        assert not self._is_begun
        self._is_begun = True
        shelf = TensorTable(tensors, self._shards[0].current.weights.device if self._shards else None)
        for name in _PLAIN:
            setattr(self, name, state[name])
        self.totals = Totals.from_state(state["totals"])
        for strategy, theirs in zip(self._strategies, state["strategies"], strict=True):
            strategy.load_state_dict(theirs)
        for rule, theirs in zip(self._rules, state["rules"], strict=True):
            rule.load_state_dict(theirs)
        self._cluster.load_state_dict(state["cluster"])
        self._communication.load_state_dict(state["communication"])
        if self._cards is not None:
            self._cards.load_state_dict(state["cards"], lambda words: _message(words, shelf))
            self._cards_at = self._cards.next_through
        if self._workers is not None:
            self._workers.load_state_dict(state["workers"], shelf)
        self._version_of = [array("q", versions) for versions in state["version_of"]]
        self._min_valid_version = dict(state["min_valid_version"])
        self._inboxes = [
            {shard: (version, shelf.version(block)) for shard, version, block in inbox} for inbox in state["inboxes"]
        ]
        self._pending = [
            {push: (worker, version, shelf.gradient(gradient)) for push, worker, version, gradient in pending}
            for pending in state["pending"]
        ]
        self._due = {
            at: entries if isinstance(entries, int) else [_entry(words, shelf) for words in entries]
            for at, entries in state["due"]
        }
        self._times = sorted(self._due)

    def _obey(self, shard: int, command: Command) -> None:
        """What most strategies never command."""
        if isinstance(command, Discard):
            self._discard(shard, command)
        elif isinstance(command, Repeat):
            if self._log is not None:
                self._log_answer("repeated", shard, command)
            if self._is_direct:
                self._start(command.worker)
            else:
                self._send_to_worker(_Block(command.worker, shard, self._versions[shard], self._now, repeats=True), 0)
        elif isinstance(command, Interrupt):
            if self._log is not None:
                self._log_answer("interrupted", shard, command)
            if self._is_direct:
                self._break_off(command.worker)
            else:  # the worker hears of it with the block that follows
                self._min_valid_version[command.worker] = self._versions[shard]
        elif isinstance(command, WakeAt):
            self._timers[shard] = at = max(command.at, self._now)
            if at < math.inf:
                self._schedule(at, _Wake(shard=shard))
        elif isinstance(command, WaitFor):
            self.totals.waits_for.append((self._now, min(self._versions), command.count))
            if self._log is not None:
                version, because = self._versions[shard], command.because
                self._log(self._now, "waits_for", -1, shard, -1, version, command.count, because)
        else:
            raise AssertionError(command)

    def _schedule(self, at: float, entry: "_Entry") -> None:
        same = self._due.get(at)
        if same is None:
            self._due[at] = entry
            if self._first_is_done:  # one sift in place of the two of a pop and a push
                self._first_is_done = False
                heapreplace(self._times, at)
            else:
                heappush(self._times, at)
        elif isinstance(same, list):
            same.append(entry)
        else:
            self._due[at] = [same, entry]

    def _send_to_shard(self, push: "_Push", size_bytes: int) -> None:
        """It leaves now."""
        if self._cards is None:
            arrives = self._cluster.push(self._now, push.worker, push.shard, size_bytes)
            push.through_at = self._cluster.through_at
            self._schedule(arrives, push)
        else:
            self._cards.send(self._now, Flow(True, push.worker, push.shard), size_bytes, push)
            self._await_cards()

    def _send_to_worker(self, block: "_Block", size_bytes: int) -> None:
        """It leaves now."""
        self._communication.granted(block.worker, self._now)
        if self._cards is None:
            arrives = self._cluster.pull(self._now, block.shard, block.worker, size_bytes)
            block.through_at = self._cluster.through_at
            self._schedule(arrives, block)
        else:
            self._cards.send(self._now, Flow(False, block.worker, block.shard), size_bytes, block)
            self._await_cards()

    def _await_cards(self) -> None:
        """To be there when the next message is through the shared cards."""
        assert self._cards is not None
        at = self._cards.next_through
        if at != self._cards_at:
            self._cards_at = at
            if at < math.inf:
                self._schedule(at, _Wake())

    def _pass_on(self) -> None:
        """What is through the shared cards has only its latency and its delays before it."""
        assert self._cards is not None
        at = self._now + self._cluster.network.latency_s
        for message in self._cards.through(self._now):  # none, if what was sent since holds it up
            message.through_at = at
            late = self._cluster.late_push if isinstance(message, _Push) else self._cluster.late_pull
            self._schedule(late(at, message.shard, message.worker), message)
        self._await_cards()

    def _send_block(self, worker: int, shard: int) -> None:
        """The shard's current version leaves for the worker."""
        block = None if self._workers is None else self._workers.pin(shard)
        if self._is_direct and self._rules:
            self._land(worker, shard, self._versions[shard], block)
        else:
            self._blocks[shard] += 1
            self._send_to_worker(
                _Block(worker, shard, self._versions[shard], self._now, block), self._block_bytes[shard]
            )

    def _block_arrived(self, message: "_Block") -> None:
        """A block reached a worker without a rule, which starts to compute with the last one."""
        worker, shard = message.worker, message.shard
        is_computing = self._missing[worker] == 0
        if message.version < self._version_of[shard][worker]:
            if message.block is not None and self._workers is not None:
                self._workers.unpin(shard, message.block)
            return  # overtaken by the block of an interrupt that came after it
        if is_computing:
            self._break_off(worker)
        else:
            self._missing[worker] -= 1
        if not message.repeats:
            self._take(worker, shard, message.version, message.block)
        if self._missing[worker] == 0:
            if not is_computing:
                self._communication.started(worker, self._now, message.through_at - message.sent_at)
            self._start(worker)

    def _land(self, worker: int, shard: int, version: int, block: Version | None) -> None:
        """A block reached a worker whose rule decides when it goes on, and whether with this block."""
        inbox = self._inboxes[worker]
        known, spare = inbox.get(shard, (-1, None))
        if version > known:
            inbox[shard] = version, block
        else:
            spare = block  # it was overtaken by a newer one
        if self._workers is not None and spare is not None:
            self._workers.unpin(shard, spare)
        self._go_on(worker, self._rules[worker].arrived(self._now, shard, version))

    def _take(self, worker: int, shard: int, version: int, block: Version | None) -> None:
        """The worker's next gradient is computed at this version of the block."""
        self._version_of[shard][worker] = version
        if self._workers is not None and block is not None:
            self._workers.take(worker, shard, block)

    def _go_on(self, worker: int, when: float | None) -> None:
        """The worker's rule has said when it may start."""
        if when is None or when > self._now:
            self._goes_at[worker] = when
            if when is not None:
                self._schedule(when, _Wake(worker=worker))
            return
        self._goes_at[worker] = None
        inbox = self._inboxes[worker]
        for shard in self._rules[worker].start():
            if shard in inbox:  # else it has the newest already
                version, block = inbox.pop(shard)
                self._take(worker, shard, version, block)
        if self._log is not None:
            versions = [versions[worker] for versions in self._version_of]
            words = " ".join(map(str, versions))
            self._log(self._now, "pulled", worker, -1, -1, min(versions), self._pulls[worker], words)
        self._pulls[worker] += 1
        self._communication.started(worker, self._now, 0.0)
        self._start(worker)

    def _start(self, worker: int) -> None:
        """The worker begins its next gradient."""
        duration = self._compute_s(worker)
        if self._log is not None:
            self._log(self._now, "started", worker, -1, -1, self._version_of[0][worker], duration, "")
        self._ends[worker] = at = self._now + duration
        if at in self._due:
            self._schedule(at, worker)
            return
        self._due[at] = worker
        if self._first_is_done:
            self._first_is_done = False
            heapreplace(self._times, at)
        else:
            heappush(self._times, at)

    def _break_off(self, worker: int) -> None:
        """What the worker computes comes to nothing, and is never computed."""
        at = self._ends[worker]
        entries = self._due.get(at)
        if entries == worker:
            del self._due[at]
        elif isinstance(entries, list) and worker in entries:
            entries.remove(worker)
        else:  # it is due now
            self._happening[self._happening.index(worker)] = None
        self._unspent_s[worker] += at - self._now
        self._drop(worker, self._version_of[0][worker], at - self._now, "broken off")
        if len(self._times) > 64 + 4 * len(self._due):  # most of what the heap holds has nothing left to do
            now = self._times[0] if self._first_is_done else None
            self._times[:] = self._due if now is None else [now, *self._due]
            heapify(self._times)

    def _drop(self, worker: int, version: int, unspent_s: float, because: str) -> None:
        self.totals.interrupted_by_worker[worker] += 1
        if self._log is not None:
            self._log(self._now, "dropped", worker, -1, -1, version, unspent_s, because)

    def _send_gradient(self, worker: int, loss: float, gradient: Gradient | None) -> None:
        """A finished gradient leaves for every shard.

        Where a worker does not wait for all blocks, another shard comes first each time: else one block would always be
        the last, and never be taken.
        """
        num_shards = self._cluster.num_shards
        self._missing[worker] = num_shards
        rule = self._rules[worker] if self._rules else None
        first = 0 if rule is None else rule.tag % num_shards
        for turn in range(first, first + num_shards):
            shard = turn % num_shards
            version = self._version_of[shard][worker]
            tag = version if rule is None else rule.tag
            push = _Push(worker, shard, version, tag, loss, gradient, self._made[worker], self._now)
            self._send_to_shard(push, self._block_bytes[shard])
        self._made[worker] += 1
        self._communication.sent(worker, self._now)
        if rule is not None:
            self._go_on(worker, rule.pushed(self._now))

    def _log_answer(self, kind: str, shard: int, command: Grant | Hold | Repeat | Interrupt) -> None:
        assert self._log is not None
        self._log(self._now, kind, command.worker, shard, -1, self._versions[shard], 0.0, command.because)

    def _learn(self, shard: int, command: Apply) -> None:
        """The optimizer step of an update."""
        assert self._workers is not None
        pending = self._pending[shard]
        gradients = [gradient for push in command.pushes if (gradient := pending[push][2]) is not None]
        samples, updates = self._samples[shard], self._versions[shard]
        self._shards[shard].apply(gradients, command.scale, samples, updates, is_sum=command.is_sum)
        for gradient in gradients:
            self._workers.release(gradient)

    def _look(self) -> None:
        """A shard has come to where the run may end or the observer wants to look."""
        totals, limits = self.totals, self._limits
        before = totals.updates
        self._count()
        if totals.updates == before:
            return  # other shards are not as far yet
        self._ended_by = limits.reached(totals.samples, totals.updates)
        if totals.updates >= self._observer_at:
            self._observer_at = self._observer.updated(self)
        self._next_look = min(self._observer_at, limits.updates)

    def _count(self) -> None:
        """Bring the totals up to now; the shard that is furthest behind tells how far the run is."""
        self.totals.time_s = self._now
        self.totals.updates = min(self._versions)
        self.totals.samples = min(self._samples)

    def _end(self, reason: str) -> str:
        """The last word on the totals."""
        self._count()
        totals = self.totals
        waiting = Counter(worker for worker, _, _ in self._pending[0].values())
        totals.used_by_worker = [
            pushed - discarded - waiting[worker]
            for worker, (pushed, discarded) in enumerate(zip(self._counts[0], totals.discarded_by_worker, strict=True))
        ]
        totals.staleness = {stale: count for stale, count in enumerate(self._staleness) if count}
        totals.busy_s_by_worker = [
            self._cluster.busy_s(worker) - self._unspent_s[worker] for worker in range(totals.num_workers)
        ]
        for at, due in self._due.items():  # what nobody waits for any more was not computed
            for entry in _listed(due):
                if isinstance(entry, int):
                    totals.busy_s_by_worker[entry] -= max(0.0, at - self._now)
        self.time_use = self._time_use()
        return reason

    def _time_use(self) -> TimeUse:
        """Of the run, which ends now."""
        totals, communication, now = self.totals, self._communication, self._now
        under_way = [entry for due in self._due.values() for entry in _listed(due)]
        if not self._is_direct:
            communication.end(now, [worker for worker, missing in enumerate(self._missing) if not missing])
        computing_s, total_s = sum(totals.busy_s_by_worker), totals.num_workers * now
        communicating_s, queueing_s = communication.seconds, communication.queueing_s
        return TimeUse(
            total_s=total_s,
            computing_s=computing_s,
            sending_s=communicating_s - queueing_s,
            queueing_s=queueing_s,
            waiting_s=max(0.0, total_s - computing_s - communicating_s),
            links_s=self._links_s([entry for entry in under_way if isinstance(entry, _Push)]),
        )

    def _links_s(self, pushes: Sequence["_Push"]) -> list[tuple[float, float]] | None:
        """Seconds for which each shard's NIC has received and sent, given the pushes that are through the network."""
        network, now = self._cluster.network, self._now
        if not network.seconds_a_byte:
            return None
        links = []
        for shard, size in enumerate(self._block_bytes):
            seconds = size * network.seconds_a_byte
            received, sent = sum(self._made) * seconds, self._blocks[shard] * seconds
            if self._cards is not None:
                received -= self._cards.left_s(now, True, shard)
                sent -= self._cards.left_s(now, False, shard)
            else:
                received -= sum(min(seconds, max(0.0, p.through_at - now)) for p in pushes if p.shard == shard)
                sent -= network.backlog_s(now, shard)
            links.append((received, sent))
        return links

    def _discard(self, shard: int, command: Discard) -> None:
        worker, version, gradient = self._pending[shard].pop(command.push)
        if self._workers is not None and gradient is not None:
            self._workers.release(gradient)
        if shard == 0:
            self.totals.discarded_by_worker[worker] += 1
        if self._log is not None:
            self._log(self._now, "discarded", worker, shard, command.push, version, 0.0, command.because)


@dataclass(slots=True)
class _Push:
    """Under way from a worker to a shard: a block of a gradient."""

    worker: int
    shard: int
    version: int  # that this block was computed at
    tag: int
    loss: float
    gradient: Gradient | None
    number: int  # of the gradient, by its worker's own count
    sent_at: float
    through_at: float = 0.0  # when it is through the network; injected delays follow


@dataclass(slots=True)
class _Block:
    """Under way from a shard to a worker: a block of the weights, or the word to go on without one."""

    worker: int
    shard: int
    version: int
    sent_at: float
    block: Version | None = None
    repeats: bool = False
    through_at: float = 0.0  # as of a push


@dataclass(slots=True)
class _Wake:
    """A strategy's timer, the moment at which a worker's rule lets it go on, or when shared cards are seen to."""

    worker: int = -1
    shard: int = -1


_Entry = int | _Push | _Block | _Wake  # what is due; a number is a worker that has finished computing
_Entries = list[_Entry | None]  # None: nothing any more


def _listed(due: _Entry | _Entries) -> _Entries:
    return due if isinstance(due, list) else [due]


def _plain(entry: _Entry | None, shelf: TensorTable) -> Any:
    """An entry of what is due, as a state holds it."""
    if isinstance(entry, _Wake):
        return "wake", entry.worker, entry.shard
    if isinstance(entry, _Push):
        gradient = shelf.put(entry.gradient)
        about = entry.version, entry.tag, entry.loss, gradient, entry.number, entry.sent_at, entry.through_at
        return "push", entry.worker, entry.shard, *about
    if isinstance(entry, _Block):
        block = shelf.put(entry.block)
        return "block", entry.worker, entry.shard, entry.version, entry.sent_at, block, entry.repeats, entry.through_at
    return entry


def _entry(words: Any, shelf: TensorTable) -> _Entry | None:
    """What `_plain` wrote."""
    if words is None or isinstance(words, int):
        return words
    kind, *about = words
    return _Wake(*about) if kind == "wake" else _message(words, shelf)


def _message(words: Any, shelf: TensorTable) -> _Push | _Block:
    """One that `_plain` wrote."""
    kind, worker, shard, version, *about = words
    if kind == "push":
        tag, loss, gradient, *others = about
        return _Push(worker, shard, version, tag, loss, shelf.gradient(gradient), *others)
    sent_at, block, *others = about
    return _Block(worker, shard, version, sent_at, shelf.version(block), *others)
