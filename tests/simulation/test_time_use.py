"""How a simulated run spent its time: the engine's sums against its log, and against closed forms."""

from dataclasses import replace

import pytest
from simulations import simulated, simulation_of

from syncline.config import compose
from syncline.records.events import EventLog, read_events
from syncline.records.spans import timeline_of
from syncline.records.time_use import TimeUse, time_use_of, time_use_of_collective, what_bound
from syncline.strategies.asp import AspOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.k_sync import KBatchSyncOptions
from syncline.strategies.psp import PspOptions
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Exponential, Occasional
from syncline.timing.network import NetworkConfig

MB = 10**6
KINDS = [  # with their shards, and whether workers compute while they wait
    (AspOptions(), 1, False),
    (BspOptions(), 3, False),
    (SspOptions(staleness=2), 3, False),
    (BackupOptions(backups=1), 3, False),
    (KBatchSyncOptions(k=3), 1, False),
    (PspOptions(c=2, tau1=0.006), 3, False),
    (PspOptions(c=1, tag="newest"), 1, False),
    (AspOptions(), 1, True),
    (BspOptions(), 3, True),
    (SspOptions(staleness=2), 3, True),
]
JITTER = Exponential(1.0)
DELAYS = ScenarioConfig(
    compute_delay=Exponential(0.01), push_delay=Occasional(0.3, Exponential(0.03)), pull_delay=Exponential(0.02)
)
CLUSTER = ClusterConfig(workers=4, gradient_s=[0.02, 0.03, 0.05], jitter=JITTER)
NETWORKS = {
    "instant": NetworkConfig(),
    "latency": NetworkConfig(latency_s=0.01),
    "queue": NetworkConfig(latency_s=0.002, bandwidth_gbps=1.0),
    "fair": NetworkConfig(latency_s=0.002, bandwidth_gbps=1.0, sharing="fair"),
}


def time_use(options, cluster, scenario=None, **about) -> tuple[TimeUse, float]:
    """The time use of a run, and when it ended."""
    simulation = simulation_of(options, cluster, scenario, **about)
    simulation.run()
    assert simulation.time_use is not None
    return simulation.time_use, simulation.totals.time_s


@pytest.mark.parametrize("scenario", [ScenarioConfig(), DELAYS], ids=["undisturbed", "delayed"])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("options", "shards", "overlap"), KINDS, ids=repr)
def test_the_engines_sums_agree_with_its_log(options, shards, overlap, network, scenario, tmp_path):
    log = EventLog(tmp_path / "events.arrow")
    cluster = replace(CLUSTER, network=NETWORKS[network], shards=shards)
    ours, end_s = time_use(options, cluster, scenario, size=MB, log=log, overlap=overlap, time_s=1.5)
    log.close()
    theirs = timeline_of(read_events(tmp_path / "events.arrow"), end_s, overlap=overlap)
    first_pulls_s = sum(lane[0].begin_s for lane in theirs.workers)  # before the first row of each worker
    logged = time_use_of(theirs)
    receives = options.pull_rule(shards) is None
    assert ours.total_s == pytest.approx(4 * 1.5) == pytest.approx(logged.total_s + first_pulls_s)
    assert ours.computing_s == pytest.approx(logged.computing_s)
    assert ours.sending_s + ours.queueing_s == pytest.approx(logged.sending_s + receives * first_pulls_s)
    assert ours.waiting_s == pytest.approx(logged.waiting_s + (not receives) * first_pulls_s, abs=1e-9)
    assert (network in ("queue", "fair")) == (ours.nic_busy_s is not None)
    assert network in ("queue", "fair") or ours.queueing_s == pytest.approx(0)


@pytest.mark.parametrize(
    ("sharing", "cycle_ms"),
    [("queue", 64), ("fair", 64 + 10 + 64)],  # pushes and pulls at one time; all pulls, all gradients, all pushes
)
def test_asp_on_a_slow_link_is_bound_by_it(sharing, cycle_ms):
    """A message of 1 MB takes 8 ms: all eight pushes or pulls of a cycle take 64 ms, a gradient 10."""
    network = NetworkConfig(bandwidth_gbps=1.0, sharing=sharing)
    cluster = ClusterConfig(workers=8, gradient_s=[0.01], network=network)
    use, end_s = time_use(AspOptions(), cluster, size=MB, time_s=20.0)
    summary = use.summary(end_s, [10 / cycle_ms] * 8)
    assert summary["bound_by"] == "network"
    (link,) = summary["link_busy"]
    assert link == pytest.approx({"in": 64 / cycle_ms, "out": 64 / cycle_ms}, rel=0.01)
    assert summary["time_shares"]["computing"] == pytest.approx(10 / cycle_ms, rel=0.01)
    assert summary["time_shares"]["waiting"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("sharing", ["queue", "fair"])
def test_a_single_worker_never_queues(sharing):
    """A cycle is 8 ms of pull, 10 ms of gradient, 8 ms of push, and 2 ms of latency; the run ends in the third push."""
    network = NetworkConfig(latency_s=0.001, bandwidth_gbps=1.0, sharing=sharing)
    cluster = ClusterConfig(workers=1, gradient_s=[0.01], network=network)
    use, _ = time_use(AspOptions(), cluster, size=MB, time_s=2 * 0.028 + 0.009 + 0.01 + 0.005)
    assert use.computing_s == pytest.approx(3 * 0.01)
    assert use.sending_s == pytest.approx(2 * 0.018 + 0.009 + 0.005)
    assert use.queueing_s == pytest.approx(0)
    ((received_s, sent_s),) = use.nic_busy_s
    assert sent_s == pytest.approx(3 * 0.008)
    # latency passes before the receiver's NIC; with fair sharing, after both NICs
    assert received_s == pytest.approx(2 * 0.008 + (0.004 if sharing == "queue" else 0.005))


def test_workers_that_push_together_queue_for_the_servers_link():
    """Of the three pushes at 2 s the second waits 1 s for the first, the third 2 s; and so for the pulls."""
    network = NetworkConfig(bandwidth_gbps=8e-9)
    cluster = ClusterConfig(workers=3, gradient_s=[1.0], network=network)
    scenario = ScenarioConfig()
    use, _ = time_use(BspOptions(), cluster, scenario, size=1, updates=1)
    assert use.queueing_s == pytest.approx(
        1 + 2
    )  # pulls arrive at 1, 2, 3 s and gradients end at 2, 3, 4: no push queues
    assert use.sending_s == pytest.approx(6)
    assert use.waiting_s == pytest.approx(2 + 1 + 0)


@pytest.mark.parametrize(
    ("busiest_worker", "busiest_link", "computing", "waiting", "sending", "bound_by"),
    [
        (0.9, 0.95, 0.7, 0.2, 0.1, "network"),  # the link is busier than any worker
        (0.95, 0.9, 0.7, 0.2, 0.1, "computing"),
        (1.0, 0.1, 0.3, 0.6, 0.1, "waiting"),
        (0.3, 0.1, 0.3, 0.2, 0.5, "network"),  # latency and delays of messages
        (0.0, 0.0, 0.0, 0.0, 0.0, "computing"),  # nothing ran
    ],
)
def test_what_a_run_is_bound_by(busiest_worker, busiest_link, computing, waiting, sending, bound_by):
    shares = {"computing": computing, "waiting": waiting, "sending": sending}
    assert what_bound(shares, busiest_worker, busiest_link) == bound_by
    with_queueing = shares | {"sending": sending / 2, "queueing": sending / 2}
    assert what_bound(with_queueing, busiest_worker, busiest_link) == bound_by


def test_an_all_reduce_separates_computing_waiting_and_the_exchange(tmp_path):
    """Each step takes 0.03 s of the slower worker and an exchange: a ring of two sends two halves of 125 kB."""
    words = ["strategy=bsp", "strategy.topology=allreduce", "cluster.workers=2", "cluster.gradient_s=[0.01,0.03]"]
    words += ["cluster.jitter=null", "cluster.message_bytes=125000", "cluster.network.latency_s=0"]
    _, summary = simulated(tmp_path, *words, "max_updates=10", "epochs=null")
    shares = summary["time_shares"]
    assert shares["computing"] == pytest.approx(0.02 / 0.031)
    assert shares["sending"] == pytest.approx(0.001 / 0.031)
    assert shares["waiting"] == pytest.approx(0.01 / 0.031)
    assert "link_busy" not in summary
    assert summary["seconds_per_update"] == pytest.approx(0.031)


@pytest.mark.parametrize("average", ["after_step", "before_forward"])
@pytest.mark.parametrize(
    "strategy",
    [["ds_sync"], ["ds_sync", "strategy.parity=epoch", "dataset.train_size=960"], ["gossip"]],
    ids=["rows and columns", "epoch", "peers"],
)
def test_the_log_of_a_collective_separates_waiting_from_the_exchange(average, strategy, tmp_path):
    """As live runs do, which have only the log; it lacks the very first or last exchange."""
    words = ["cluster.workers=6", "model=resnet8", f"strategy={strategy[0]}", *strategy[1:]]
    words += [f"strategy.average={average}"] * (strategy != ["gossip"])
    events, summary = simulated(tmp_path, *words, "scenario=exponential_20ms", "epochs=null", "max_updates=37")
    timeline = timeline_of(events, summary["time_s"])
    config = compose(words)[0]
    collective = config.strategy.collective
    schedule = collective.schedule(6, config.steps_an_epoch(config.dataset.num_train))
    later = int(collective.averages_first)
    logged = time_use_of_collective(timeline, events, schedule.turns, lambda step: schedule.turn(step + later))
    total_s = 6 * summary["time_s"]
    assert logged.computing_s / total_s == pytest.approx(summary["time_shares"]["computing"], abs=0.01)
    assert logged.sending_s / total_s == pytest.approx(summary["time_shares"]["sending"], abs=0.01)
    assert logged.waiting_s / total_s == pytest.approx(summary["time_shares"]["waiting"], abs=0.01)
