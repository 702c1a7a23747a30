"""Injected times of gradients whose parts leave while the others are computed."""

import time
from collections.abc import Callable

from syncline.timing.cluster import DelayInjector


class Pace:
    """Slow-downs stretch a gradient, so that its parts are ready as late as on the cluster. Delays come before it.

    A part leaves after the share of the gradient's time after which it was ready in the gradients before, on average:
    how long the present one will take is not known while it is computed. Those of the first gradient leave at once.

    Args:
        wait: waits for so many seconds; returns them, or 0 if the run is to end.

    Attributes:
        slowdown_s, delay_s: of the last gradient.
    """

    def __init__(self, delays: DelayInjector, wait: Callable[[float], float]) -> None:
        self._delays, self._wait = delays, wait
        self._shares: list[float] = []  # of a gradient's own time after which each part is ready: means
        self._gradients = 0  # that they are the means of
        self._ready_s: list[float] = []  # own seconds after which each part of this gradient was ready
        self._begun_at = self._drawn_s = 0.0  # monotonic; on the cluster
        self.slowdown_s = self.delay_s = 0.0

    def begin(self) -> None:
        """A gradient begins after its delay."""
        self._drawn_s, delay_s = self._delays.draw()
        self.delay_s, self.slowdown_s = self._waited(delay_s), 0.0
        self._ready_s.clear()
        self._begun_at = time.monotonic()

    def part_is_ready(self) -> None:
        """It leaves when it would be ready on the cluster."""
        own_s = self._spent_s()
        if self._shares:
            share = self._shares[len(self._ready_s)]
            self._slow_down_until(share * self._delays.wanted_s(self._drawn_s, own_s / share), own_s)
        self._ready_s.append(own_s)

    def end(self) -> None:
        """The gradient is complete."""
        own_s = self._spent_s()
        self._slow_down_until(self._delays.wanted_s(self._drawn_s, own_s), own_s)
        shares = [ready_s / own_s for ready_s in self._ready_s]
        self._gradients += 1
        before = self._shares or shares
        self._shares = [mean + (new - mean) / self._gradients for mean, new in zip(before, shares, strict=True)]

    def _spent_s(self) -> float:
        """Seconds of this gradient, without what was injected."""
        return time.monotonic() - self._begun_at - self.slowdown_s

    def _slow_down_until(self, until_s: float, own_s: float) -> None:
        self.slowdown_s += self._waited(until_s - own_s - self.slowdown_s)

    def _waited(self, seconds: float) -> float:
        return self._wait(seconds) if seconds > 0 else 0.0
