"""Distributions of durations, each given by its quantile function; draws.py has the streams they are drawn from.

Two have a memory: what follows a duration depends on it. `Trace` is a measured sequence, `TwoState` a Markov chain.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from syncline.checks import Checked, check, ranged
from syncline.checksums import file_checksum

Array = npt.NDArray[np.float64]

INLINE = 100  # measured values that a config may hold
SHAPE = ">= 0.01"  # of weibull and gamma: below it, means and draws leave the range of floating-point numbers


class Distribution(Protocol):
    """A distribution of durations >= 0, in the unit of its parameters."""

    @property
    def name(self) -> str: ...

    def quantile(self, u: Array) -> Array:
        """Q(u) for u in [0, 1), any shape."""
        ...

    def expectation(self) -> float: ...


class Parametrised(Checked):
    """A distribution whose errors begin with its name."""

    __slots__ = ()
    name: str

    @property
    def _where(self) -> str:
        return self.name


class Remembering(ABC):
    """A distribution with memory; its `quantile` is that of one draw alone.

    Each draw forgets all before it with a probability, and is then at a quantile of its own: how draws.py draws.
    """

    @property
    @abstractmethod
    def renewal(self) -> float:
        """The probability of it, in (0, 1]."""

    @abstractmethod
    def following(self, worker: int, at: Array, age: npt.NDArray[np.int64]) -> Array:
        """What is drawn `age` >= 0 draws after one that was renewed at the quantile `at` in [0, 1]; any shape."""


if TYPE_CHECKING:
    OptionalDistribution = Distribution | None
else:  # OmegaConf has no type for it: a config holds {name: ..., parameters} until its __post_init__ converts that
    OptionalDistribution = Any


@dataclass(frozen=True, slots=True)
class Constant(Parametrised):
    value: float = ranged(MISSING, ">= 0")
    name: str = "constant"

    def quantile(self, u: Array) -> Array:
        return np.full_like(u, self.value)

    def expectation(self) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Normal(Parametrised):
    """Normal, with its rare negative values moved to 0."""

    mean: float = ranged(MISSING, "> 0")  # before the cut
    std: float = ranged(MISSING, ">= 0")
    name: str = "normal"

    def quantile(self, u: Array) -> Array:
        return np.maximum(0.0, self.mean + self.std * _standard_normal(u))

    def expectation(self) -> float:
        if self.std == 0:
            return self.mean
        z = self.mean / self.std
        below, density = (1 + math.erf(z / math.sqrt(2))) / 2, math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        return self.mean * below + self.std * density


@dataclass(frozen=True, slots=True)
class Exponential(Parametrised):
    mean: float = ranged(MISSING, "> 0")
    name: str = "exponential"

    def quantile(self, u: Array) -> Array:
        return -self.mean * np.log1p(-u)

    def expectation(self) -> float:
        return self.mean


@dataclass(frozen=True, slots=True)
class ShiftedExponential(Parametrised):
    """shift + Exp(1/scale) (adasync.txt)."""

    shift: float = ranged(MISSING, ">= 0")
    scale: float = ranged(MISSING, "> 0")  # mean of the exponential part
    name: str = "shifted_exponential"

    def quantile(self, u: Array) -> Array:
        return self.shift - self.scale * np.log1p(-u)

    def expectation(self) -> float:
        return self.shift + self.scale


@dataclass(frozen=True, slots=True)
class Pareto(Parametrised):
    """P(X > x) = (minimum / x)^shape for x >= minimum."""

    minimum: float = ranged(MISSING, "> 0")
    shape: float = ranged(MISSING, "> 1")  # so that the mean is finite
    name: str = "pareto"

    def quantile(self, u: Array) -> Array:
        return self.minimum * (1.0 - u) ** (-1.0 / self.shape)

    def expectation(self) -> float:
        return self.minimum * self.shape / (self.shape - 1.0)


@dataclass(frozen=True, slots=True)
class LogNormal(Parametrised):
    """median * exp(sigma Z), Z standard normal: most durations near the median, occasionally a far longer one."""

    median: float = ranged(MISSING, "> 0")
    # standard deviation of the logarithm; at 10 the longest durations are 10^35 times the median
    sigma: float = ranged(MISSING, "in 0 .. 10")
    name: str = "log_normal"

    def quantile(self, u: Array) -> Array:
        return self.median * np.exp(self.sigma * _standard_normal(u))

    def expectation(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2.0)


@dataclass(frozen=True, slots=True)
class Uniform(Parametrised):
    low: float = ranged(MISSING, ">= 0")
    high: float = ranged(MISSING, ">= 0")  # >= low
    name: str = "uniform"

    def __post_init__(self) -> None:
        Parametrised.__post_init__(self)
        check(self.high >= self.low, f"uniform.high must be >= uniform.low = {self.low}", self.high)

    def quantile(self, u: Array) -> Array:
        return self.low + (self.high - self.low) * u

    def expectation(self) -> float:
        return (self.low + self.high) / 2.0


@dataclass(frozen=True, slots=True)
class Weibull(Parametrised):
    """P(X > x) = exp(-(x / scale)^shape): exponential for shape 1; below it a heavier tail, above it a lighter one."""

    scale: float = ranged(MISSING, "> 0")  # 63 % of the durations are below it
    shape: float = ranged(MISSING, SHAPE)
    name: str = "weibull"

    def quantile(self, u: Array) -> Array:
        return self.scale * (-np.log1p(-u)) ** (1.0 / self.shape)

    def expectation(self) -> float:
        return self.scale * math.gamma(1.0 + 1.0 / self.shape)


@dataclass(frozen=True, slots=True)
class Gamma(Parametrised):
    """Density proportional to x^(shape - 1) exp(-x / scale); for a whole shape, the sum of that many exponentials."""

    shape: float = ranged(MISSING, SHAPE)
    scale: float = ranged(MISSING, "> 0")  # the mean is shape * scale
    name: str = "gamma"

    def quantile(self, u: Array) -> Array:
        from scipy.special import gammaincinv  # here, as ndtri is

        return self.scale * np.asarray(gammaincinv(self.shape, u), dtype=np.float64)

    def expectation(self) -> float:
        return self.shape * self.scale


@dataclass(frozen=True)
class Trace(Parametrised, Remembering):
    """Measured durations in their order, so that a worker that is slow stays slow for as long as it was measured to.

    Each draw is the next one of the sequence; with probability 1 / block it is at a random place instead. This is the
    stationary bootstrap (Politis and Romano 1994, Journal of the American Statistical Association 89:1303-1313), from
    a random place on, around the end: the marginal is that of the numbers, and the autocovariance of draws that are k
    apart is (1 - 1 / block)^k times the circular one of the sequence.

    A file is a CSV with a column a worker, under the workers' numbers 0, 1, ...; a column may end before others. Worker
    p draws from column p mod their number. `values` is one column.

    For a file, the config holds its path and checksum rather than the numbers. They are read when first needed, and
    refused if the file has changed since. A record keeps a copy of the file.
    """

    values: tuple[float, ...] = ()
    path: str = field(default="", compare=False)
    content: str = ""  # MD5 of the file; empty: computed now
    block: float = ranged(100.0, ">= 1")  # mean draws between two jumps; 1: independent draws
    relative: bool = False  # each number is divided by the mean of its column
    name: str = "trace"

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [key for key in ("values", "path") if getattr(self, key)]
        check(len(given) == 1, "trace needs either values or path", given)
        check(bool(self.path) or not self.content, "trace.content goes with path", self.content)
        is_new = not self.content
        if not self.path:
            object.__setattr__(self, "values", tuple(_durations(self.values).tolist()))
        elif is_new:
            try:
                object.__setattr__(self, "content", file_checksum(Path(self.path)))
            except OSError as error:
                raise ValueError(f"trace.path: cannot read {self.path!r}: {error.strerror}") from None
        if is_new:
            assert len(self.columns) > 0  # they are read

    @cached_property
    def columns(self) -> tuple[Array, ...]:
        """The sequence of each worker that was measured, one after another.

        Raises:
            ValueError: the file has changed, or cannot be read any more.
        """
        columns = _columns(self.path, self.content) if self.path else (np.array(self.values),)
        if not self.relative:
            return columns
        means = [float(column.mean()) for column in columns]
        check(min(means) > 0, "trace.relative needs columns of means > 0", means)
        return tuple(column / mean for column, mean in zip(columns, means, strict=True))

    @property
    def renewal(self) -> float:
        return 1.0 / self.block

    def following(self, worker: int, at: Array, age: npt.NDArray[np.int64]) -> Array:
        column = self.columns[worker % len(self.columns)]
        drawn: Array = column[((at * len(column)).astype(np.int64) + age) % len(column)]
        return drawn

    @cached_property
    def _pooled(self) -> tuple[Array, Array]:
        """All durations, ascending, and the share of draws up to each: every column is equally likely."""
        numbers = np.concatenate(self.columns)
        weights = np.concatenate([np.full(len(column), 1.0 / len(column)) for column in self.columns])
        order = np.argsort(numbers, kind="stable")
        return numbers[order], np.cumsum(weights[order]) / len(self.columns)

    def quantile(self, u: Array) -> Array:
        """Of one draw of a worker chosen at random."""
        numbers, shares = self._pooled
        drawn: Array = numbers[np.minimum(np.searchsorted(shares, u, side="right"), len(numbers) - 1)]
        return drawn

    def expectation(self) -> float:
        return float(np.mean([column.mean() for column in self.columns]))


@lru_cache(maxsize=16)
def _columns(path: str, content: str) -> tuple[Array, ...]:
    """The columns of the CSV whose checksum is `content`."""
    lines = [[cell.strip() for cell in line.split(",")] for line in _text(path, content).splitlines() if line.strip()]
    try:
        check(len(lines) > 1, "a trace needs a line of workers' numbers and one or more of seconds", len(lines))
        head, *rows = lines
        check(head == [*map(str, range(len(head)))], "the first line must be workers' numbers 0,1,...", head)
        check(all(len(row) <= len(head) for row in rows), f"lines must have {len(head)} cells", max(rows, key=len))
        columns = []
        for worker in range(len(head)):
            cells = [row[worker] if worker < len(row) else "" for row in rows]
            num = max((place + 1 for place, cell in enumerate(cells) if cell), default=0)
            columns.append(_durations([float(cell) for cell in cells[:num]]))
    except ValueError as error:
        raise ValueError(f"trace.path: cannot read columns of numbers from {path!r}: {error}") from None
    return tuple(columns)


def _text(path: str, content: str) -> str:
    """The text of the file whose checksum is `content`."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"trace.path: cannot read {path!r}: {error.strerror}") from None
    found = hashlib.md5(text, usedforsecurity=False).hexdigest()
    if found != content:
        checksums = f"it has checksum {found}, the run was made of {content}"
        raise ValueError(f"trace.path: {path!r} has changed: {checksums}")
    return text.decode("utf-8-sig", errors="replace")  # spreadsheets write the mark


def _durations(values: Sequence[float]) -> Array:
    numbers = np.array([float(value) for value in values])
    invalid = numbers[~((numbers >= 0) & np.isfinite(numbers))]
    check(len(numbers) > 0 and not len(invalid), "trace needs durations >= 0", invalid[:1].tolist())
    numbers.flags.writeable = False
    return numbers


@dataclass(frozen=True, slots=True)
class TwoState(Parametrised, Remembering):
    """`high` for a while, `low` for a while: a two-state Markov chain, as in the channel of Gilbert and Elliott.

    It leaves `high` with probability 1 / lasting and `low` with 1 / every. With the sum of both it forgets its state,
    and is then at `high` with the long-run share lasting / (every + lasting): the same chain.
    """

    low: float = ranged(MISSING, ">= 0")
    high: float = ranged(MISSING, ">= 0")  # >= low
    every: float = ranged(MISSING, ">= 1")  # mean draws at low until the next one at high
    lasting: float = ranged(MISSING, ">= 1")  # mean draws at high; 1 / every + 1 / lasting <= 1
    name: str = "two_state"

    def __post_init__(self) -> None:
        Parametrised.__post_init__(self)
        check(self.high >= self.low, f"two_state.high must be >= two_state.low = {self.low}", self.high)
        rule = "1 / two_state.every + 1 / two_state.lasting must be <= 1"
        check(self.renewal <= 1, rule, f"every = {self.every} and lasting = {self.lasting}")

    @property
    def renewal(self) -> float:
        return 1.0 / self.every + 1.0 / self.lasting

    def following(self, worker: int, at: Array, age: npt.NDArray[np.int64]) -> Array:
        return self.quantile(at)

    def quantile(self, u: Array) -> Array:
        return np.where(u < self.every / (self.every + self.lasting), self.low, self.high)

    def expectation(self) -> float:
        return (self.low * self.every + self.high * self.lasting) / (self.every + self.lasting)


@dataclass(frozen=True, slots=True)
class Occasional:
    """A duration from `source` with `probability`, else 0."""

    probability: float  # in [0, 1]
    source: Distribution

    def __post_init__(self) -> None:
        check(0 <= self.probability <= 1, "probability must be in [0, 1]", self.probability)

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
    "exponential": Exponential,
    "gamma": Gamma,
    "log_normal": LogNormal,
    "normal": Normal,
    "pareto": Pareto,
    "shifted_exponential": ShiftedExponential,
    "trace": Trace,
    "two_state": TwoState,
    "uniform": Uniform,
    "weibull": Weibull,
}


# Parameters that are not numbers.
KINDS: dict[str, tuple[type, str]] = {
    "path": (str, "a path"),
    "content": (str, "a checksum"),
    "relative": (bool, "true or false"),
}


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
            if not isinstance(value, list | tuple) or not all(map(_is_number, value)):
                raise ValueError(f"{where}.{key} must be a list of numbers, got {value!r}")
            if len(value) > INLINE:
                rule = f"must hold at most {INLINE} numbers; more go into a file, path=FILE.csv of columns 0,1,..."
                raise ValueError(f"{where}.{key} {rule}; got {len(value)}")
            options[key] = tuple(_float(each) for each in value)
        elif key in KINDS:
            wanted, described = KINDS[key]
            check(isinstance(value, wanted), f"{where}.{key} must be {described}", repr(value))
        else:
            check(_is_number(value), f"{where}.{key} must be a number", repr(value))
            options[key] = _float(value)
    try:
        return kind(**options)
    except TypeError:
        missing = [key for key in allowed if key not in options]
        raise ValueError(f"{where}: {name} also needs {', '.join(missing)}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def optional(
    where: str, given: Any, read: Callable[[str, Mapping[str, Any]], Distribution] = distribution
) -> Distribution | None:
    """None, a distribution, or what `read` makes of a mapping; ValueError for anything else."""
    if isinstance(given, Mapping):
        return read(where, given)
    is_valid = given is None or hasattr(given, "quantile")
    check(is_valid, f"{where} must be null or {{name: <distribution>, ...}}", repr(given))
    found: Distribution | None = given
    return found


def _float(number: float) -> float:
    """As a float; infinity if it is too large for one."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _standard_normal(u: Array) -> Array:
    """Its quantiles; of 0, where minus infinity would be (and a sigma of 0 times that no number), a finite one."""
    from scipy.special import ndtri  # here: it would be a third of what `python run.py --help` takes

    quantiles: Array = ndtri(np.maximum(u, 2.0**-54))
    return quantiles
