"""Distributions of durations, each given by its quantile function, and the keyed streams they are drawn from.

Draws are made by inversion: x = Q(u), with u from a stream keyed by (seed, purpose, worker). The i-th draw of a worker
therefore depends only on the key and i: with one seed, two strategies have the same delays, and two distributions the
same quantiles (common random numbers).
"""

import hashlib
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from syncline.checksums import file_checksum

Array = npt.NDArray[np.float64]

BLOCK = 64  # draws of one worker made at a time
INLINE = 100  # values of an empirical distribution that a config may hold
SMALLEST_SHAPE = 0.01  # of weibull and gamma: below it, means and draws leave the range of floating-point numbers


class Distribution(Protocol):
    """A distribution of durations >= 0, in the unit of its parameters."""

    @property
    def name(self) -> str: ...

    def quantile(self, u: Array) -> Array:
        """Q(u) for u in [0, 1), any shape."""
        ...

    def expectation(self) -> float: ...


if TYPE_CHECKING:
    OptionalDistribution = Distribution | None
else:  # OmegaConf has no type for it: a config holds {name: ..., parameters} until its __post_init__ converts that
    OptionalDistribution = Any


@dataclass(frozen=True, slots=True)
class Constant:
    value: float  # >= 0
    name: str = "constant"

    def __post_init__(self) -> None:
        require(self.value >= 0, "constant.value must be >= 0", self.value)

    def quantile(self, u: Array) -> Array:
        return np.full_like(u, self.value)

    def expectation(self) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal, with its rare negative values moved to 0."""

    mean: float  # before the cut, > 0
    std: float  # >= 0
    name: str = "normal"

    def __post_init__(self) -> None:
        require(self.mean > 0, "normal.mean must be > 0", self.mean)
        require(self.std >= 0, "normal.std must be >= 0", self.std)

    def quantile(self, u: Array) -> Array:
        return np.maximum(0.0, self.mean + self.std * _standard_normal(u))

    def expectation(self) -> float:
        from scipy.stats import norm

        if self.std == 0:
            return self.mean
        z = self.mean / self.std
        return float(self.mean * norm.cdf(z) + self.std * norm.pdf(z))


@dataclass(frozen=True, slots=True)
class Exponential:
    mean: float  # > 0
    name: str = "exponential"

    def __post_init__(self) -> None:
        require(self.mean > 0, "exponential.mean must be > 0", self.mean)

    def quantile(self, u: Array) -> Array:
        return -self.mean * np.log1p(-u)

    def expectation(self) -> float:
        return self.mean


@dataclass(frozen=True, slots=True)
class ShiftedExponential:
    """shift + Exp(1/scale) (adasync.txt)."""

    shift: float  # >= 0
    scale: float  # mean of the exponential part, > 0
    name: str = "shifted_exponential"

    def __post_init__(self) -> None:
        require(self.shift >= 0, "shifted_exponential.shift must be >= 0", self.shift)
        require(self.scale > 0, "shifted_exponential.scale must be > 0", self.scale)

    def quantile(self, u: Array) -> Array:
        return self.shift - self.scale * np.log1p(-u)

    def expectation(self) -> float:
        return self.shift + self.scale


@dataclass(frozen=True, slots=True)
class Pareto:
    """P(X > x) = (minimum / x)^shape for x >= minimum."""

    minimum: float  # > 0
    shape: float  # > 1, so that the mean is finite
    name: str = "pareto"

    def __post_init__(self) -> None:
        require(self.minimum > 0, "pareto.minimum must be > 0", self.minimum)
        require(self.shape > 1, "pareto.shape must be > 1 (or the mean is infinite)", self.shape)

    def quantile(self, u: Array) -> Array:
        return self.minimum * (1.0 - u) ** (-1.0 / self.shape)

    def expectation(self) -> float:
        return self.minimum * self.shape / (self.shape - 1.0)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """median * exp(sigma Z), Z standard normal: most durations near the median, occasionally a far longer one."""

    median: float  # > 0
    sigma: float  # standard deviation of the logarithm, in 0 .. 10: at 10 the longest are 10^35 times the median
    name: str = "log_normal"

    def __post_init__(self) -> None:
        require(self.median > 0, "log_normal.median must be > 0", self.median)
        require(0 <= self.sigma <= 10, "log_normal.sigma must be in 0 .. 10", self.sigma)

    def quantile(self, u: Array) -> Array:
        return self.median * np.exp(self.sigma * _standard_normal(u))

    def expectation(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2.0)


@dataclass(frozen=True, slots=True)
class Uniform:
    low: float  # >= 0
    high: float  # >= low
    name: str = "uniform"

    def __post_init__(self) -> None:
        require(self.low >= 0, "uniform.low must be >= 0", self.low)
        require(self.high >= self.low, f"uniform.high must be >= uniform.low = {self.low}", self.high)

    def quantile(self, u: Array) -> Array:
        return self.low + (self.high - self.low) * u

    def expectation(self) -> float:
        return (self.low + self.high) / 2.0


@dataclass(frozen=True, slots=True)
class Weibull:
    """P(X > x) = exp(-(x / scale)^shape): exponential for shape 1; below it a heavier tail, above it a lighter one."""

    scale: float  # > 0; 63 % of the durations are below it
    shape: float  # >= 0.01
    name: str = "weibull"

    def __post_init__(self) -> None:
        require(self.scale > 0, "weibull.scale must be > 0", self.scale)
        require(SMALLEST_SHAPE <= self.shape < math.inf, "weibull.shape must be >= 0.01", self.shape)

    def quantile(self, u: Array) -> Array:
        return self.scale * (-np.log1p(-u)) ** (1.0 / self.shape)

    def expectation(self) -> float:
        return self.scale * math.gamma(1.0 + 1.0 / self.shape)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Density proportional to x^(shape - 1) exp(-x / scale); for a whole shape, the sum of that many exponentials."""

    shape: float  # >= 0.01
    scale: float  # > 0; the mean is shape * scale
    name: str = "gamma"

    def __post_init__(self) -> None:
        require(SMALLEST_SHAPE <= self.shape < math.inf, "gamma.shape must be >= 0.01", self.shape)
        require(self.scale > 0, "gamma.scale must be > 0", self.scale)

    def quantile(self, u: Array) -> Array:
        from scipy.special import gammaincinv  # here, as ndtri is

        return self.scale * np.asarray(gammaincinv(self.shape, u), dtype=np.float64)

    def expectation(self) -> float:
        return self.shape * self.scale


@dataclass(frozen=True)
class Empirical:
    """One of the measured durations, all equally likely, from a list or a text file.

    For a file, the config holds its path and checksum rather than the numbers. They are read when first needed, and
    refused if the file has changed since. A record keeps a copy of the file.
    """

    values: tuple[float, ...] = ()
    path: str = field(default="", compare=False)  # of a file with one number a line
    content: str = ""  # MD5 of the file; empty: computed now
    name: str = "empirical"

    def __post_init__(self) -> None:
        require(bool(self.values) != bool(self.path), "empirical needs either values or path, not both", self)
        require(bool(self.path) or not self.content, "empirical.content goes with path", self.content)
        if self.path and not self.content:
            try:
                object.__setattr__(self, "content", file_checksum(Path(self.path)))
            except OSError as error:
                raise ValueError(f"empirical.path: cannot read {self.path!r}: {error.strerror}") from None
            _numbers(self.path, self.content)
        elif not self.path:
            object.__setattr__(self, "values", tuple(_durations(self.values).tolist()))

    @cached_property
    def sample(self) -> Array:
        """All durations, ascending.

        Raises:
            ValueError: the file has changed, or cannot be read any more.
        """
        return _numbers(self.path, self.content) if self.path else np.array(self.values)

    def quantile(self, u: Array) -> Array:
        sample = self.sample
        drawn: Array = sample[np.minimum((u * len(sample)).astype(np.int64), len(sample) - 1)]
        return drawn

    def expectation(self) -> float:
        return float(np.mean(self.sample))


@lru_cache(maxsize=16)
def _numbers(path: str, content: str) -> Array:
    """The durations in the file whose checksum is `content`, ascending."""
    try:
        text = Path(path).read_bytes()
        numbers = _durations([float(line) for line in text.split()])
    except OSError as error:
        raise ValueError(f"empirical.path: cannot read {path!r}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"empirical.path: cannot read numbers from {path!r}: {error}") from None
    found = hashlib.md5(text, usedforsecurity=False).hexdigest()
    if found != content:
        checksums = f"it has checksum {found}, the run was made of {content}"
        raise ValueError(f"empirical.path: {path!r} has changed: {checksums}")
    return numbers


def _durations(values: Sequence[float]) -> Array:
    numbers = np.sort(np.array([float(value) for value in values]))
    is_valid = len(numbers) > 0 and bool(np.all((numbers >= 0) & np.isfinite(numbers)))
    require(is_valid, "empirical needs durations >= 0", [*values][:1])
    numbers.flags.writeable = False
    return numbers


@dataclass(frozen=True, slots=True)
class Occasional:
    """A duration from `source` with `probability`, else 0."""

    probability: float  # in [0, 1]
    source: Distribution

    def __post_init__(self) -> None:
        require(0 <= self.probability <= 1, "probability must be in [0, 1]", self.probability)

    @property
    def name(self) -> str:
        return self.source.name

    def quantile(self, u: Array) -> Array:
        if self.probability == 0:
            return np.zeros_like(u)
        never = 1.0 - self.probability
        return np.where(u < never, 0.0, self.source.quantile(np.maximum(u - never, 0.0) / self.probability))

    def expectation(self) -> float:
        return self.probability * self.source.expectation()


DISTRIBUTIONS: dict[str, Callable[..., Distribution]] = {
    "constant": Constant,
    "empirical": Empirical,
    "exponential": Exponential,
    "gamma": Gamma,
    "log_normal": LogNormal,
    "normal": Normal,
    "pareto": Pareto,
    "shifted_exponential": ShiftedExponential,
    "uniform": Uniform,
    "weibull": Weibull,
}


TEXTS = {"path": "a path", "content": "a checksum"}  # parameters of empirical that are not numbers


def distribution(where: str, options: Mapping[str, Any]) -> Distribution:
    """The distribution that `{name: ..., parameters}` describes; `where` is the config key, for the error.

    Raises:
        ValueError: unknown name, unknown or missing parameter, or a value out of range.
    """
    options = dict(options)
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in DISTRIBUTIONS:
        raise ValueError(f"{where}.name must be one of {', '.join(DISTRIBUTIONS)}, got {name!r}")
    kind = DISTRIBUTIONS[name]
    allowed = [field for field in kind.__dataclass_fields__ if field != "name"]  # type: ignore[attr-defined]
    for key, value in options.items():
        if key not in allowed:
            raise ValueError(f"{where}.{key}: unknown; {name} takes {', '.join(allowed)}")
        if key == "values":
            # A list from YAML, a tuple from a config in plain types.
            if not isinstance(value, list | tuple) or not all(isinstance(each, int | float) for each in value):
                raise ValueError(f"{where}.{key} must be a list of numbers, got {value!r}")
            if len(value) > INLINE:
                rule = f"must hold at most {INLINE} numbers; more go into a file, path=FILE with one number a line"
                raise ValueError(f"{where}.{key} {rule}; got {len(value)}")
            options[key] = tuple(_float(each) for each in value)
        elif not isinstance(value, str if key in TEXTS else int | float):
            raise ValueError(f"{where}.{key} must be {TEXTS.get(key, 'a number')}, got {value!r}")
        elif not isinstance(value, str):
            options[key] = _float(value)
    try:
        return kind(**options)
    except TypeError:
        missing = [key for key in allowed if key not in options]
        raise ValueError(f"{where}: {name} also needs {', '.join(missing)}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def optional(
    where: str, given: Any, read: Callable[[str, Mapping[str, Any]], Distribution] = distribution
) -> Distribution | None:
    """None, a distribution, or what `read` makes of a mapping; ValueError for anything else."""
    if isinstance(given, Mapping):
        return read(where, given)
    is_valid = given is None or hasattr(given, "quantile")
    require(is_valid, f"{where} must be null or {{name: <distribution>, ...}}", repr(given))
    found: Distribution | None = given
    return found


def _float(number: float) -> float:
    """As a float; infinity if it is too large for one."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


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
        self._rows = self._make(0, BLOCK)  # [workers, BLOCK]
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

    def next_block(self) -> Array:
        """The next `BLOCK` durations of every worker, [workers, BLOCK], as from that many calls of `next`.

        Either this is called or `next`, not both.
        """
        if self._used[0]:
            self._before += self._rows.sum(axis=1)
            self._begins = [begin + BLOCK for begin in self._begins]
            self._rows[:] = self._make(self._begins[0], BLOCK)
        self._used = [BLOCK] * len(self._factors)
        return self._rows.copy()

    def drawn(self, worker: int) -> float:
        """The sum of all durations that `next` has returned for this worker."""
        return float(self._before[worker] + self._rows[worker, : self._used[worker]].sum())

    def first(self, num: int) -> Array:
        """The first `num` >= 0 durations of every worker, [workers, num]; `next` is not affected.

        Column i is what the i-th call of `next` gives, in every bit.
        """
        return self._make(0, num)

    def state_dict(self) -> dict[str, Any]:
        """The position of every worker in its stream, in plain types."""
        return {"begins": list(self._begins), "used": list(self._used), "before": self._before.tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`; the same durations follow, in every bit."""
        self._begins, self._used = list(state["begins"]), list(state["used"])
        self._before[:] = state["before"]
        for worker in range(len(self._factors)):
            self._draw_row(worker)

    def seek_block(self, begin: int) -> None:
        """Continue `next_block` with duration number `begin`, a multiple of `BLOCK`; resets `drawn`."""
        self._begins, self._used = [begin] * len(self._factors), [0] * len(self._factors)
        self._before[:] = math.nan
        self._rows[:] = self._make(begin, BLOCK)

    def _draw_row(self, worker: int) -> None:
        uniform = self._stream(worker, self._begins[worker]).random(BLOCK)
        self._rows[worker] = self._source.quantile(uniform) * self._factors[worker]

    def _make(self, begin: int, num: int) -> Array:
        """Durations number begin, begin + 1, ... of every worker, [workers, num]."""
        uniform = np.empty((len(self._factors), num))
        for worker, row in enumerate(uniform):
            self._stream(worker, begin).random(out=row)
        return self._source.quantile(uniform) * self._factors[:, None]

    def _stream(self, worker: int, begin: int) -> np.random.Generator:
        """A generator whose next number in [0, 1) is the worker's `begin`-th; Philox makes four at a time."""
        assert begin % 4 == 0
        key = self._key | worker
        self._place["state"]["key"][:] = key & (2**64 - 1), key >> 64
        self._place["state"]["counter"][0] = begin // 4
        self._philox.state = self._place
        return self._generator


def _standard_normal(u: Array) -> Array:
    """Its quantiles; of 0, where minus infinity would be (and a sigma of 0 times that no number), a finite one."""
    from scipy.special import ndtri  # here: it would be a third of what `python run.py --help` takes

    quantiles: Array = ndtri(np.maximum(u, 2.0**-54))
    return quantiles


def require(condition: bool, rule: str, given: object) -> None:
    if not condition:
        raise ValueError(f"{rule}, got {given}")
