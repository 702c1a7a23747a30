"""From measured seconds to the profile of a cluster: pure fits.

Gradients become a trace (distributions.py), whose `block` says for how many of them a slow worker stays slow. Messages
become latency, bandwidth and jitter (network.py), fitted through predictions of the runs that were measured.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from syncline.checks import check
from syncline.timing.cluster import ClusterConfig
from syncline.timing.distributions import INLINE, Array, Trace
from syncline.timing.network import NetworkConfig

BLOCKS_OF_MEMORY = 10  # block / memory: at the end of the memory 0.9 of the autocovariance is kept
ROUNDING = 1e-9  # relative
LEAST_WEIGHT = 0.01  # of a later message: almost one after another
LEAST = 20  # gradients of a worker, or a mean and a memory mean little


def autocorrelation(series: Array, most: int) -> Array:
    """Of a series of n >= 2 numbers at lags 0 .. most < n, [most + 1]; 1, 0, 0, ... if all numbers are equal."""
    from scipy.signal import correlate  # slow to import

    centred = series - series.mean()
    variance = float(centred @ centred)
    if variance == 0 or np.ptp(series) <= 1e-12 * abs(float(series.mean())):
        return np.concatenate([[1.0], np.zeros(most)])
    full = correlate(centred, centred, mode="full")
    correlations: Array = full[len(series) - 1 : len(series) + most] / variance
    return correlations


def memory(series: Array) -> int:
    """The largest lag at which the series is correlated with itself, >= 0; 0: it has no memory.

    The smallest lag m after which max(5, log10 n) autocorrelations in a row are within 2 sqrt(log10(n) / n) of 0, the
    band of Politis and White (2004, Econometric Reviews 23:53-70, section 3.2). At most half the length of the series.
    """
    num = len(series)
    most, in_a_row = num // 2, max(5, math.ceil(math.log10(num)))
    within = np.abs(autocorrelation(series, most)[1:]) < 2.0 * math.sqrt(math.log10(num) / num)
    for lag in range(most - in_a_row + 1):
        if within[lag : lag + in_a_row].all():
            return lag
    return most


def block_of(columns: Sequence[Array]) -> float:
    """The block of a trace (distributions.py) that keeps the longest memory of these columns; 1 if none has any."""
    longest = max(memory(column) for column in columns)
    return float(min(max(1, BLOCKS_OF_MEMORY * longest), max(map(len, columns))))


@dataclass(frozen=True, slots=True)
class Stream:
    """A run whose workers did little but send and receive."""

    senders: int  # at a time, >= 1
    message_bytes: int  # > 0
    message_s: float  # a push or a pull of one sender, > 0
    update_s: float  # seconds an update of the whole run, > 0
    evenness: float | None = None  # of pulls that leave together, as `evenness` says; None: they do not


def evenness(pull_s: Sequence[Array]) -> float:
    """Of pulls that leave together: their mean seconds over those of the slowest, in (0, 1]; 1: all arrive together.

    Args:
        pull_s: a worker each, the same pulls in all; further ones are ignored. The median over the pulls is taken.
    """
    seconds = np.array([column[: min(map(len, pull_s))] for column in pull_s])
    return float(np.median(seconds.mean(axis=0) / seconds.max(axis=0)))


def fit_alone(streams: Sequence[Stream], server_s: float) -> NetworkConfig:
    """Latency and bandwidth of a sender that is alone: the line through the seconds of messages of two or more sizes.

    Args:
        server_s: for which the shard is busy with a push.

    Returns:
        Without bandwidth where larger messages take no longer.
    """
    sizes = np.array([stream.message_bytes for stream in streams], dtype=np.float64)
    seconds = np.array([stream.message_s - server_s / 2.0 for stream in streams])
    seconds_a_byte, latency_s = np.polyfit(sizes, seconds, 1)
    gbps = 8e-9 / float(seconds_a_byte) if seconds_a_byte > 0 else None
    return NetworkConfig(max(0.0, float(latency_s)), gbps, sharing="fair")


def fit_shared(alone: NetworkConfig, stream: Stream, foresee: Callable[[NetworkConfig], float]) -> NetworkConfig:
    """The bandwidth with which the seconds an update of a stream of several senders are foreseen best.

    Args:
        alone: that of one sender, which keeps its latency.
        foresee: seconds an update of the stream over a network.

    Returns:
        `alone` if a bandwidth explains nothing: the stream is as fast without.
    """
    from scipy.optimize import minimize_scalar  # slow to import

    if foresee(replace(alone, bandwidth_gbps=None)) >= stream.update_s:
        return alone

    def network(log_gbps: float) -> NetworkConfig:
        return replace(alone, bandwidth_gbps=math.exp(log_gbps))

    def badness(log_gbps: float) -> float:
        return abs(math.log(foresee(network(log_gbps)) / stream.update_s))

    # If bytes were all, and messages either had a NIC each or shared one all the time.
    fastest = 8e-9 * stream.message_bytes / stream.message_s
    bounds = (math.log(fastest / 4.0), math.log(4.0 * stream.senders * fastest))
    return network(minimize_scalar(badness, bounds=bounds, method="bounded", options={"xatol": 2e-3}).x)


def fit_later_weight(
    network: NetworkConfig, measured: float, foresee: Callable[[NetworkConfig], float]
) -> NetworkConfig:
    """The weight of later messages with which the evenness of pulls that leave together is foreseen best.

    Args:
        network: shared by its messages.
        measured: as `evenness` says.
        foresee: the same over a network.

    Returns:
        `network` if its messages arrive together: equal shares are even enough, or no bandwidth is shared.
    """
    from scipy.optimize import minimize_scalar

    if network.bandwidth_gbps is None or foresee(network) <= measured:
        return network

    def badness(weight: float) -> float:
        return abs(foresee(replace(network, later_weight=weight)) - measured)

    found = minimize_scalar(badness, bounds=(LEAST_WEIGHT, 1.0), method="bounded", options={"xatol": 2e-3})
    return replace(network, later_weight=float(f"{found.x:.3g}"))


def residual_latency(measured: Array, foreseen: Sequence[Array]) -> tuple[float, Trace | None]:
    """Further latency and jitter with which foreseen messages take as long as measured ones.

    The quantiles of what the network foresees are subtracted from those that were measured. What is left, and not
    negative, is scaled to the difference of both means. It is nothing if that is within two standard deviations of the
    means of single runs: how long messages queue depends on how workers happen to get into step.

    Args:
        measured: seconds of the messages of a run, [n] with n > 0.
        foreseen: the same of two or more runs in virtual time.

    Returns:
        Latency in seconds >= 0; jitter of `INLINE` values at most, None if all messages take equally long.
    """
    pooled = np.concatenate(foreseen)
    missing_s = float(measured.mean() - pooled.mean())
    spread_s = float(np.std([seconds.mean() for seconds in foreseen], ddof=1))
    if missing_s <= max(2.0 * spread_s, ROUNDING * float(measured.mean())):
        return 0.0, None
    num = min(INLINE, len(measured), len(pooled))
    left = np.maximum(0.0, _means_of_parts(measured, num) - _means_of_parts(pooled, num))
    left *= missing_s / left.mean()
    latency_s = float(left.min())
    above = left - latency_s
    if above.max() <= 0.01 * latency_s:
        return float(left.mean()), None
    return latency_s, Trace(tuple(_rounded(np.sort(above))), block=1.0)


def _means_of_parts(numbers: Array, num: int) -> Array:
    """The means of `num` parts of the sorted numbers, each as large as the others: their mean is that of all."""
    edges = np.linspace(0.0, len(numbers), num + 1)
    totals = np.interp(edges, np.arange(len(numbers) + 1), np.concatenate([[0.0], np.cumsum(np.sort(numbers))]))
    means: Array = np.diff(totals) / np.diff(edges)
    return means


def seconds_text(columns: Sequence[Array]) -> str:
    """A CSV of seconds with a column a worker, as a trace reads it."""
    import pandas as pd  # slow to import

    table = pd.DataFrame({worker: pd.Series(column) for worker, column in enumerate(columns)})
    return str(table.to_csv(index=False, float_format="%.7g"))


def seconds_of(path: Path) -> list[Array]:
    """The columns of such a file.

    Raises:
        ValueError: it cannot be read, or a worker has too few gradients.
    """
    columns = list(Trace(path=str(path)).columns)
    check_enough(columns)
    return columns


def check_enough(columns: Sequence[Array]) -> None:
    """Raises ValueError unless each worker has `LEAST` gradients that took time."""
    fewest = min(map(len, columns))
    check(fewest >= LEAST, f"a profile needs {LEAST} or more gradients of each worker", fewest)
    check(all(column.mean() > 0 for column in columns), "a profile needs gradients that take time", 0.0)


def profile(
    name: str, path: Path, columns: Sequence[Array], network: NetworkConfig, shards: int = 1, update_s: float = 0.0
) -> ClusterConfig:
    """The profile of these workers.

    Args:
        path: of the CSV that holds `columns`.
        update_s: for which a shard is busy with a push.
    """
    return ClusterConfig(
        name=name,
        workers=len(columns),
        shards=shards,
        gradient_s=_rounded(np.array([column.mean() for column in columns])),
        jitter=Trace(path=str(path.absolute()), block=block_of(columns), relative=True),
        network=network,
        update_s=float(f"{update_s:.6g}"),
        measured_workers=len(columns),
    )


def independent(cluster: ClusterConfig) -> ClusterConfig:
    """The same profile with gradients that do not depend on those before."""
    assert isinstance(cluster.jitter, Trace)
    return replace(cluster, jitter=replace(cluster.jitter, block=1.0))


@dataclass(frozen=True, slots=True)
class Prediction:
    """A run that nothing was fitted to, and what was foreseen of it."""

    strategy: str
    measured_s: float  # an update
    foreseen_s: float
    independent_s: float  # foreseen with gradients that do not depend on those before

    @property
    def error(self) -> float:
        """Relative error of the foreseen seconds, signed."""
        return self.foreseen_s / self.measured_s - 1.0

    @property
    def independent_error(self) -> float:
        """The same with independent gradients."""
        return self.independent_s / self.measured_s - 1.0


def plain_profile(cluster: ClusterConfig) -> dict[str, Any]:
    """What cluster/<name>.yaml holds, in plain types."""
    plain = asdict(cluster)
    for parts, key in ((plain, "jitter"), (plain["network"], "jitter")):
        if parts[key] is not None:
            parts[key] = {name: value for name, value in parts[key].items() if value not in ("", ())}
            if "values" in parts[key]:
                parts[key]["values"] = list(parts[key]["values"])
    return plain


def _rounded(numbers: Array) -> list[float]:
    """To what is measurable."""
    return [float(f"{number:.6g}") for number in numbers]
