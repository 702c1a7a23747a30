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
        self.store_address: queue.SimpleQueue[str] = queue.SimpleQueue()  # of the first member
        # when the run began, on the launcher's clock; the moment of `Stop` or `End` if that came before
        self.begin_s: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.client = context.connect_control(Hello("worker", rank, address), self._on_message)

    def _on_message(self, message: Message) -> None:
        match message:
            case Addresses([address]):
                self.store_address.put(address)
            case Signal.REPORT_ACTIVITY:
                self.client.send(Activity(self.doing))
            case Begin(zero_s):
                self.begin_s.put(zero_s)
            case Signal.STOP:
                self._stop("stop")
            case End(why):
                self._stop(why)

    def _stop(self, reason: str) -> None:
        self.stop_reason = reason
        self.cancel_delay.set()
        self.begin_s.put(time.monotonic() + self.client.clock.offset_s)
