"""What torchrun's environment says of a node, and which processes of a run the node has."""

from dataclasses import replace

import pytest
from composing import composed
from hypothesis import given
from hypothesis import strategies as st

from syncline.config import ConfigError, RunConfig, compose
from syncline.live.node.ranks import Ranks

# As torchrun sets it, beside others, for the second of three ranks of the second of two nodes.
ENVIRONMENT = {
    "RANK": "3",
    "WORLD_SIZE": "5",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "3",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "1",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
LOCAL, HOSTS = ["runner=local"], ["runner=multinode", "hosts=[127.0.0.1,127.0.0.2]"]
OWN = [*HOSTS, "runner.shards_on=own"]
LARGER = ["cluster.workers=4", "cluster.shards=2"]
COLLECTIVE = [*LOCAL, "strategy=ds_sync", "cluster.workers=4"]


def config(*words: str) -> RunConfig:
    return compose(["strategy=asp", *words])[0]


def of_job(*counts: int) -> list[Ranks]:
    """All nodes of a job with so many ranks on each."""
    return [
        Ranks(sum(counts[:node]), count, sum(counts), len(counts), "127.0.0.1", 1, 0)
        for node, count in enumerate(counts)
    ]


def test_a_node_is_told_by_torchrun_which_ranks_it_has() -> None:
    assert Ranks.of(ENVIRONMENT) == Ranks(2, 3, 5, 2, "127.0.0.1", 29500, 1)


def test_a_rendezvous_without_a_store_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"static \(the default\) or c10d with its own store, got another"):
        Ranks.of(ENVIRONMENT | {"TORCHELASTIC_USE_AGENT_STORE": "False"})


@pytest.mark.parametrize(
    ("words", "counts", "expected"),
    [
        (LOCAL, [2], ["shard 0 worker 0 worker 1"]),
        (HOSTS, [1, 1], ["shard 0 worker 0", "worker 1"]),
        ([*HOSTS, "cluster.shards=2"], [1, 1], ["shard 0 worker 0", "shard 1 worker 1"]),
        ([*HOSTS, "cluster.shards=3"], [1, 1], ["shard 0 shard 1 worker 0", "shard 2 worker 1"]),
        ([*HOSTS, *LARGER], [1, 3], ["shard 0 worker 0", "shard 1 worker 1 worker 2 worker 3"]),
        (OWN, [2, 1], ["shard 0 worker 0", "worker 1"]),
        ([*OWN, "cluster.shards=3"], [2, 3], ["shard 0 shard 1", "shard 2 worker 0 worker 1"]),
        (COLLECTIVE, [3, 1], ["member 0 member 1 member 2", "member 3"]),
        ([*LOCAL, "strategy=ad_psgd"], [1, 1], ["peer 0", "peer 1"]),
    ],
)
def test_which_processes_a_node_has(words: list[str], counts: list[int], expected: list[str]) -> None:
    found = [ranks.processes(config("cluster.workers=2", *words)) for ranks in of_job(*counts)]
    assert [" ".join(f"{role} {index}" for role, index in each) for each in found] == expected


@given(st.data())
def test_every_process_has_one_node_and_shards_are_spread_over_the_ranks(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    base, shards, workers = composed("strategy=asp", *LOCAL)[0], data.draw(st.integers(1, 6)), sum(counts)
    run = replace(base, cluster=replace(base.cluster, workers=workers, shards=shards))
    found = [ranks.processes(run) for ranks in of_job(*counts)]
    assert [index for node in found for role, index in node if role == "worker"] == list(range(workers))
    assert [index for node in found for role, index in node if role == "shard"] == list(range(shards))
    for count, node in zip(counts, found, strict=True):
        num_shards = sum(role == "shard" for role, _ in node)
        assert abs(num_shards - count * shards / workers) < count, "of each rank less than one more or fewer"


def test_a_process_has_the_environment_that_torchrun_would_set_if_there_were_workers_alone() -> None:
    """By its local number a worker has its GPU. Of three shards two are on the first node, the third beside workers."""
    run = config(*OWN, "cluster.workers=2", "cluster.shards=3")
    second = of_job(2, 3)[1]
    found = [second.variables(run, role, index, "tcp:127.0.0.1:1") for role, index in second.processes(run)]
    names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")
    assert [[int(each[name]) for name in names] for each in found[1:]] == [[0, 0, 2, 2], [1, 1, 2, 2]]
    assert {(each["GLOO_SOCKET_IFNAME"], each["NCCL_SOCKET_IFNAME"]) for each in found} == {("lo", "=lo")}
    alone = config(*LOCAL, "cluster.workers=2")
    assert set(of_job(2)[0].variables(alone, "worker", 1, "unix:there")) == set(names)


@pytest.mark.parametrize(
    ("words", "control", "expected"),
    [
        (LOCAL, "", "unix:"),
        (LOCAL, "unix:there", "unix:"),
        ([*LOCAL, "runner.transport=tcp"], "", "tcp:127.0.0.1:0"),
        (COLLECTIVE, "", "unix:"),  # the coordinator; torch's store needs TCP
        (COLLECTIVE, "unix:there", "tcp:127.0.0.1:0"),
        ([*LOCAL, "strategy=ad_psgd"], "unix:there", "unix:"),
        (HOSTS, "", "tcp:127.0.0.1:0"),
        (HOSTS, "tcp:127.0.0.1:7", "tcp:127.0.0.1:0"),
        ([*HOSTS, "runner.ports=20000-20099"], "", "tcp:127.0.0.1:20000-20099"),
        ([*HOSTS, "runner.interface=lo"], "tcp:192.0.2.1:7", "tcp:127.0.0.1:0"),
    ],
)
def test_where_a_process_listens(words: list[str], control: str, expected: str) -> None:
    assert of_job(2)[0].listen_at(config(*words), control) == expected


@pytest.mark.parametrize(
    ("words", "counts", "line"),
    [
        (HOSTS, [4], r"runner\.nodes must be 1, as many as torchrun's nodes, or null, got 2"),
        ([], [4], "runner must be local, or left out, inside torchrun: got simulate"),
        (LOCAL, [2, 2], "runner must be multinode, or left out, inside torchrun: got local"),
        (LOCAL, [3], r"cluster\.workers=4 must have 4 ranks of torchrun \(--nproc-per-node on all nodes\), got 3"),
        (OWN, [2, 2], r"cluster\.workers=4 and 1 shards of their own must have 5 ranks"),
    ],
)
def test_a_run_that_does_not_fit_the_job_is_refused(words: list[str], counts: list[int], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        of_job(*counts)[0].check(config("cluster.workers=4", *words))
