"""Fits: what is known of a sequence, or of a network, is found again."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from syncline.timing.calibration import (
    BLOCKS_OF_MEMORY,
    LEAST,
    Stream,
    autocorrelation,
    block_of,
    evenness,
    fit_alone,
    fit_later_weight,
    fit_shared,
    independent,
    memory,
    plain_profile,
    profile,
    residual_latency,
    seconds_of,
    seconds_text,
)
from syncline.timing.cluster import ClusterConfig
from syncline.timing.distributions import Array, LogNormal, Trace, TwoState
from syncline.timing.draws import Draws
from syncline.timing.network import NetworkConfig

NUM = 2000
SECONDS = st.lists(st.floats(1e-4, 10.0), min_size=LEAST, max_size=3 * LEAST).map(np.array)


def drawn(source: TwoState | LogNormal, workers: int = 12, num: int = NUM) -> Array:
    return Draws(1, "compute", source, [1.0] * workers).made(0, num)


@pytest.mark.parametrize("chain", [TwoState(1, 3, 12, 4), TwoState(1, 3, 60, 20), TwoState(1, 3, 40, 40)], ids=str)
def test_the_autocorrelation_of_a_two_state_chain_is_geometric(chain: TwoState) -> None:
    """(1 - 1 / every - 1 / lasting)^lag, within four standard errors of the mean of twelve sequences."""
    lags = 8
    found = np.array([autocorrelation(row, lags) for row in drawn(chain)])
    error = 4 * found.std(axis=0, ddof=1) / math.sqrt(len(found)) + 2 / NUM / chain.renewal
    assert (np.abs(found.mean(axis=0) - (1 - chain.renewal) ** np.arange(lags + 1)) <= error + 1e-12).all()


def test_independent_draws_have_no_memory() -> None:
    """Each of five lags is outside of the band by chance, with probability 4e-4 here: a few of sixty may be."""
    memories = [memory(row) for row in drawn(LogNormal(1.0, 0.2), workers=60, num=400)]
    assert sum(length > 0 for length in memories) <= 3
    assert memory(np.full(50, 0.02)) == 0


@pytest.mark.parametrize(("every", "lasting"), [(12, 4), (40, 40), (150, 50)])
def test_the_memory_of_a_chain_is_where_its_autocorrelation_vanishes_in_the_noise(every: float, lasting: float) -> None:
    chain = TwoState(1, 3, every, lasting)
    band = 2 * math.sqrt(math.log10(NUM) / NUM)
    expected = math.log(band) / math.log(1 - chain.renewal)
    found = float(np.median([memory(row) for row in drawn(chain)]))
    assert expected / 1.6 <= found <= 1.6 * expected


def test_a_block_keeps_nine_tenths_of_the_autocovariance_at_the_end_of_the_memory() -> None:
    for row in drawn(TwoState(1, 3, 12, 4)):
        block = block_of([row])
        assert block == BLOCKS_OF_MEMORY * memory(row)
        assert (1 - 1 / block) ** memory(row) >= 0.9
    assert block_of([np.full(50, 0.02)]) == 1.0
    assert block_of([np.repeat([1.0, 2.0], 50)]) == 100.0  # no longer than what was measured


@given(st.floats(1e-5, 1.0), st.floats(0.1, 0.9), st.integers(10**5, 10**7), st.floats(0.0, 1.0))
def test_latency_and_bandwidth_of_one_sender_are_found_again(
    message_s: float, share: float, size: int, server_s: float
) -> None:
    """A message takes latency and size over bandwidth; every second one waits for the server."""
    truth = NetworkConfig(message_s * (1.0 - share), 8e-9 * size / (message_s * share), sharing="fair")
    streams = []
    for num_bytes in (size, size // 8, size // 16):
        seconds = truth.latency_s + num_bytes * truth.seconds_a_byte + server_s / 2.0
        streams.append(Stream(1, num_bytes, seconds, update_s=1.0))
    found = fit_alone(streams, server_s)
    assert found.latency_s == pytest.approx(truth.latency_s, rel=1e-6)
    assert found.bandwidth_gbps == pytest.approx(truth.bandwidth_gbps, rel=1e-6)


def test_messages_that_take_no_longer_if_they_are_larger_need_no_bandwidth() -> None:
    found = fit_alone([Stream(1, 1000, 0.001, 0.012), Stream(1, 9000, 0.001, 0.012)], 0.0)
    assert (found.latency_s, found.bandwidth_gbps) == (pytest.approx(1e-3), None)


def shared(network: NetworkConfig, stream: Stream) -> float:
    """Seconds an update where all senders share one NIC all the time, and gradients take none: a closed form."""
    return 2.0 * (network.latency_s / stream.senders + stream.message_bytes * network.seconds_a_byte)


@given(st.floats(1e-5, 1.0), st.floats(0.2, 0.9), st.sampled_from([2, 3, 8]), st.integers(10**5, 10**7))
def test_the_bandwidth_that_several_share_is_found_again(
    message_s: float, share: float, senders: int, size: int
) -> None:
    """Whatever one sender alone was found to have."""
    latency_s, gbps = message_s * (1.0 - share), 8e-9 * size / (message_s * share)
    truth = NetworkConfig(latency_s, gbps, sharing="fair")
    stream = Stream(senders, size, latency_s + senders * message_s * share, update_s=1.0)
    stream = replace(stream, update_s=shared(truth, stream))
    for alone in (None, 0.5 * gbps, 100.0):
        found = fit_shared(replace(truth, bandwidth_gbps=alone), stream, lambda network: shared(network, stream))
        assert found.bandwidth_gbps == pytest.approx(gbps, rel=0.01)
        assert found.latency_s == latency_s
    fast = replace(stream, update_s=1.9 * latency_s / senders)
    assert fit_shared(truth, fast, lambda network: shared(network, fast)) == truth


def shared_evenly(network: NetworkConfig) -> float:
    """Evenness of two messages of equal size that leave together, without latency: a closed form."""
    weight = network.later_weight
    return ((1 + weight) / 2 + 1) / 2


@given(st.floats(0.05, 1.0))
def test_the_weight_of_later_messages_is_found_again(weight: float) -> None:
    truth = NetworkConfig(bandwidth_gbps=1.0, sharing="fair", later_weight=weight)
    equal = replace(truth, later_weight=1.0)
    found = fit_later_weight(equal, shared_evenly(truth), shared_evenly)
    assert found.later_weight == pytest.approx(weight, abs=0.01)
    assert replace(found, later_weight=weight) == truth
    instant = NetworkConfig(sharing="fair")
    assert fit_later_weight(instant, 0.5, shared_evenly) == instant


def test_evenness_is_the_mean_over_the_slowest() -> None:
    pulls = [np.array([86.0, 1.0, 2.0, 7.0]), np.array([108.0, 1.0, 4.0]), np.array([119.0, 1.0, 6.0])]
    assert evenness(pulls) == pytest.approx((86 + 108 + 119) / 3 / 119)  # of 0.877, 1 and 0.667
    assert evenness([np.array([3.0, 5.0])]) == 1.0


@given(SECONDS)
def test_latency_and_jitter_are_what_the_network_does_not_explain(measured: Array) -> None:
    latency_s, jitter = residual_latency(measured, [np.zeros(3), np.zeros(4)])
    mean = latency_s + (0.0 if jitter is None else jitter.expectation())
    assert mean == pytest.approx(measured.mean(), rel=1e-4)
    assert jitter is None or len(jitter.values) == 7
    latency_s, jitter = residual_latency(measured + 50.0, [measured, measured])  # the same shape, later
    assert latency_s == pytest.approx(50.0)
    assert jitter is None
    assert residual_latency(measured, [measured, measured]) == (0.0, None)
    assert residual_latency(measured, [0.5 * measured, 1.2 * measured]) == (0.0, None)  # runs differ that much


@given(st.lists(SECONDS, min_size=1, max_size=4))
def test_seconds_survive_their_file_and_the_profile_its_yaml(
    tmp_path_factory: pytest.TempPathFactory, columns: list[Array]
) -> None:
    path = tmp_path_factory.mktemp("seconds") / "lab-seconds.csv"
    path.write_text(seconds_text(columns))
    for column, read in zip(columns, seconds_of(path), strict=True):
        np.testing.assert_allclose(read, column, rtol=1e-6)
    network = NetworkConfig(2e-4, 0.94, residual_latency(columns[0], [np.zeros(3)] * 2)[1], "fair")
    cluster = profile("lab", path, columns, network, shards=1)
    plain = yaml.safe_load(yaml.safe_dump(plain_profile(cluster), default_flow_style=None))
    again = ClusterConfig(**{**plain, "network": NetworkConfig(**plain["network"])})
    assert again == cluster
    assert cluster.measured_workers == cluster.workers == len(columns)
    np.testing.assert_allclose(cluster.gradient_s, [column.mean() for column in columns], rtol=1e-5)
    assert isinstance(cluster.jitter, Trace)
    assert cluster.jitter.relative
    assert cluster.jitter.expectation() == pytest.approx(1.0)
    alone = independent(cluster)
    assert isinstance(alone.jitter, Trace)
    assert alone.jitter.block == 1.0


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("0,1\n" + "0.1,0.2\n" * (LEAST - 1), f"needs {LEAST} or more"),
        ("0\n" + "0.0\n" * LEAST, "gradients that take time"),
        ("a,b\n0.1,0.2\n", "workers' numbers"),
    ],
)
def test_a_file_that_tells_too_little_is_refused(tmp_path: Path, text: str, rule: str) -> None:
    path = tmp_path / "seconds.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=rule):
        seconds_of(path)
