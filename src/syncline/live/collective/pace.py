"""Injected times of gradients whose parts leave while the others are computed."""

import time
from collections.abc import Callable

from syncline.timing.cluster import DelayInjector


class Pace:
    """Slow-downs stretch a gradient, so that its parts are ready as late as on the cluster. Delays come before it.

    Args:
        wait: waits for so many seconds; returns them, or 0 if the run is to end.

    Attributes:
        slowdown_s, delay_s: of the last gradient.
    """

    def __init__(self, delays: DelayInjector, wait: Callable[[float], float]) -> None:
        self._delays, self._wait = delays, wait
        self._begun_at = self._drawn_s = 0.0  # monotonic; on the cluster
        self.slowdown_s = self.delay_s = 0.0

    def begin(self) -> None:
        """A gradient begins after its delay."""
        self._drawn_s, delay_s = self._delays.draw()
        self.delay_s, self.slowdown_s = self._waited(delay_s), 0.0
        self._begun_at = time.monotonic()

    def part_is_ready(self, share: float) -> None:
        """With it this share of the gradient's elements is ready; it leaves when it would be ready on the cluster."""
        own_s = time.monotonic() - self._begun_at - self.slowdown_s
        until_s = self._delays.wanted_s(self._drawn_s, own_s, share)
        self.slowdown_s += self._waited(until_s - own_s - self.slowdown_s)

    def _waited(self, seconds: float) -> float:
        return self._wait(seconds) if seconds > 0 else 0.0
