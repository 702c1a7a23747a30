"""What the coordinator asks of a member of a collective, and how all members agree on the step with which it ends."""

import queue
import threading
import time
from collections.abc import Sequence

from syncline.live.node.control import ControlClient, RunContext
from syncline.live.wire.control_messages import (
    Activity,
    Addresses,
    Begin,
    ControlMessage,
    End,
    Hello,
    ReportActivity,
    Stop,
)

REASONS = ("", "stop", "max_time_s", "target", "diverged")  # by their number in an exchange; none first
NUM_ELEMENTS = 3  # that an exchange carries


class MemberControl:
    """The control connection, whose messages arrive on a thread of their own.

    Args:
        rank: of this member; the first one passes on to the others what the coordinator asks for.
        address: of the first member's store; empty for the others.
    """

    def __init__(self, context: RunContext, rank: int, address: str) -> None:
        self.rank = rank
        self.doing = "starting"  # the answer to `ReportActivity`
        self.stop_reason = ""  # why the run is to end; empty: it goes on
        self.stop_checkpoint = 0.0  # number of the checkpoint that `Stop` asked this member for
        self.cancel_delay = threading.Event()  # the run is to end: injected delays are cancelled
        self.store_address: queue.SimpleQueue[str] = queue.SimpleQueue()  # of the first member
        # when the run began, on the coordinator's clock; the moment of `Stop` or `End` if that came before
        self.begin_s: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.client = ControlClient.of(context, Hello("worker", rank, address), self._on_message)

    def _on_message(self, message: ControlMessage) -> None:
        match message:
            case Addresses([address]):
                self.store_address.put(address)
            case ReportActivity():
                self.client.send(Activity(self.doing))
            case Begin(zero_s):
                self.begin_s.put(zero_s)
            case Stop(checkpoint):
                self.stop_checkpoint = checkpoint
                self._stop("stop")
            case End(why):
                self._stop(why)

    def _stop(self, reason: str) -> None:
        self.stop_reason = reason
        self.cancel_delay.set()
        self.begin_s.put(time.monotonic() + self.client.clock.offset_s)


class StopAgreement:
    """Spreads the first member's reason to end to all members, so that all end with the same step.

    Every exchange sums over its group: how many members know the reason, its number, and the exchanges that remain
    until all know it. That is one if all members are one group, and two in DS-Sync, where two successive exchanges join
    all members; three if two successive ones may have the same groups. All these are small whole numbers, so the sums
    are exact.

    Args:
        num_exchanges: after which every member knows the reason.
    """

    def __init__(self, num_exchanges: int) -> None:
        self._number = 0  # in REASONS
        self._num_exchanges = num_exchanges
        self._remaining = 0  # exchanges

    @property
    def reason(self) -> str:
        """Why the run ends; empty: no reason is known."""
        return REASONS[self._number]

    def propose(self, reason: str) -> None:
        """By the first member, before an exchange; its first reason counts, and an empty one is none."""
        if not self._number and reason:
            self._number, self._remaining = REASONS.index(reason), self._num_exchanges

    def encode(self) -> list[float]:
        """This member's part of the sums."""
        return [float(self._number > 0), self._number, self._remaining]

    def decode(self, sums: Sequence[float]) -> bool:
        """Take the sums of an exchange. Returns whether the run ends with this step."""
        num_knowing, number, remaining = (round(each) for each in sums)
        if num_knowing:
            self._number, self._remaining = number // num_knowing, remaining // num_knowing - 1
        return num_knowing > 0 and self._remaining == 0
