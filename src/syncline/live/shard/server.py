"""A shard's process: it waits for all workers, then serves them until the run ends.

connections.py has its other threads.
"""

import queue
import time
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from syncline.assembly.compression import build_compression, build_pull_compressor
from syncline.assembly.data import shape_of
from syncline.assembly.device import configure_torch
from syncline.assembly.network import build_flat
from syncline.assembly.parameters import build_parameters, shard_blocks
from syncline.config import ConfigError, users_fault
from syncline.learning.compression import PullCompressor
from syncline.learning.flat import FlatModule
from syncline.learning.parameters import Version
from syncline.live.checkpoints import PartState, StateWriter, read_checkpoint
from syncline.live.node.control import ControlClient, RunContext
from syncline.live.node.process import RESTART, Job
from syncline.live.node.ranks import Ranks
from syncline.live.shard.connections import (
    Call,
    Connected,
    Connection,
    Disconnected,
    FrameSent,
    GradientPool,
    Inbox,
    InboxEvent,
    Pushed,
    accept_workers,
)
from syncline.live.shard.elastic import ElasticShard, NotElastic
from syncline.live.shard.watchdog import Watchdog
from syncline.live.wire.clock import RunClock
from syncline.live.wire.control_messages import (
    Begin,
    Done,
    End,
    Hello,
    ProgressReport,
    Ready,
    RestartNeeded,
    Stop,
    Stopped,
    Warn,
    WorkerLost,
)
from syncline.live.wire.frames import Header, Kind
from syncline.live.wire.sockets import address_of, listen
from syncline.progress import REPORT_EVERY_S, Limits
from syncline.records.events import EventLog
from syncline.records.snapshots import read_values, state_path
from syncline.strategies.protocol import Command, Grant, Repeat, WaitFor

WATCH_EVERY_S = 0.5
CLOSE_S = 3.0  # for the workers to close their connections at the end
NOT_STARTED = "it was not started with the run"
EXTRA_VERSIONS = 2  # that files may hold


def main(job: Job, number: int, ranks: Ranks) -> int:
    """Be this shard until the run ends. Returns the exit code: RESTART if a worker is lost that the strategy needs."""
    context = RunContext.of(job, "shard", number, ranks)
    config = context.config
    configure_torch(config)
    flat = build_flat(config, shape_of(config), torch.device("cpu"))
    rendezvous = Rendezvous(context, number, flat)
    if not rendezvous.wait(for_begin=False):
        return 0
    server = ShardServer(context, number, rendezvous)
    rendezvous.control.send(Ready())
    if not rendezvous.wait(for_begin=True):
        return 0
    assert rendezvous.zero_s is not None
    try:
        server.run(rendezvous.control.clock.to_local(rendezvous.zero_s))
    except NotElastic as error:
        rendezvous.control.send(RestartNeeded(str(error)))
        return RESTART
    except Exception as error:
        if (told := users_fault(config.strategy, error)) is not None:
            raise ConfigError(told) from error
        raise
    return 0


class Rendezvous:
    """The time before the run: the shard listens, workers connect, and the coordinator starts the clock.

    Raises:
        OSError: this process cannot listen, or the coordinator is not there.
    """

    def __init__(self, context: RunContext, number: int, flat: FlatModule) -> None:
        config = context.config
        self.flat = flat  # the model, in its initial state
        self._num_workers, self._num_present = config.cluster.workers, context.num_present
        self.pulls = config.strategy.pull_rule(config.cluster.shards) is not None  # workers have a pull rule
        self.connections: dict[int, Connection] = {}  # by worker
        self.num_train = 0  # training samples, an epoch, as the workers say
        self.zero_s: float | None = None  # start of the run on the coordinator's clock
        self._is_stopped = False
        self.inbox: Inbox = queue.SimpleQueue()
        block = shard_blocks(config, flat.layout)[number]
        num_buffers = flat.buffers.numel() if number == 0 else 0
        num_versions = config.cluster.shards if self.pulls else 0
        count, compression = self._num_workers + 1, build_compression(config)
        self.pool = GradientPool(block.stop - block.start, num_buffers, count, num_versions, compression)
        listener = listen(context.listen_at, config.live.leave_s)

        def pulls(worker: int) -> PullCompressor | None:
            return build_pull_compressor(config, worker, number) if config.compresses_pulls else None

        accept_workers(listener, context.secret, self.pool, self.inbox, pulls)
        hello = Hello("shard", number, address_of(listener))
        self.control = ControlClient.of(context, hello, self.inbox.put)

    def wait(self, for_begin: bool) -> bool:
        """Wait for the workers, and for the start of the clock if `for_begin`. False if the run was stopped."""
        while not self._is_stopped:
            if len(self.connections) >= self._num_present and (self.zero_s is not None or not for_begin):
                return True
            self._handle(self.inbox.get())
        return False

    def _handle(self, message: InboxEvent) -> None:
        match message:
            case Connected(connection, about):
                if self.accepts(message, at=0.0):
                    old = self.connections.get(connection.worker)
                    if old is not None:
                        old.close()
                    self.connections[connection.worker] = connection
                    self.num_train = about["num_train"]
            case Disconnected(connection) if self.connections.get(connection.worker) is connection:
                self.connections.pop(connection.worker).close()
            case WorkerLost() if (lost := connection_of(message, self.connections)) is not None:
                self.connections.pop(lost.worker).close()
            case Call(action):
                action()
            case Begin(zero_s):
                self.zero_s = zero_s
            case Stop():
                self._is_stopped = True

    def accepts(self, message: Connected, at: float) -> bool:
        """Whether the worker belongs to this run and has the same model; if not, close its connection."""
        expected = {"size": self.flat.weights.numel(), "num_buffers": self.flat.buffers.numel()}
        worker, about = message.connection.worker, message.about
        fits = worker in range(self._num_workers) and {key: about.get(key) for key in expected} == expected
        if fits and isinstance(about.get("num_train"), int) and isinstance(about.get("pid"), int):
            message.connection.pid = about["pid"]
            return True
        self.control.send(Warn(f"rejected a worker {worker} with {str(about)[:200]}, expected {expected}", at))
        message.connection.close()
        return False


def connection_of(lost: WorkerLost, connections: Mapping[int, Connection]) -> Connection | None:
    """The connection of the lost process; None: it was noticed before, or another process has replaced it."""
    connection = connections.get(lost.worker)
    return connection if connection is not None and connection.pid == lost.pid else None


class ShardServer:
    """Serves the workers of one shard, which are all connected; everything here happens on the owner's thread."""

    def __init__(self, context: RunContext, number: int, rendezvous: Rendezvous) -> None:
        config = self._config = context.config
        flat, num_train = rendezvous.flat, rendezvous.num_train
        self._num_train = num_train
        self._rendezvous, self._connections = rendezvous, rendezvous.connections
        self._inbox, self._pool, self._control = rendezvous.inbox, rendezvous.pool, rendezvous.control
        self._clock = RunClock()
        self._stop_checkpoint: float | None = None  # number of the one with which the run stops; None: it goes on
        self._num_files = 0  # that hold a version while they are written
        self._watchdog = Watchdog(config.live.hang_s, config.live.leave_s)
        self._parameters = build_parameters(config, number, flat, num_train, is_whole=False)
        resumed = read_checkpoint(context, number)
        self._is_resumed = resumed is not None
        self._past_s = 0.0  # seconds of the run before this start, of the shard furthest on: all have one clock
        furthest = 0  # samples of the shard that has used most
        self._log = None
        if config.live.events:
            self._log = EventLog(context.folder / f"events-{number}.arrow", resumed[1]["rows"] if resumed else 0)
        limits = Limits.of(config, num_train)
        rounds, batch_size = config.rounds(num_train), config.batch_size
        self._shard = ElasticShard(number, config.strategy, self._parameters, batch_size, limits, self._log, rounds)
        if resumed:
            self._shard.load(*resumed, self._pool.take)
            folder, shards = context.folder / "checkpoint", range(config.cluster.shards)
            totals = [read_values(state_path(folder, context.resume or 0.0, shard))["totals"] for shard in shards]
            self._past_s = max(float(each["time_s"]) for each in totals)
            furthest = max(int(each["samples"]) for each in totals)
        samples = self._shard.totals.samples
        self._writer = StateWriter(context, number, num_train, samples, furthest, self._control.send)
        if not resumed:
            self._writer.save_snapshot(self._snapshot(), 0)

    def run(self, begin_s: float) -> None:
        """Serve from this monotonic time until the run ends here. Raises NotElastic if a needed worker is lost."""
        shard, present = self._shard, set(self._connections)
        self._clock.zero_s = begin_s - self._past_s
        if not self._is_resumed:
            self._carry_out(shard.begin(0.0))
        for worker in sorted(shard.active - present):
            self._left(worker, NOT_STARTED)
        back = sorted(present - shard.active)
        self._begin(self._is_resumed)
        for worker in back:
            self._carry_out(shard.joined(self._clock.now(), worker))
        try:
            self._serve()
            self._save_end()
        finally:
            if self._log is not None:
                self._log.close()
        self._close_connections()

    def _begin(self, resumed: bool) -> None:
        """Send all workers their first block."""
        for worker, is_held in self._shard.connected(self._clock.now(), resumed).items():
            self._connections[worker].resumes = resumed
            if is_held:  # other shards may lack a push
                self._send_block(Kind.HELD, self._connections[worker])
            else:
                self._grant(worker, is_busy=False, is_due=True)
        self._shard.check_progress(self._clock.now())

    def _serve(self) -> None:
        shard, zero_s = self._shard, self._clock.zero_s
        time_limit = self._config.max_time_s or float("inf")
        next_report = next_watch = time.monotonic()
        while shard.ended_by is None and self._stop_checkpoint is None:
            self._save_if_due()  # a push, a timer, or a worker that joins or leaves may have caused updates
            now = time.monotonic()
            if now - zero_s >= time_limit:
                shard.ended_by = "max_time_s"
                shard.totals.time_s = time_limit
                break
            if now >= next_report:
                next_report = now + REPORT_EVERY_S
                self._report()
            if now >= next_watch:
                next_watch = now + WATCH_EVERY_S
                self._watchdog.check(self._clock, shard.owes, self._drop_silent, self._warn_user)
            if now - zero_s >= shard.wakes_at:
                self._carry_out(shard.fire_timer(now - zero_s))
                continue
            try:
                until = min(next_report, next_watch, zero_s + min(time_limit, shard.wakes_at))
                message = self._inbox.get(timeout=max(until - now, 0.0))
            except queue.Empty:
                continue
            self._handle(message)

    def _handle(self, message: InboxEvent) -> None:
        match message:
            case Pushed():
                self._pushed(message)
            case FrameSent(connection, version):
                connection.sending -= 1
                if version is not None:
                    self._parameters.unpin(version)
            case Call(action):
                action()
            case Connected():
                self._connected(message)
            case Disconnected(connection, why) if self._is_current(connection):
                self._drop(connection, why)
            case WorkerLost() if (lost := connection_of(message, self._connections)) is not None:
                self._drop(lost, message.why)
            case Stop(checkpoint):
                self._stop_checkpoint = checkpoint
            case End(why):
                self._shard.ended_by = why

    def _pushed(self, message: Pushed) -> None:
        shard, report = self._shard, message.report
        if not self._is_current(message.connection) or not shard.expects(report.worker):
            message.gradient.release()  # of a connection that was dropped meanwhile
            return
        self._watchdog.pushed(report.worker)
        self._carry_out(shard.pushed(self._clock.now(), report, message.gradient))

    def _connected(self, message: Connected) -> None:
        connection, worker = message.connection, message.connection.worker
        if not self._rendezvous.accepts(message, self._clock.now()):
            return
        old = self._connections.get(worker)
        if old is not None:
            self._drop(old, "another process replaced it")
        self._connections[worker] = connection
        self._watchdog.connected(worker)
        self._warn_user(f"worker {worker} joined")
        self._carry_out(self._shard.joined(self._clock.now(), worker))

    def _is_current(self, connection: Connection) -> bool:
        """Its worker has not been dropped, nor connected again."""
        return self._connections.get(connection.worker) is connection

    def _drop_silent(self, worker: int, why: str) -> None:
        if worker in self._connections:
            self._drop(self._connections[worker], why)
            self._save_if_due()

    def _drop(self, connection: Connection, why: str) -> None:
        """This worker is lost."""
        del self._connections[connection.worker]
        connection.close()
        self._warn_user(f"worker {connection.worker} left: {why}")
        self._left(connection.worker, why)

    def _left(self, worker: int, why: str) -> None:
        self._carry_out(self._shard.left(self._clock.now(), worker, why), has_left=True)

    # Commands

    def _carry_out(self, commands: Iterable[Command], has_left: bool = False) -> None:
        for command in commands:
            match command:
                case Grant(worker=worker):
                    self._grant(worker, *self._shard.granted(worker))
                case Repeat(worker=worker):
                    self._shard.repeated(worker)
                    self._watchdog.note(worker, "repeated")
                    self._post(worker, Header(Kind.REPEAT))
                case WaitFor(count=count) if has_left:
                    self._warn_user(f"an update waits for {count} gradients from now on: {command.because}")
        self._shard.check_progress(self._clock.now())

    def _grant(self, worker: int, is_busy: bool, is_due: bool) -> None:
        """Send the worker the current version.

        Args:
            is_busy: it is computing now.
            is_due: its next push is due from now on; if it has not read the last block, it is as silent as before.
        """
        connection = self._connections.get(worker)
        if connection is None:
            return  # it was lost a moment ago, and `Disconnected` is in the inbox
        free = self._send_block(Kind.BLOCK, connection, is_busy)
        if is_due and (free is None or not is_busy):
            self._watchdog.note(worker, "granted")

    def _send_block(self, kind: Kind, connection: Connection, is_busy: bool = False) -> Version | None:
        """Returns the version that nobody needs for this any more, as `Connection.post`."""
        zero_s, resumes, version = self._clock.zero_s, connection.resumes, self._shard.version
        iteration = self._shard.iterations[connection.worker]
        header = Header(kind, iteration=iteration, version=version, zero_s=zero_s, resumes=resumes)
        free = connection.post(header, self._parameters.pin(), is_busy)
        if free is not None:
            self._parameters.unpin(free)
        return free

    def _post(self, worker: int, header: Header) -> None:
        connection = self._connections.get(worker)
        if connection is not None:
            connection.post(header, None)

    def _warn_user(self, text: str) -> None:
        self._control.send(Warn(text, self._clock.now()))

    def _report(self) -> None:
        totals = self._shard.totals
        loss = totals.loss if totals.loss_count else None
        now = self._clock.now()
        self._control.send(ProgressReport(totals.updates, totals.samples, now, loss, self._num_train, totals.count))

    # States

    def _save_if_due(self) -> None:
        writer, samples = self._writer, self._shard.totals.samples
        if self._shard.ended_by is not None:
            return
        if writer.snapshots.is_due(samples):
            writer.save_snapshot(self._snapshot(), samples)
        if writer.checkpoints.is_due(samples):
            self._save_kept(writer.save_checkpoint(self._checkpoint(), samples))

    def _save_end(self) -> None:
        """A checkpoint if the run was stopped, else the parameters; then notify the coordinator."""
        shard, writer = self._shard, self._writer
        if self._stop_checkpoint is not None:
            shard.totals.time_s = self._clock.now()
            writer.write_checkpoint(self._checkpoint(), self._stop_checkpoint)
            self._save_kept(self._stop_checkpoint)
            writer.finish()
            self._control.send(Stopped())
        else:
            ended_by = shard.ended_by
            assert ended_by is not None
            writer.save_parameters(self._snapshot())
            writer.finish()
            self._report()
            self._control.send(Done(ended_by, shard.totals.state_dict()))

    def _save_kept(self, checkpoint: float) -> None:
        """The workers write what they keep, as parts of the checkpoint of this number."""
        shard = self._shard
        for worker in shard.active if self._config.keeps_state_at_workers else ():
            self._post(worker, Header(Kind.SAVE, iteration=shard.iterations[worker], checkpoint=checkpoint))

    def _snapshot(self) -> PartState:
        """What is evaluated."""
        parameters, totals = self._parameters, self._shard.totals
        values = totals.snapshot(parameters.rate(totals.samples, totals.updates))
        evaluated = parameters.evaluated
        own = {} if evaluated is parameters.current.weights else {"evaluated": evaluated.clone()}
        return self._state(own, values)

    def _checkpoint(self) -> PartState:
        if self._log is not None:
            self._log.flush()
        tensors, values = self._shard.state()
        values["rows"] = 0 if self._log is None else self._log.num_rows
        return self._state(tensors, values)

    def _state(self, tensors: dict[str, Tensor], values: dict[str, object]) -> PartState:
        """These and the current version, pinned; copied if the disk is so slow that too many versions are pinned."""
        current = self._parameters.current
        if self._num_files == EXTRA_VERSIONS:
            copies = {"weights": current.weights.clone(), "buffers": current.buffers.clone()}
            return PartState(tensors | copies, values)
        version = self._parameters.pin()
        self._num_files += 1

        def unpin() -> None:
            self._parameters.unpin(version)
            self._num_files -= 1

        pinned = {"weights": current.weights, "buffers": current.buffers}
        return PartState(tensors | pinned, values, release=lambda: self._inbox.put(Call(unpin)))

    def _close_connections(self) -> None:
        """The workers close their connections when they are notified that the run is over."""
        for connection in self._connections.values():
            connection.post(Header(Kind.STOP), None, is_busy=True)
        until = time.monotonic() + CLOSE_S
        while self._connections and (left := until - time.monotonic()) > 0:
            try:
                message = self._inbox.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(message, Disconnected) and self._is_current(message.connection):
                del self._connections[message.connection.worker]
