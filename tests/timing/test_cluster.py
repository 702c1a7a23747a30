"""A cluster's durations, what a scenario adds to them, and the numbers of the shipped profiles."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from syncline.config import choices, compose
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Constant, Exponential, Normal, Occasional, Pareto, TwoState, Uniform
from syncline.timing.draws import Draws
from syncline.timing.network import NetworkConfig
from syncline.timing.run_times import order_statistic

NOTHING = ScenarioConfig()
SLOW_NETWORK = NetworkConfig(latency_s=0.5, bandwidth_gbps=1.0)
GBIT = 125_000_000  # bytes that take a second at 1 Gbit/s


def cluster(scenario: ScenarioConfig = NOTHING, seed: int = 0, **options: Any) -> Cluster:
    return Cluster(ClusterConfig(**options), scenario, seed)


def times(of: Cluster, worker: int, count: int = 50) -> list[float]:
    return [of.compute_s(worker) for _ in range(count)]


def test_gradient_seconds_are_cycled_over_the_workers_and_more_are_ignored() -> None:
    five = cluster(workers=5, gradient_s=[0.051, 0.158])
    assert [five.compute_s(worker) for worker in range(5)] == [0.051, 0.158, 0.051, 0.158, 0.051]
    assert cluster(workers=1, gradient_s=[0.3, 0.4]).compute_s(0) == 0.3


def test_slow_workers_take_a_multiple_of_the_time_and_the_others_do_not() -> None:
    options: dict[str, Any] = {"workers": 4, "gradient_s": [0.02, 0.06], "jitter": Normal(1.0, 0.1)}
    usual, slowed = cluster(**options), cluster(ScenarioConfig(slow={0: 3.0, 3: 1.5}), **options)
    for worker, factor in enumerate([3.0, 1.0, 1.0, 1.5]):
        assert times(slowed, worker) == pytest.approx([factor * usual_s for usual_s in times(usual, worker)], rel=1e-12)


def test_jitter_multiplies_and_leaves_the_mean_as_it_is() -> None:
    drawn = times(cluster(workers=2, gradient_s=[0.051, 0.158], jitter=Normal(1.0, 0.03)), 1, 2000)
    assert abs(fmean(drawn) - 0.158) <= 4 * stdev(drawn) / math.sqrt(len(drawn))
    assert stdev(drawn) == pytest.approx(0.158 * 0.03, rel=4 / math.sqrt(2 * 2000))


def test_the_compute_delay_is_added_to_every_gradient_and_not_slowed() -> None:
    """The draws of the computation stay what they are."""
    delay = Exponential(0.02)
    options: dict[str, Any] = {"seed": 3, "workers": 2, "gradient_s": [0.01], "jitter": Normal(1.0, 0.3)}
    plain, delayed = cluster(**options), cluster(ScenarioConfig(compute_delay=delay, slow={1: 5.0}), **options)
    alone = Draws(3, "compute delay", delay, [1.0, 1.0])
    for worker, factor in ((0, 1.0), (1, 5.0)):
        expected = [factor * plain_s + alone.next(worker) for plain_s in times(plain, worker)]
        assert times(delayed, worker) == pytest.approx(expected, rel=1e-12)


def test_every_message_of_a_worker_and_a_shard_has_its_own_delay() -> None:
    """On an instant network only the delay counts: one stream for each direction, shard and worker."""
    delay = Exponential(1.0)
    scenario = ScenarioConfig(push_delay=delay, pull_delay=delay)
    seen = {}
    for worker in range(3):
        for shard in range(2):
            fresh = cluster(scenario, seed=9, workers=3, shards=2)
            for direction in ("push", "pull"):
                arrivals = [fresh.send(1e3 * i, direction == "push", worker, shard, 5)[1] for i in range(40)]
                seen[direction, worker, shard] = [at - 1e3 * i for i, at in enumerate(arrivals)]
    for (direction, worker, shard), delays in seen.items():
        stream = Draws(9, f"{direction} delay {shard}", delay, [1.0] * 3)
        assert delays == pytest.approx([stream.next(worker) for _ in range(40)], abs=1e-9)
    assert len({tuple(delays) for delays in seen.values()}) == 12


def test_a_delayed_message_also_takes_its_time_on_the_network() -> None:
    late = cluster(ScenarioConfig(push_delay=Constant(4.0), pull_delay=Constant(7.0)), workers=1, network=SLOW_NETWORK)
    assert late.send(10.0, True, 0, 0, 2 * GBIT)[1] == pytest.approx(10.0 + 4.0 + 0.5 + 2.0)
    assert late.send(20.0, False, 0, 0, 2 * GBIT)[1] == pytest.approx(20.0 + 7.0 + 0.5 + 2.0)


@pytest.mark.parametrize("network", [NetworkConfig(), SLOW_NETWORK], ids=["instant", "slow"])
@pytest.mark.parametrize("direction", ["push", "pull"])
def test_a_late_message_delays_no_other(network: NetworkConfig, direction: str) -> None:
    """PSP's late pulls come late "each on its own": the NIC is not busy during the delay of a message."""
    late = Occasional(0.5, Constant(100.0))
    scenario = ScenarioConfig(push_delay=late, pull_delay=late)
    options: dict[str, Any] = {"workers": 8, "network": network}
    delays = Draws(0, f"{direction} delay 0", late, [1.0] * 8)
    delayed_cluster, plain_cluster = cluster(scenario, **options), cluster(**options)

    def arrival(on: Cluster, worker: int) -> float:
        now = 10.0 * worker  # far enough apart for the NIC to be free again
        return on.send(now, direction == "push", worker, 0, GBIT)[1]

    is_late = [delays.next(worker) > 0 for worker in range(8)]
    assert True in is_late[:-1]
    assert False in is_late[is_late.index(True) :]
    for worker in range(8):
        plain, delayed = arrival(plain_cluster, worker), arrival(delayed_cluster, worker)
        assert delayed == pytest.approx(plain + 100.0 * is_late[worker]), f"worker {worker}"


def test_only_the_pull_responses_of_a_slow_server_are_late() -> None:
    slow = cluster(ScenarioConfig(slow_shards={1: 4.0}), workers=2, shards=3, network=SLOW_NETWORK)
    usual = cluster(workers=2, shards=3, network=SLOW_NETWORK)
    for now in (0.0, 100.0):  # far enough apart for the NICs to be free again
        for worker in range(2):
            for shard in range(3):
                late_s = 4.0 if shard == 1 else 0.0
                _, pulled = usual.send(now, False, worker, shard, 1000)
                assert slow.send(now, False, worker, shard, 1000)[1] == pytest.approx(pulled + late_s)
                assert slow.send(now, True, worker, shard, 1000) == usual.send(now, True, worker, shard, 1000)
            assert slow.compute_s(worker) == usual.compute_s(worker)


def test_a_slow_server_adds_to_the_injected_delays() -> None:
    delay = Exponential(0.5)
    slow = cluster(ScenarioConfig(pull_delay=delay, slow_shards={0: 4.0}), seed=2, workers=1, shards=2)
    alone = [Draws(2, f"pull delay {shard}", delay, [1.0]) for shard in range(2)]
    for _ in range(20):
        assert slow.draw_message_delay(False, 0, 0) == alone[0].next(0) + 4.0
        assert slow.draw_message_delay(False, 0, 1) == alone[1].next(0)


def test_messages_are_instant_only_without_network_and_without_delays() -> None:
    delay = Constant(1.0)
    assert cluster().sends_instantly
    assert cluster(ScenarioConfig(compute_delay=delay)).sends_instantly
    assert not cluster(ScenarioConfig(push_delay=delay)).sends_instantly
    assert not cluster(ScenarioConfig(pull_delay=delay)).sends_instantly
    assert not cluster(network=NetworkConfig(latency_s=1e-6)).sends_instantly
    assert not cluster(ScenarioConfig(slow_shards={0: 4.0})).sends_instantly
    assert cluster(ScenarioConfig(slow_shards={0: 0.0})).sends_instantly
    elsewhere = cluster(ScenarioConfig(slow_shards={3: 4.0}), workers=1, shards=2)
    assert elsewhere.sends_instantly, "there is no such server"
    assert [elsewhere.send(1.0, False, 0, shard, 8)[1] for shard in range(2)] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("kind", "options", "rule"),
    [
        (ClusterConfig, {"workers": 0}, "cluster.workers must be in 1 .. 100,000, got 0"),
        (ClusterConfig, {"shards": 0}, "cluster.shards must be in 1 .. 10,000"),
        (ClusterConfig, {"gradient_s": []}, "cluster.gradient_s must be a list of seconds > 0"),
        (ClusterConfig, {"gradient_s": [0.1, 0.0]}, "cluster.gradient_s must be"),
        (ClusterConfig, {"gradient_s": [math.nan]}, "cluster.gradient_s must be"),
        (ClusterConfig, {"message_bytes": -1}, "cluster.message_bytes must be in 0 .. 1,000,000,000,000 or null"),
        (ClusterConfig, {"jitter": "normal"}, "cluster.jitter must be null or {name: "),
        (ScenarioConfig, {"slow": {0: 0.5}}, "scenario.slow must map workers >= 0 to factors >= 1, got {0: 0.5}"),
        (ScenarioConfig, {"slow": {-1: 2.0}}, "scenario.slow must map"),
        (ScenarioConfig, {"slow": {0: math.nan}}, "scenario.slow must map"),
        (ScenarioConfig, {"slow_shards": {0: -1.0}}, "scenario.slow_shards must map shards >= 0 to seconds >= 0"),
        (ScenarioConfig, {"slow_shards": {-1: 1.0}}, "scenario.slow_shards must map"),
        (ScenarioConfig, {"slow_shards": {0: math.inf}}, "scenario.slow_shards must map"),
        (
            ScenarioConfig,
            {"delayed_workers": [1, 1]},
            "scenario.delayed_workers must be different workers >= 0, got [1, 1]",
        ),
        (ScenarioConfig, {"push_delay": 3}, "scenario.push_delay must be null or {name: "),
        (NetworkConfig, {"latency_s": -1e-9}, "cluster.network.latency_s must be >= 0, got "),
        (NetworkConfig, {"latency_s": math.nan}, "cluster.network.latency_s must be >= 0, got "),
        (NetworkConfig, {"bandwidth_gbps": 0.0}, "cluster.network.bandwidth_gbps must be > 0 or null, got "),
        (NetworkConfig, {"bandwidth_gbps": math.nan}, "cluster.network.bandwidth_gbps must be > 0 or null, got "),
        (NetworkConfig, {"sharing": "both"}, "cluster.network.sharing must be one of queue, fair, got both"),
        (NetworkConfig, {"later_weight": 0.5}, "cluster.network.later_weight must be 1 unless cluster.network.sharing"),
        *(
            (
                NetworkConfig,
                {"sharing": "fair", "later_weight": weight},
                "cluster.network.later_weight must be in (0, 1], got ",
            )
            for weight in (0.0, 1.5, math.nan)
        ),
        (
            ScenarioConfig,
            {"compute_delay": {"name": "constant", "value": 1, "probability": 2}},
            "scenario.compute_delay: probability must be in [0, 1]",
        ),
        (
            ScenarioConfig,
            {"compute_delay": {"name": "constant", "value": 1, "probability": "often"}},
            "scenario.compute_delay.probability must be a number",
        ),
        (
            ScenarioConfig,
            {"pull_delay": {"name": "trace", "values": [1.0], "probability": 0.5}},
            "scenario.pull_delay.probability must be 1 for trace, which has a memory, got 0.5",
        ),
    ],
)
def test_what_is_out_of_range_is_refused_in_one_line(kind: type[Any], options: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(rule)}") as refused:
        kind(**options)
    assert "\n" not in str(refused.value)


def test_a_delay_without_a_probability_always_happens() -> None:
    given: Mapping[str, Any] = {"name": "constant", "value": 4.0}
    assert ScenarioConfig(pull_delay=given).pull_delay == Constant(4.0)
    assert ScenarioConfig(pull_delay={**given, "probability": 1}).pull_delay == Constant(4.0)
    assert ScenarioConfig(pull_delay={**given, "probability": 0.5}).pull_delay == Occasional(0.5, Constant(4.0))


# The shipped profiles.

CONF = Path(__file__).parents[2] / "conf"


def test_each_cluster_profile_runs_and_says_where_its_numbers_come_from() -> None:
    for name in choices("cluster"):
        check_runs(name, "slow_worker")
        text = (CONF / "cluster" / f"{name}.yaml").read_text()
        assert len([line for line in text.splitlines() if line.startswith("# ")]) >= 2, name


def test_each_scenario_runs() -> None:
    for name in choices("scenario"):
        check_runs("wan8", name)


def check_runs(name: str, scenario: str) -> None:
    config, _ = compose(["strategy=asp", f"cluster={name}", f"scenario={scenario}"])
    assert (config.cluster.name, config.scenario.name) == (name, scenario)
    made = Cluster(config.cluster, config.scenario, config.seed)
    for worker in range(config.cluster.workers):
        _, begins = made.send(0.0, False, worker, 0, 1000)
        assert made.send(begins + made.compute_s(worker), True, worker, 0, 1000)[1] > begins


def test_dssps_mixed_cluster_computes_in_51_and_158_milliseconds() -> None:
    config, _ = compose(["cluster=gtx1060_1080ti"])
    profile = config.cluster
    assert (profile.workers, profile.shards, profile.gradient_s) == (2, 1, [0.051, 0.158])
    assert profile.jitter.expectation() == pytest.approx(1.0)
    assert Cluster(profile, config.scenario, 0).sends_instantly  # its times contain the communication


def test_dssps_homogeneous_cluster_is_scaled_from_the_1080_ti_by_peak_rates() -> None:
    config, _ = compose(["cluster=p100_4x4"])
    profile = config.cluster
    assert (profile.workers, profile.shards) == (4, 1)
    assert profile.gradient_s == [pytest.approx(0.051 * 11.3 / 10.6, abs=5e-4)]
    assert profile.network == NetworkConfig(latency_s=2e-6, bandwidth_gbps=100.0)


def profile_of(name: str) -> ClusterConfig:
    return compose(["strategy=bsp", f"cluster={name}"])[0].cluster


def test_psps_cluster_takes_its_updates_from_table_1() -> None:
    """90 epochs of 50,000 images by 32 x 160: 879 updates, which c=28 b=90 % makes in 139.95 min (psp.txt, Table 1)."""
    profile = profile_of("xeonphi32")
    assert (profile.workers, profile.shards, profile.gradient_s) == (32, 32, [9.3])
    assert math.ceil(90 * 50_000 / (32 * 160)) == 879
    an_update_s = 139.95 * 60 / 879
    assert an_update_s == pytest.approx(9.55, abs=0.005)
    # the 28th of 32 workers, and a message each way of at most 50 ms
    waiting_s = order_statistic(profile.jitter, 28, 32) * 9.3 - 9.3 + profile.network.jitter.high
    assert 9.3 + waiting_s == pytest.approx(an_update_s, abs=0.05)
    assert profile.network == NetworkConfig(jitter=Uniform(0.0, 0.05))


def test_the_k40_workers_take_their_seconds_from_table_1_of_the_backup_paper() -> None:
    """backup.txt, Table 1 (hours, workers), with the assumed batch of 32 and 100 epochs of ImageNet."""
    profile = profile_of("k40")
    hours = {25: 184.9, 50: 97.67, 100: 51.97, 200: 22.94}
    assert [round(workers * spent) for workers, spent in hours.items()] == [4622, 4884, 5197, 4588]
    worker_hours = fmean(workers * spent for workers, spent in hours.items())
    assert profile.gradient_s == [pytest.approx(worker_hours * 3600 * 32 / (100 * 1_281_167), abs=0.005)]
    assert (profile.workers, profile.shards) == (50, 1)


def test_waiting_for_all_k40_workers_costs_20_to_40_percent_and_backups_save_nearly_half() -> None:
    """backup.txt, section 4 and Figure 2: sync is 20-40 % slower a step than async, with backups almost as fast."""
    jitter = profile_of("k40").jitter
    assert jitter.expectation() == pytest.approx(1.0, abs=1e-6)
    longer = [100 * (order_statistic(jitter, workers, workers) - 1) for workers in (50, 100, 200)]
    assert [round(percent) for percent in longer] == [26, 32, 39]
    assert 100 * (order_statistic(jitter, 50, 52) - 1) == pytest.approx(14, abs=0.5)


def test_adasyncs_cluster_computes_for_an_epochs_time_less_the_delay() -> None:
    """adasync.txt, section 6.1: 10 epochs in 60 s (as read here) under a delay of 20 ms; 8 workers, 32 images."""
    profile = profile_of("titanx8")
    assert (profile.workers, profile.shards) == (8, 1)
    assert profile.gradient_s == [pytest.approx(60 / 10 / (50_000 / 32 / 8) - 0.02, abs=5e-4)]
    assert profile.network == NetworkConfig(latency_s=5e-5, bandwidth_gbps=40.0)


def test_the_cluster_of_theorems_is_a_second_a_gradient_and_nothing_else() -> None:
    made = Cluster(profile_of("unit"), NOTHING, 0)
    assert made.sends_instantly
    assert times(made, 3) == [1.0] * 50


def test_the_scenarios_have_the_papers_numbers() -> None:
    def scenario(name: str) -> ScenarioConfig:
        return compose([f"scenario={name}"])[0].scenario

    assert scenario("none") == ScenarioConfig()
    assert scenario("exponential_20ms") == ScenarioConfig("exponential_20ms", compute_delay=Exponential(0.02))
    assert scenario("exponential_50ms") == ScenarioConfig("exponential_50ms", compute_delay=Exponential(0.05))
    late = scenario("late_pulls")
    assert late == ScenarioConfig("late_pulls", pull_delay=Occasional(0.0016, Constant(4.0)))
    assert late.pull_delay.expectation() == pytest.approx(0.0064)
    assert scenario("slow_worker") == ScenarioConfig("slow_worker", slow={0: 3.0})
    assert scenario("slow_server") == ScenarioConfig("slow_server", slow_shards={0: late.pull_delay.source.value})
    slow_for_a_while = TwoState(0.0, 0.04, every=150, lasting=50)
    assert scenario("straggler") == ScenarioConfig("straggler", compute_delay=slow_for_a_while, delayed_workers=[0])
    tail = scenario("long_tail")
    assert tail == ScenarioConfig("long_tail", compute_delay=Occasional(0.01, Pareto(1.0, 2.5)))
    assert tail.compute_delay.source.expectation() == pytest.approx(1.67, abs=0.005)  # as its comment says
