"""The keyed streams from which durations are drawn.

Draws are made by inversion: x = Q(u), with u from a stream keyed by (seed, purpose, worker). The i-th draw of a worker
therefore depends only on the key and i: with one seed, two strategies have the same delays, and two distributions the
same quantiles (common random numbers).

A distribution with memory is renewed at every draw with a probability r: draw 0 is always one, draw i > 0 is where
u_i < r, at v = u_i / r, which is uniform again. What lies between follows from v of the last renewal and from the
number of draws since. So the i-th draw still depends on the key and i alone, though on other u than the i-th.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from syncline.timing.distributions import Array, Distribution, Remembering

BLOCK = 64  # draws of one worker made at a time


class Draws:
    """An endless stream of durations for each worker, independent of the draws of other workers.

    One array holds the next few of all workers: with 10,000 workers, an object for each would not fit the caches.

    Args:
        seed: of the run, >= 0.
        purpose: what is drawn ("compute", "push delay 0", ...): separate purposes are independent.
        source: the distribution.
        factors: one a worker; its draws are multiplied by it.
    """

    def __init__(self, seed: int, purpose: str, source: Distribution, factors: Sequence[float]) -> None:
        self._key = (seed << 32 | zlib.crc32(purpose.encode())) << 32
        self._source = source
        self._factors = np.asarray(factors, dtype=np.float64)
        # One generator that is positioned for each draw: one for each worker would take five times as long to set up.
        self._philox = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._philox)
        self._place = self._philox.state
        self._rows = self.made(0, BLOCK)  # [workers, BLOCK]
        self._begins = [0] * len(factors)  # draws before the worker's row
        self._flat = memoryview(self._rows.reshape(-1))  # type: ignore[arg-type]  # numpy 2.4's stubs lack __buffer__ here
        self._used = [0] * len(factors)  # draws that each worker has taken from its row
        self._before = np.zeros(len(factors))  # sum of its earlier rows

    def next(self, worker: int) -> float:
        """The worker's next duration; the i-th call for a worker always returns the same."""
        used = self._used[worker]
        if used == BLOCK:
            self._before[worker] += self._rows[worker].sum()
            self._begins[worker] += BLOCK
            self._draw_row(worker)
            used = 0
        self._used[worker] = used + 1
        return self._flat[worker * BLOCK + used]

    def drawn(self, worker: int) -> float:
        """The sum of all durations that `next` has returned for this worker."""
        return float(self._before[worker] + self._rows[worker, : self._used[worker]].sum())

    def state_dict(self) -> dict[str, Any]:
        """The position of every worker in its stream, in plain types."""
        return {"begins": list(self._begins), "used": list(self._used), "before": self._before.tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`; the same durations follow, in every bit."""
        self._begins, self._used = list(state["begins"]), list(state["used"])
        self._before[:] = state["before"]
        for worker in range(len(self._factors)):
            self._draw_row(worker)

    def _draw_row(self, worker: int) -> None:
        begin, source = self._begins[worker], self._source
        if isinstance(source, Remembering):
            drawn = self._remembered(source, worker, begin, BLOCK)
        else:
            drawn = source.quantile(self._stream(worker, begin).random(BLOCK))
        self._rows[worker] = drawn * self._factors[worker]

    def made(self, begin: int, num: int) -> Array:
        """Durations number begin, begin + 1, ... of every worker, [workers, num]; `next` is not affected.

        Args:
            begin: >= 0.
            num: >= 0.
        """
        drawn, source = np.empty((len(self._factors), num)), self._source
        for worker, row in enumerate(drawn):
            if isinstance(source, Remembering):
                row[:] = self._remembered(source, worker, begin, num)
            else:
                self._stream(worker, begin).random(out=row)
        if not isinstance(source, Remembering):
            drawn = source.quantile(drawn)
        return drawn * self._factors[:, None]

    def _remembered(self, source: Remembering, worker: int, begin: int, num: int) -> Array:
        """Draws number begin, begin + 1, ... of one worker, [num]; num may be 0."""
        first, further = begin, BLOCK
        uniform = self._stream(worker, first).random(num)
        while first > 0 and not (uniform[: begin - first + 1] < source.renewal).any():
            first, further = max(0, first - further), 2 * further
            uniform = self._stream(worker, first).random(begin + num - first)
        is_renewed, at = uniform < source.renewal, uniform / source.renewal
        if first == 0:
            is_renewed[:1], at[:1] = True, uniform[:1]
        places = np.arange(len(uniform))
        last = np.maximum.accumulate(np.where(is_renewed, places, 0))[begin - first :]
        return source.following(worker, at[last], places[begin - first :] - last)

    def _stream(self, worker: int, begin: int) -> np.random.Generator:
        """A generator whose next number in [0, 1) is the worker's `begin`-th; Philox makes four at a time."""
        key = self._key | worker
        self._place["state"]["key"][:] = key & (2**64 - 1), key >> 64
        self._place["state"]["counter"][0] = begin // 4
        self._philox.state = self._place
        if begin % 4:
            self._generator.random(begin % 4)
        return self._generator
