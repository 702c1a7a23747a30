"""When parts of a gradient are ready: the backward pass completes it from its end to its beginning.

Shape legend: n parameters.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from syncline.learning.flat import FlatModule


def from_end(n: int, size: int) -> list[slice]:
    """The parts of a vector [n] from its end, of `size` >= 1 elements; the last one may have fewer."""
    return [slice(max(0, end - size), end) for end in range(n, 0, -size)]


class Buckets:
    """The gradient in parts of equal size, each handed over once the backward pass has completed it.

    They are handed over from the last to the first, so that all members of a collective send them in the same order.

    Args:
        flat: whose gradient.
        size: elements of a part, >= 1; the first one may be smaller.
        on_ready: called with the place of each part in the flat vector, on the thread of the backward pass.

    Attributes:
        places: of the parts, in the order in which they are handed over.
    """

    def __init__(self, flat: FlatModule, size: int, on_ready: Callable[[slice], None]) -> None:
        self.places = from_end(flat.gradient.numel(), size)
        self._on_ready = on_ready
        self._next = len(self.places)  # part to be handed over next; none before `begin`
        self._missing: list[int] = []  # parameters of each part that are not ready
        self._parts_of: list[range] = []  # of each parameter
        begin = 0
        for number, parameter in enumerate(flat.trained):
            end = begin + parameter.numel()
            first, last = ((flat.gradient.numel() - place - 1) // size for place in (max(begin, end - 1), begin))
            self._parts_of.append(range(first, last + 1) if end > begin else range(0))
            parameter.register_post_accumulate_grad_hook(self._hook(number))  # type: ignore[no-untyped-call]
            begin = end

    def begin(self) -> None:
        """The next gradient is handed over."""
        self._next = 0
        self._missing = [0] * len(self.places)
        for parts in self._parts_of:
            for part in parts:
                self._missing[part] += 1

    def complete(self) -> None:
        """The backward pass has ended: hand over what is left, of parameters without a part in the loss."""
        self._hand_over(until_missing=False)

    def _hook(self, number: int) -> Callable[[Tensor], None]:
        def ready(parameter: Tensor) -> None:
            if self._next < len(self.places):
                for part in self._parts_of[number]:
                    self._missing[part] -= 1
                self._hand_over(until_missing=True)

        return ready

    def _hand_over(self, until_missing: bool) -> None:
        while self._next < len(self.places) and not (until_missing and self._missing[self._next] > 0):
            place = self.places[self._next]
            self._next += 1
            self._on_ready(place)


def ready_shares(
    flat: FlatModule, compute: Callable[[], object], clock: Callable[[], float], points: int = 16, repeats: int = 5
) -> list[float]:
    """After which share of a gradient's time 0, 1/points, 2/points, ... of it are ready, from the end; medians.

    Args:
        compute: one gradient on this module.
        clock: seconds.
        repeats: gradients, after one that is not counted.
    """
    size = -(-flat.gradient.numel() // points)
    moments: list[float] = []
    buckets = Buckets(flat, size, lambda place: moments.append(clock()))
    found = []
    for number in range(1 + repeats):
        moments.clear()
        begun = clock()
        buckets.begin()
        compute()
        ended = clock()
        buckets.complete()
        if number:
            found.append([(min(moment, ended) - begun) / (ended - begun) for moment in moments])
    medians: Sequence[float] = torch.tensor(found, dtype=torch.float64).median(dim=0).values.tolist()
    first = medians[0] - (medians[-1] - medians[0]) / max(1, len(medians) - 1)  # before it, the rate of all
    return [max(0.0, min(first, medians[0])), *medians[:-1], 1.0]
