"""The identity of a config names what is computed, and nothing else."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from composing import composed, found, leaves

from syncline.config import RunConfig, compose
from syncline.config.optimizers import ScheduleConfig
from syncline.config.run import NOT_IN_IDENTITY, TABLES
from syncline.timing.distributions import Constant
from syncline.timing.network import NetworkConfig

CONFIGS = [
    [],
    ["strategy=ssp", "model=resnet20", "dataset=cifar10", "scenario=slow_worker", "tracker=wandb"],
    ["strategy=bsp", "dataset=glyphs100", "scenario=late_pulls", "cluster=gtx1060_1080ti", "max_updates=10"],
    ["gradients=false", "cluster.jitter=null", "scenario=exponential_20ms", "optimizer.schedule.at_epochs=[10,12]"],
    ["runner=local", "strategy=bsp"],
    ["runner=multinode", "hosts=[a,b]", "strategy=psp", "cluster.shards=2"],
    ["strategy=psp", "cluster.shards=2", "cluster.network.sharing=fair"],
    ["strategy=adasync", "strategy.variant=k_batch_sync"],
    ["strategy=backup"],
    ["strategy=ds_sync", "cluster.workers=12"],
]


def test_equal_configs_have_equal_identities() -> None:
    for overrides in CONFIGS:
        one, other = composed(*overrides)[0], compose(overrides[::-1])[0]
        assert one == other
        assert one.identity == other.identity


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["cluster.jitter.mean=1"], ["cluster.jitter.mean=1.0"]),
        (["scenario=late_pulls"], ["scenario=late_pulls", "scenario.pull_delay.value=4"]),
        (["epochs=15"], ["epochs=15.0"]),
        (["optimizer.schedule.at_epochs=[1]"], ["optimizer.schedule.at_epochs=[1.0]"]),
    ],
)
def test_a_whole_number_and_the_same_number_with_a_point_are_one_run(one: list[str], other: list[str]) -> None:
    left, right = compose(one)[0], compose(other)[0]
    assert left == right
    assert left.identity == right.identity


def test_a_run_from_before_fair_sharing_keeps_its_identity() -> None:
    """Its record is still found."""
    assert compose(["max_updates=7", "epochs=30"])[0].identity == "dssp-lenet-digits-s0-5029b48d5d"


def test_the_identity_says_what_runs_and_is_a_folder_name() -> None:
    config, _ = compose(["strategy=ssp", "model=resnet20", "dataset=cifar10", "seed=7"])
    assert config.identity.startswith("ssp-resnet20-cifar10-s7-")
    assert dataclasses.replace(config, gradients=False).identity.startswith("ssp-timing-cifar10-s7-")
    assert Path(config.identity).name == config.identity


def other_values(value: Any) -> list[Any]:
    """Candidates that differ from a leaf; the first one that its class accepts is taken."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value + 6]  # a depth is 6 n + 2
        case float():
            return [value * 0.5 + 0.001, value + 1]
        case str():
            return ["another", *(set().union(*_CHOICES) - {value})]
        case [str(), *_]:
            return [[f"{each}x" for each in value]]
        case list():
            return [[*value, (value[-1] if value else 0) + 1.0], [2], *([*value, each] for each in value[-1:])]
        case dict():
            return [{**value, 1: 2.5}, {0: 2.5}]
        case None:
            return [7, 3, 0.5, 70, Constant(0.5), "loss", "sgd"]
    raise AssertionError(f"no other value known for {value!r}")


KINDS = [RunConfig, ScheduleConfig, NetworkConfig, *(kind for table in TABLES.values() for kind in table.values())]
_CHOICES = [
    *(field.metadata["choices"] for kind in KINDS for field in dataclasses.fields(kind) if "choices" in field.metadata),
    ("10.0.0.1", "20000-20009"),
]


def leaf_paths(part: Any, prefix: str = "") -> Iterator[str]:
    """Dotted paths of the fields that are no dataclasses themselves."""
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if dataclasses.is_dataclass(value):
            yield from leaf_paths(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"


def with_leaf(part: Any, path: str, value: Any) -> Any:
    """The same dataclass with another value at the dotted path."""
    key, _, rest = path.partition(".")
    return dataclasses.replace(part, **{key: with_leaf(getattr(part, key), rest, value) if rest else value})


def with_another(config: RunConfig, path: str) -> RunConfig | None:
    """The config with some other value at the dotted path; None if there is no other that it accepts."""
    for candidate in other_values(found(config, path)):
        try:
            return with_leaf(config, path, candidate)  # type: ignore[no-any-return]
        except (ValueError, TypeError, AttributeError):
            continue
    return None


@pytest.mark.parametrize("overrides", CONFIGS, ids=lambda overrides: " ".join(overrides) or "defaults")
def test_every_leaf_changes_the_identity_but_those_of_the_written_list(overrides: list[str]) -> None:
    config, _ = composed(*overrides)
    changed = {path: with_another(config, path) for path in leaf_paths(config)}
    for path, _ in leaves(config.as_dict()):
        assert path in changed or path.rpartition(".")[0] in changed, "every leaf is tried; a mapping is one"
    fixed = {path for path, other in changed.items() if other is None}
    bound = {f"{group}.name" for group in TABLES}  # each is of the class of its part
    bound |= {"cluster.shards"} if config.strategy.single_server else {"strategy.topology"}
    if not config.strategy.has_server:  # nothing is pulled or pushed
        bound |= {"cluster.shards", "cluster.network.jitter", "local.by_speed"}
        bound |= {f"scenario.{key}" for key in ("pull_delay", "push_delay", "slow_shards")}
    # These go with others: an optimizer of the local steps, each other, lists of times.
    bound |= {"local.keep", "local.fragments", "local.overlap", "scenario.up", "scenario.down", "scenario.absences"}
    bound |= {f"optimizer.schedule.{key}_epoch" for key in ("end", "from")}  # go with kinds that need the first
    if config.cluster.network.sharing == "queue":
        bound.add("cluster.network.later_weight")
    else:
        bound.add("cluster.network.regions")
    if config.optimizer.schedule.at_epochs:
        bound.add("optimizer.schedule.kind")
    if config.runner.name == "multinode":
        bound |= {"runner.nodes", "runner.start_command"}
    if not config.gradients:  # nothing is learned, there are no parameters
        bound |= {"target.value", "runner.parameters"}
    if not config.strategy.elastic:
        bound.add("runner.initial_workers")
    if config.runner.time_kind == "wall":  # keys that allow nothing else unless another one is changed, too
        bound |= {"gradients", "target.value", "dataset.sharing"}
    assert fixed <= bound
    identities = {path: other.identity for path, other in changed.items() if other is not None}
    same = {path for path, identity in identities.items() if identity == config.identity}
    assert same == {path for path in identities if any(f"{path}.".startswith(f"{key}.") for key in NOT_IN_IDENTITY)}
    assert len(set(identities.values()) - {config.identity}) == len(identities) - len(same), "each in its own way"


def test_every_key_of_the_written_list_exists() -> None:
    overrides = [
        ["dataset=cifar10", "runner=local"],
        ["runner=multinode"],
        ["dataset=imagenet"],
        ["model=deepfm", "dataset=criteo"],
        ["model=bert_tiny", "dataset=qa_synthetic"],
    ]
    there = {path for words in overrides for path in leaf_paths(compose(words)[0])}
    assert set(NOT_IN_IDENTITY) <= there | {"tracker"}


def test_the_place_the_machine_and_what_is_written_down_are_not_in_the_identity() -> None:
    words = ["tracker=wandb", "runner.events=false", "runner.parameters=true", "threads=2", "device=cpu"]
    assert compose(words)[0].identity == composed()[0].identity
    timed = ["dataset=cifar10", "gradients=false"]  # without a look at the data
    places = ["dataset.root=x", "dataset.download=true"]
    assert compose([*timed, *places])[0].identity == composed(*timed)[0].identity


def test_where_and_how_it_is_run_is_no_part_of_the_run() -> None:
    words = ["results=elsewhere", "rerun=true", "jobs=3", "fail_fast=true", "debug=true", "scale=smoke"]
    config, invocation = compose(words)
    assert config == composed()[0]
    assert (invocation.results, invocation.rerun, invocation.jobs) == ("elsewhere", True, 3)
    assert (invocation.fail_fast, invocation.debug, invocation.scale.name) == (True, True, "smoke")
