"""How the members of a collective agree on the step with which the run ends."""

from collections.abc import Sequence

REASONS = ("", "stop", "max_time_s", "target", "diverged")  # by their number in an exchange; none first
NUM_ELEMENTS = 3  # that an exchange carries


class StopConsensus:
    """Spreads the first member's reason to end to all members, so that all end with the same step.

    Every exchange sums over its group: how many members know the reason, its number, and the exchanges that remain
    until all know it. That is one if all members are one group, and two in DS-Sync, where two successive exchanges join
    all members. All these are small whole numbers, so the sums are exact.

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
