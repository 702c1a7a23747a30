"""A shard's process: waits for all workers, then serves until the run ends here; see server.py for its threads."""

import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from syncline.assembly import build_flat, build_shard, shape_of
from syncline.config import RunConfig
from syncline.live.control import ControlClient, Message
from syncline.live.engine import Engine, NotElastic
from syncline.live.saver import Saver, drop_old_checkpoints
from syncline.live.server import Acceptor, Call, Connection, Free, GradientPool, Hello, Inbox, Lost, Pushed, ReplySender
from syncline.live.transport import Tls, address_of, listen
from syncline.progress import REPORT_EVERY_S, Limits
from syncline.records.events import EventLog
from syncline.records.snapshots import read_state, state_path

WATCH_EVERY_S = 0.5
FAREWELL_S = 3.0  # for the workers to close their connections at the end
SPARE_VERSIONS = 2  # that files may hold


class ShardProcess:
    """Everything that the owner thread of one shard does.

    Args:
        folder: of the run.
        address: to listen at.
        resume: number of the checkpoint to go on from; None for a fresh run.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        number: int,
        address: str,
        headquarters: str,
        secret: bytes,
        tls: Tls | None,
        resume: float | None,
    ) -> None:
        torch.set_num_threads(config.threads)
        self._config, self._folder, self._number, self._resume = config, folder, number, resume
        self._inbox: Inbox = queue.SimpleQueue()
        self._flat = build_flat(config, shape_of(config), torch.device("cpu"))
        block = build_shard(config, number, self._flat, 1, is_whole=False).block
        self._num_buffers = self._flat.buffers.numel() if number == 0 else 0
        self._pulls = config.strategy.pull_rule(config.cluster.shards) is not None
        num_versions = config.cluster.shards if self._pulls else 0
        self._pool = GradientPool(block.stop, self._num_buffers, config.cluster.workers + 1, num_versions)
        self._postman = ReplySender(self._pool, lambda words: self._line.tell("warning", text=words, at=self._now()))
        self._listener = listen(address, config.live.leave_s)
        Acceptor(self._listener, secret, tls, self._pool, self._inbox).open()
        self._began: float | None = None
        self._is_ready = self._is_stopped = False
        self._files = 0  # versions that are being written
        self._warned: set[int] = set()
        self._line = ControlClient(
            headquarters,
            secret,
            tls,
            {"role": "shard", "index": number, "address": address_of(self._listener)},
            lambda message: self._inbox.put(Call(lambda: self._told(message))),
            dead_s=config.live.leave_s,
        )

    def run(self) -> bool:
        """Serve to the end. False if a worker is gone that the strategy needs: the run is to begin again."""
        if not self._gather():
            return True  # stopped before it began
        try:
            self._serve()
        except NotElastic as error:
            self._line.tell("restart", why=str(error))
            return False
        return True

    def _gather(self) -> bool:
        """Wait for all workers, get ready, wait for the launcher's word. False if it is not to begin."""
        connections, num_workers = self._postman.connections, self._config.cluster.workers
        while len(connections) < num_workers or self._began is None:
            message = self._inbox.get()
            if isinstance(message, Hello):
                if not self._fits(message):
                    continue
                num_train = message.about["num_train"]
                old = connections.get(message.connection.worker)
                if old is not None:
                    old.close()
                connections[message.connection.worker] = message.connection
                if len(connections) == num_workers and not self._is_ready:
                    self._prepare(num_train)
                    self._is_ready = True
                    self._line.tell("ready")
            elif isinstance(message, Lost) and connections.get(message.connection.worker) is message.connection:
                connections.pop(message.connection.worker).close()
            elif isinstance(message, Free):
                self._free(message)
            elif isinstance(message, Call):
                message.action()
                if self._is_stopped:
                    return False
        return True

    def _prepare(self, num_train: int) -> None:
        """Everything that takes time, before the clock runs."""
        config = self._config
        shard = build_shard(config, self._number, self._flat, num_train, is_whole=False)
        # A worker that is granted while it computes has a version on its way beside the one it is sent.
        is_patient = not self._pulls and not config.strategy.interrupts
        shard.extra_versions = SPARE_VERSIONS if is_patient else SPARE_VERSIONS + config.cluster.workers
        tensors, state = dict[str, Tensor](), dict[str, Any]()
        if self._resume is not None:
            tensors, state = read_state(state_path(self._folder / "checkpoint", self._resume, self._number))
        self._is_resumed = bool(state)
        self._log = None
        if config.runner.events:
            self._log = EventLog(self._folder / f"events-{self._number}.arrow", state.get("rows", 0))
        self._saver = Saver()
        self._engine = engine = Engine(
            self._number,
            config.strategy.start(config.cluster.workers),
            shard,
            config.batch_size,
            Limits.of(config, num_train),
            config.strategy.elastic,
            self._pulls,
            self._postman,
            self._log,
        )
        self._postman.engine = engine
        if state:
            engine.load(tensors, state, self._pool.take)
        else:
            engine.totals.begin(config.strategy.first_count)
        self._eval_every = config.eval_every_epochs * num_train
        self._checkpoint_every = config.live.checkpoint_every_epochs * num_train
        self._snapshots = int(engine.totals.samples // self._eval_every) + 1 if state else 0
        self._checkpoints = int(engine.totals.samples // self._checkpoint_every) + 1
        if not state:
            self._snapshot()

    def _serve(self) -> None:
        engine = self._engine
        assert self._began is not None
        self._postman.zero_s = self._zero_s = self._began - engine.totals.time_s
        absent = set(range(self._config.cluster.workers)) - engine.here
        engine.begin(self._now(), self._is_resumed)
        for worker in sorted(absent):
            engine.joined(self._now(), worker)
        try:
            self._loop()
        finally:
            if self._log is not None:
                self._log.close()
        self._farewell()

    def _loop(self) -> None:
        engine, inbox = self._engine, self._inbox
        time_limit = self._config.max_time_s or float("inf")
        next_report = next_watch = time.monotonic()
        while engine.ended_by is None and not self._is_stopped:
            now = time.monotonic()
            if now - self._zero_s >= time_limit:
                engine.ended_by = "max_time_s"
                engine.totals.time_s = time_limit
                break
            if now >= next_report:
                next_report = now + REPORT_EVERY_S
                self._report()
            if now >= next_watch:
                next_watch = now + WATCH_EVERY_S
                self._watch(now)
            if now - self._zero_s >= engine.wakes_at:
                engine.timer(now - self._zero_s)
                self._keep()
                continue
            try:
                until = min(next_report, next_watch, self._zero_s + min(time_limit, engine.wakes_at))
                message = inbox.get(timeout=max(until - now, 0.0))
            except queue.Empty:
                continue
            if isinstance(message, Pushed):
                self._pushed(message)
            else:
                self._handle(message)
        if self._is_stopped:
            engine.totals.time_s = self._now()
            self._checkpoint(self._checkpoints - 0.5)  # between the last of its kind and the next
            self._saver.finish()
            self._line.tell("stopped")
        else:
            self._save(self._folder / f"parameters-{self._number}.safetensors", then=lambda: None)
            self._saver.finish()
            self._report()
            self._line.tell("done", ended_by=engine.ended_by, totals=engine.totals.state_dict())

    def _pushed(self, message: Pushed) -> None:
        engine, worker = self._engine, message.connection.worker
        if self._postman.connections.get(worker) is not message.connection or not engine.expects(worker):
            self._pool.give(message.gradient)  # of a connection that was given up meanwhile
            return
        now = time.monotonic()
        self._postman.last_event[worker] = now, "pushed"
        self._warned.discard(worker)
        engine.pushed(now - self._zero_s, message.frame, message.gradient)
        self._keep()

    def _keep(self) -> None:
        """Write a snapshot or a checkpoint if it is time."""
        engine = self._engine
        samples = engine.totals.samples
        if samples >= self._snapshots * self._eval_every and engine.ended_by is None:
            self._snapshot()
        if samples >= self._checkpoints * self._checkpoint_every and engine.ended_by is None:
            self._checkpoint(float(self._checkpoints))
            self._checkpoints = int(samples // self._checkpoint_every) + 1

    def _handle(self, message: Hello | Lost | Free | Call | Pushed) -> None:
        connections = self._postman.connections
        if isinstance(message, Free):
            self._free(message)
        elif isinstance(message, Call):
            message.action()
        elif isinstance(message, Lost):
            if connections.get(message.connection.worker) is message.connection:
                self._drop(message.connection, message.why)
        elif isinstance(message, Hello):
            connection = message.connection
            if not self._fits(message):
                return
            old = connections.get(connection.worker)
            if old is not None:
                self._drop(old, "another process took its place")
            connections[connection.worker] = connection
            self._warned.discard(connection.worker)
            self._line.tell("warning", text=f"worker {connection.worker} joined", at=self._now())
            self._engine.joined(self._now(), connection.worker)

    def _free(self, message: Free) -> None:
        self._engine.shard.unpin(message.version)
        if message.connection is None:
            self._files -= 1
        else:
            message.connection.sending -= 1

    def _drop(self, connection: Connection, why: str) -> None:
        """This worker is gone."""
        del self._postman.connections[connection.worker]
        connection.close()
        self._line.tell("warning", text=f"worker {connection.worker} left: {why}", at=self._now())
        self._engine.left(self._now(), connection.worker, why)

    def _fits(self, hello: Hello) -> bool:
        """The worker is one of ours and has the same model; else it is turned away."""
        mine = {"size": self._flat.weights.numel(), "num_buffers": self._flat.buffers.numel()}
        worker, about = hello.connection.worker, hello.about
        fits = worker in range(self._config.cluster.workers) and {key: about.get(key) for key in mine} == mine
        if fits and isinstance(about.get("num_train"), int):
            return True
        self._line.tell("warning", text=f"turned away: a worker {worker} with {str(about)[:200]}, here {mine}", at=0.0)
        hello.connection.close()
        return False

    def _told(self, message: Message) -> None:
        if message["kind"] == "begin":
            self._began = self._line.clock.ours(message["zero_s"])
        elif message["kind"] == "stop":
            self._is_stopped = True
        elif message["kind"] == "end":
            self._engine.ended_by = message["why"]

    def _watch(self, now: float) -> None:
        """Name who is silent though it was granted, then do without it."""
        runner = self._config.live
        last_event = self._postman.last_event
        for worker in list(last_event):
            then, what = last_event[worker]  # only now: to do without one worker may free another
            silent = now - then
            if not self._engine.owes(worker) or silent < min(runner.hang_s, runner.leave_s):
                continue
            words = f"worker {worker} is silent for {silent:.1f} s, last event: {what} at {then - self._zero_s:.1f} s"
            connection = self._postman.connections.get(worker)
            if silent >= runner.leave_s and connection is not None:
                self._drop(connection, f"silent for {silent:.1f} s")
            elif worker not in self._warned:
                self._warned.add(worker)
                self._line.tell("warning", text=words, at=self._now())

    def _report(self) -> None:
        totals = self._engine.totals
        self._line.tell(
            "progress",
            updates=totals.updates,
            samples=totals.samples,
            time_s=self._now(),
            loss=None if totals.loss_count == 0 else totals.loss,
            count=totals.count,
        )

    def _snapshot(self) -> None:
        """The current state goes to disk, to be evaluated."""
        number, totals = self._snapshots, self._engine.totals
        path = state_path(self._folder / "snapshots", float(number), self._number)
        self._save(path, then=lambda: self._line.tell("snapshot", number=number))
        self._snapshots = max(number, int(totals.samples // self._eval_every)) + 1

    def _save(self, path: Path, then: Callable[[], None]) -> None:
        totals = self._engine.totals
        about = totals.snapshot(self._engine.shard.rate(totals.samples, totals.updates))
        shard = self._engine.shard
        own = {} if shard.evaluated is shard.current.weights else {"evaluated": shard.evaluated.clone()}
        self._write(path, own, about, then)

    def _checkpoint(self, number: float) -> None:
        engine = self._engine
        if self._log is not None:
            self._log.flush()
        tensors, state = engine.state()
        folder = self._folder / "checkpoint"
        state["rows"] = 0 if self._log is None else self._log.num_rows
        path = state_path(folder, number, self._number)
        self._write(path, tensors, state, then=lambda: drop_old_checkpoints(folder, self._number))

    def _write(self, path: Path, tensors: dict[str, Tensor], state: dict[str, Any], then: Callable[[], None]) -> None:
        """The current version and what else there is go to disk; a slow disk holds up copies, not versions."""
        current = self._engine.shard.current
        weights, buffers, done = current.weights, current.buffers, then
        if self._files < SPARE_VERSIONS:
            version = self._engine.shard.pin()
            self._files += 1

            def done() -> None:
                self._inbox.put(Free(version))
                then()

        else:
            weights, buffers = weights.clone(), buffers.clone()
        self._saver.save(path, tensors | {"weights": weights, "buffers": buffers}, state, done)

    def _farewell(self) -> None:
        """The workers close their connections when they have heard that the run is over."""
        self._postman.stop_all()
        until = time.monotonic() + FAREWELL_S
        connections = self._postman.connections
        while connections and (left := until - time.monotonic()) > 0:
            try:
                message = self._inbox.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(message, Lost):
                connections.pop(message.connection.worker, None)

    def _now(self) -> float:
        return time.monotonic() - self._zero_s
