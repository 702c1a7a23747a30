"""A shard before the run begins: it listens, and waits for all workers and for the launcher."""

import queue
from dataclasses import dataclass

from syncline.assembly import build_shard
from syncline.config import RunConfig
from syncline.learning.flat import FlatModule
from syncline.live.connections import Acceptor, Call, Connected, Connection, Disconnected, Event, GradientPool, Inbox
from syncline.live.context import RunContext
from syncline.live.control import ControlClient
from syncline.live.messages import Begin, Hello, Signal, Warn
from syncline.live.transport import address_of, listen


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How a shard communicates."""

    inbox: Inbox
    pool: GradientPool
    control: ControlClient
    acceptor: Acceptor

    @classmethod
    def open(cls, context: RunContext, number: int, flat: FlatModule) -> "Endpoint":
        """Listen for workers, and connect to the launcher.

        Raises:
            OSError: it cannot listen, or the launcher is not there.
        """
        config = context.config
        inbox: Inbox = queue.SimpleQueue()
        block = build_shard(config, number, flat, 1, is_whole=False).block
        num_buffers = flat.buffers.numel() if number == 0 else 0
        num_versions = config.cluster.shards if has_pull_rule(config) else 0
        pool = GradientPool(block.stop, num_buffers, config.cluster.workers + 1, num_versions)
        listener = listen(context.listen_at, config.live.leave_s)
        acceptor = Acceptor(listener, context.secret, context.tls, pool, inbox)
        control = context.connect_control(Hello("shard", number, address_of(listener)), inbox.put)
        return cls(inbox, pool, control, acceptor)


def has_pull_rule(config: RunConfig) -> bool:
    return config.strategy.pull_rule(config.cluster.shards) is not None


class Gathering:
    """The time before the run: workers connect, and the launcher starts the clock."""

    def __init__(self, config: RunConfig, endpoint: Endpoint, flat: FlatModule) -> None:
        self.connections: dict[int, Connection] = {}
        self.num_train = 0  # training samples, as the workers say
        self._config, self._flat = config, flat
        self._inbox, self._control = endpoint.inbox, endpoint.control
        self._zero_s: float | None = None
        self._is_stopped = False

    def wait_for_workers(self) -> bool:
        """Return when all workers are connected. False if the run was stopped."""
        while not self._is_stopped and not self._is_complete():
            self._handle(self._inbox.get())
        return not self._is_stopped

    def wait_for_begin(self) -> float | None:
        """Return the start of the run on the launcher's clock, when all workers are connected; None if stopped."""
        while not self._is_stopped and (self._zero_s is None or not self._is_complete()):
            self._handle(self._inbox.get())
        return None if self._is_stopped else self._zero_s

    def _is_complete(self) -> bool:
        return len(self.connections) == self._config.cluster.workers

    def _handle(self, message: Event) -> None:
        match message:
            case Connected(connection, about):
                if accept_or_close(message, self._config, self._flat, self._control, at=0.0):
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


def accept_or_close(message: Connected, config: RunConfig, flat: FlatModule, control: ControlClient, at: float) -> bool:
    """Whether the worker belongs to this run and has the same model; if not, close its connection.

    Args:
        at: seconds of the run.
    """
    expected = {"size": flat.weights.numel(), "num_buffers": flat.buffers.numel()}
    worker, about = message.connection.worker, message.about
    fits = worker in range(config.cluster.workers) and {key: about.get(key) for key in expected} == expected
    if fits and isinstance(about.get("num_train"), int):
        return True
    control.send(Warn(f"rejected a worker {worker} with {str(about)[:200]}, expected {expected}", at))
    message.connection.close()
    return False
