"""A member's control connection: what the launcher of a collective asks for, and what the member tells it."""

import queue
import threading
import time

from syncline.live.context import RunContext
from syncline.live.messages import Activity, Addresses, Begin, End, Hello, Message, Signal


class MemberControl:
    """The control connection, whose messages arrive on a thread of their own.

    Args:
        rank: of this member; the first one passes on to the others what the launcher asks for.
        address: of the first member's store; empty for the others.
    """

    def __init__(self, context: RunContext, rank: int, address: str) -> None:
        self.is_first = rank == 0
        self.doing = "starting"  # the answer to `REPORT_ACTIVITY`
        self.stop_reason = ""  # why the run is to end; empty: it goes on
        self.cancel_delay = threading.Event()  # the run is to end: injected delays are cancelled
        self._store_addresses: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._begins: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.client = context.connect_control(Hello("worker", rank, address), self._on_message)

    def wait_for_store(self) -> str:
        """The address of the first member's store."""
        return self._store_addresses.get()

    def wait_for_begin(self) -> float:
        """When the run began, on the launcher's clock; now, if it is to stop before."""
        return self._begins.get()

    def request_stop(self, reason: str) -> None:
        """The run is to end; the first reason counts."""
        self.stop_reason = self.stop_reason or reason

    def _on_message(self, message: Message) -> None:
        match message:
            case Addresses([address]):
                self._store_addresses.put(address)
            case Signal.REPORT_ACTIVITY:
                self.client.send(Activity(self.doing))
            case Begin(zero_s):
                self._begins.put(zero_s)
            case Signal.STOP:
                self._stop("stop")
            case End(why):
                self._stop(why)

    def _stop(self, reason: str) -> None:
        self.stop_reason = reason
        self.cancel_delay.set()
        self._begins.put(time.monotonic() + self.client.clock.offset_s)
