"""A shard before the run begins: it listens, and waits for all workers and for the launcher."""

import queue

from syncline.assembly import build_shard
from syncline.config import RunConfig
from syncline.learning.flat import FlatModule
from syncline.live.connections import Acceptor, Call, Connected, Connection, Disconnected, Event, GradientPool, Inbox
from syncline.live.context import RunContext
from syncline.live.messages import Begin, Hello, Signal, Warn
from syncline.live.transport import address_of, listen


def has_pull_rule(config: RunConfig) -> bool:
    return config.strategy.pull_rule(config.cluster.shards) is not None


class Gathering:
    """The time before the run: workers connect, and the launcher starts the clock.

    Args:
        number: of the shard.
        flat: the model, in its initial state.

    Raises:
        OSError: this process cannot listen, or the launcher is not there.
    """

    def __init__(self, context: RunContext, number: int, flat: FlatModule) -> None:
        config = self._config = context.config
        self.flat = flat
        self.connections: dict[int, Connection] = {}  # by worker
        self.num_train = 0  # training samples, an epoch, as the workers say
        self.inbox: Inbox = queue.SimpleQueue()
        block = build_shard(config, number, flat, 1, is_whole=False).block
        num_buffers = flat.buffers.numel() if number == 0 else 0
        num_versions = config.cluster.shards if has_pull_rule(config) else 0
        self.pool = GradientPool(block.stop, num_buffers, config.cluster.workers + 1, num_versions)
        listener = listen(context.listen_at, config.live.leave_s)
        Acceptor(listener, context.secret, context.tls, self.pool, self.inbox)
        self.control = context.connect_control(Hello("shard", number, address_of(listener)), self.inbox.put)
        self._zero_s: float | None = None
        self._is_stopped = False

    def wait_for_workers(self) -> bool:
        """Return when all workers are connected. False if the run was stopped."""
        while not self._is_stopped and not self._is_complete():
            self._handle(self.inbox.get())
        return not self._is_stopped

    def wait_for_begin(self) -> float | None:
        """Return the start of the run on the launcher's clock, when all workers are connected; None if stopped."""
        while not self._is_stopped and (self._zero_s is None or not self._is_complete()):
            self._handle(self.inbox.get())
        return None if self._is_stopped else self._zero_s

    def _is_complete(self) -> bool:
        return len(self.connections) == self._config.cluster.workers

    def _handle(self, message: Event) -> None:
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
            case Call(action):
                action()
            case Begin(zero_s):
                self._zero_s = zero_s
            case Signal.STOP:
                self._is_stopped = True

    def accepts(self, message: Connected, at: float) -> bool:
        """Whether the worker belongs to this run and has the same model; if not, close its connection.

        Args:
            at: seconds of the run.
        """
        expected = {"size": self.flat.weights.numel(), "num_buffers": self.flat.buffers.numel()}
        worker, about = message.connection.worker, message.about
        fits = worker in range(self._config.cluster.workers) and {key: about.get(key) for key in expected} == expected
        if fits and isinstance(about.get("num_train"), int):
            return True
        self.control.send(Warn(f"rejected a worker {worker} with {str(about)[:200]}, expected {expected}", at))
        message.connection.close()
        return False
