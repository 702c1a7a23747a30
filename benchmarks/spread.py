"""Several measurements of one thing."""

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, median and maximum of several measurements."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        return f"{self.median:.3f} [{min(self.values):.3f} .. {max(self.values):.3f}], n = {len(self.values)}"
