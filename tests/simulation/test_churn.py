"""Workers that are lost and come back in virtual time: closed forms, and nothing is counted twice or kept."""

import math
from collections import Counter
from typing import Any

import pytest
import simulations
from log_checks import leads
from simulations import logged

from benchmarks.measuring import simulated
from syncline.config import RunConfig, SgdConfig
from syncline.config.updates import DelayCompensatedConfig
from syncline.records.rows import Row
from syncline.records.spans import timeline_of
from syncline.records.time_use import time_use_of
from syncline.strategies.asp import AspOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.strategies.psp import PspOptions
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Exponential
from syncline.timing.network import NetworkConfig

ELASTIC: list[StrategyOptions] = [
    AspOptions(),
    SspOptions(staleness=2),
    BackupOptions(backups=1),
    KSyncOptions(k=2),
    KBatchSyncOptions(k=3),
    PspOptions(c=2, b=60, tau1=0.01, tau2=0.01),
]


def config_of(strategy: StrategyOptions, cluster: ClusterConfig, scenario: ScenarioConfig, **about: Any) -> RunConfig:
    given = {"gradients": False, "max_updates": None} | about
    return simulations.config_of(strategy, cluster=cluster, scenario=scenario, **given)


def test_a_lost_worker_loses_what_it_computes_and_begins_anew_when_it_is_back() -> None:
    """Gradients of 1 s. Worker 0 has made 2 at 2.5 s, is back at 4.2 s, and has made 5 more at 10.1 s."""
    cluster, scenario = ClusterConfig(workers=2, gradient_s=[1.0]), ScenarioConfig(absences={0: [2.5, 4.2]})
    summary = simulated(config_of(AspOptions(), cluster, scenario, max_time_s=10.1))
    assert summary["used_by_worker"] == [7, 10]
    assert summary["time_shares"]["absent"] == pytest.approx(1.7 / 20.2)
    assert summary["time_shares"]["computing"] == pytest.approx(18.5 / 20.2)
    assert summary["goodput"] == pytest.approx(17 / 20.2)


def test_what_is_under_way_from_a_lost_worker_is_computed_again(tmp_path) -> None:
    """1 s of computing and 0.5 s each way. The first push is lost at 1.7 s; the weights are sent again at 3 s."""
    cluster = ClusterConfig(workers=1, gradient_s=[1.0], network=NetworkConfig(latency_s=0.5))
    scenario = ScenarioConfig(absences={0: [1.7, 3.0]})
    summary, events = logged(config_of(AspOptions(), cluster, scenario, max_time_s=9.9), tmp_path)
    rows = events.to_pandas()
    pushed = rows[rows.kind == "pushed"]
    assert pushed["at"].tolist() == [5.0, 7.0, 9.0]
    assert pushed["value"].tolist() == [0, 1, 2], "the mini-batch of the lost push is the first again"
    assert rows[rows.kind == "computed"]["at"].tolist() == [1.5, 4.5, 6.5, 8.5]
    assert summary["time_shares"]["absent"] == pytest.approx(1.3 / 9.9)
    assert summary["time_shares"]["waiting"] == pytest.approx(0.0, abs=1e-12)


def test_a_run_whose_gradients_never_arrive_is_ended() -> None:
    cluster = ClusterConfig(workers=2, gradient_s=[1.0], network=NetworkConfig(latency_s=1e6))
    scenario = ScenarioConfig(up=Exponential(10.0), down=Exponential(1.0))
    with pytest.raises(ValueError, match="no update in 2,001 losses of workers: their gradients never arrive"):
        simulated(config_of(AspOptions(), cluster, scenario, max_updates=1))


def test_nobody_waits_for_a_worker_that_is_lost() -> None:
    """SSP: the other one goes on alone meanwhile, and waits for nobody when the lost one is back, level with it."""
    cluster, absences = ClusterConfig(workers=2, gradient_s=[1.0, 1.0]), {0: [2.5, 50.25]}
    config = config_of(SspOptions(staleness=1), cluster, ScenarioConfig(absences=absences), max_time_s=60.1)
    assert simulated(config)["used_by_worker"] == [2 + 9, 60]


@pytest.mark.parametrize("mean_up_s", [2.0, 20.0])
def test_goodput_is_that_of_a_renewal_process(mean_up_s: float) -> None:
    """Of an exponential time U a worker completes U // s gradients, 1 / (exp(s / u) - 1) in the mean."""
    cluster = ClusterConfig(workers=400, gradient_s=[1.0])
    scenario = ScenarioConfig(up=Exponential(mean_up_s), down=Exponential(5.0))
    summary = simulated(config_of(AspOptions(), cluster, scenario, max_time_s=1000.0))
    cycle_s = mean_up_s + 5.0
    cycles = 400 * 1000.0 / cycle_s
    expected = 1.0 / math.expm1(1.0 / mean_up_s) / cycle_s
    assert summary["goodput"] == pytest.approx(expected, rel=5 / math.sqrt(cycles) + cycle_s / 1000)
    assert summary["time_shares"]["absent"] == pytest.approx(5.0 / cycle_s, rel=5 / math.sqrt(cycles) + cycle_s / 1000)


@pytest.mark.parametrize("strategy", ELASTIC, ids=repr)
@pytest.mark.parametrize("network", [NetworkConfig(), NetworkConfig(latency_s=0.01)], ids=["at once", "network"])
def test_all_that_is_counted_is_in_the_log(strategy: StrategyOptions, network: NetworkConfig, tmp_path) -> None:
    shards = 2 if not strategy.single_server and network.latency_s else 1
    cluster = ClusterConfig(workers=4, shards=shards, gradient_s=[0.02, 0.03], jitter=Exponential(1.0), network=network)
    scenario = ScenarioConfig(up=Exponential(0.2), down=Exponential(0.05))
    about = {"gradients": True, "max_updates": 150, "optimizer": SgdConfig(lr=0.01), "update": DelayCompensatedConfig()}
    summary, events = logged(config_of(strategy, cluster, scenario, **about), tmp_path)
    rows = events.to_pandas()
    first = rows[(rows.shard == 0)]
    assert (rows.kind == "left").sum() > 4 * shards
    assert summary["updates"] == 150
    applied = Counter(first[first.kind == "applied"].worker)
    assert summary["used_by_worker"] == [applied[worker] for worker in range(4)]
    for worker in range(4):
        there = first[(first.worker == worker) & first.kind.isin(["left", "joined"])].kind.tolist()
        assert there == (["left", "joined"] * len(there))[: len(there)]
        numbers = rows[rows.worker == worker]
        pulled, pushed = (numbers[numbers.kind == kind].value.max() for kind in ("pulled", "pushed"))
        assert not pulled > pushed + 1, "what is computed again has its number again"
    time_use, total_s = time_use_of(timeline_of(events, summary["time_s"])), 4 * summary["time_s"]
    assert time_use.absent_s == pytest.approx(summary["time_shares"]["absent"] * total_s, rel=1e-9)
    assert time_use.computing_s == pytest.approx(summary["time_shares"]["computing"] * total_s, rel=1e-9)
    if shards == 1:
        found = leads([Row(*row) for row in rows.itertuples(index=False)], 4)
        assert summary["max_lead"] == max(found)
