"""The door from Hydra: every file composes, every mistake is one line, the identity names what is computed."""

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.config import (
    CONF,
    GROUPS,
    METRICS,
    MODELS,
    MOMENTUM_FORMS,
    NOT_IN_IDENTITY,
    OPTIMIZERS,
    RUNNERS,
    TRACKERS,
    ConfigError,
    Invocation,
    RunConfig,
    choices,
    compose,
    compose_yaml,
    sweep,
)
from syncline.datasets import DATASETS
from syncline.learning import optimizer
from syncline.learning.evaluate import Metrics
from syncline.models import MODELS as NETWORKS
from syncline.strategies import STRATEGIES
from syncline.timing.distributions import Constant, Distribution

FILES = [(group, choice) for group in GROUPS for choice in choices(group)]


def leaves(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of every leaf of nested mappings."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def found(config: Any, path: str) -> Any:
    """What the dotted path leads to, through attributes and mappings."""
    for key in path.split("."):
        config = config[int(key)] if isinstance(config, dict) else getattr(config, key)
    return config


@cache
def composed(*words: str) -> tuple[RunConfig, Invocation]:
    """Once for all tests: composing takes a tenth of a second."""
    return compose(words)


def line_of(*overrides: str) -> str:
    """The error that these overrides give; it must be one line."""
    with pytest.raises(ConfigError) as refused:
        compose(overrides)
    line = str(refused.value)
    assert line
    assert "\n" not in line
    return line


# Every file of every group.


@pytest.mark.parametrize(("group", "choice"), FILES, ids="=".join)
def test_every_file_of_every_group_composes_and_all_it_sets_arrives(group: str, choice: str) -> None:
    config, invocation = composed(f"{group}={choice}")
    values = yaml.safe_load((CONF / group / f"{choice}.yaml").read_text())
    assert values.pop("defaults")[-1] == "_self_"
    assert set(values) == {field.name for field in dataclasses.fields(getattr(config, group, None) or invocation.scale)}
    part = invocation.scale if group == "scale" else getattr(config, group)
    delays = {key for key, value in values.items() if isinstance(value, dict) and "probability" in value}
    for path, value in leaves({key: value for key, value in values.items() if key not in delays}):
        if not str(value).startswith("${oc.env:"):
            assert found(part, path) == value, path
    for key in delays:
        delay, given = getattr(part, key), values[key]
        assert (delay.probability, delay.name) == (given["probability"], given["name"])


def test_no_folder_of_conf_is_without_a_group() -> None:
    folders = {path.name for path in CONF.iterdir() if path.is_dir()}
    assert folders == {*GROUPS, "experiment"}
    assert all(choices(group) for group in GROUPS)


def test_the_defaults_are_dssp_on_digits_in_virtual_time() -> None:
    config, invocation = composed()
    assert isinstance(config, RunConfig)
    assert isinstance(invocation, Invocation)
    names = [getattr(config, group).name for group in ("strategy", "model", "dataset", "runner", "cluster")]
    assert names == ["dssp", "lenet", "digits", "simulate", "laptop"]
    assert (config.seed, config.batch_size, config.gradients, config.device) == (0, 32, True, "auto")
    assert (config.max_updates, config.max_time_s, config.target.value) == (None, None, None)
    assert (invocation.scale.name, invocation.results, invocation.rerun) == ("laptop", "results", False)


def test_a_composed_config_is_frozen() -> None:
    config, _ = composed()
    for part in (config, config.strategy, config.cluster.network, config.optimizer.schedule):
        field = dataclasses.fields(part)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, field, None)


def test_the_printed_config_composes_to_the_same_run() -> None:
    overrides = ["strategy=ssp", "model=resnet20", "scenario=slow_worker", "optimizer.lr=0.125"]
    printed = yaml.safe_load(compose_yaml(overrides))
    config, _ = compose(overrides)
    scenario = printed.pop("scenario")
    assert scenario["slow"] == {0: 3.0}
    for path, value in leaves({key: value for key, value in printed.items() if hasattr(config, key)}):
        assert found(config, path) == value, path


@pytest.mark.parametrize("override", ["+seed=3", "++seed=3", "seed=3"])
def test_a_plus_before_an_existing_key_changes_nothing(override: str) -> None:
    assert compose([override]) == composed("seed=3")
    assert composed("seed=3")[0].seed == 3


def test_a_plus_before_a_nested_key_and_a_group_changes_nothing() -> None:
    assert compose(["+strategy=ssp", "+strategy.staleness=7"]) == compose(["strategy=ssp", "strategy.staleness=7"])


def test_later_overrides_win() -> None:
    assert compose(["seed=1", "seed=2"])[0].seed == 2
    assert compose(["strategy.s_lower=1", "strategy.s_lower=5"])[0].strategy.s_lower == 5


def test_a_composition_leaves_nothing_behind_for_the_next() -> None:
    compose(["strategy=ssp", "seed=7", "cluster.network.latency_s=1"])
    line_of("strategy=ssp", "strategy.s_lower=1")
    assert compose([]) == compose([])
    assert compose([])[0].strategy.name == "dssp"


def test_a_delay_can_be_asked_for_on_the_command_line() -> None:
    config, _ = compose(["scenario.pull_delay={name: constant, value: 4.0, probability: 0.5}"])
    assert (config.scenario.pull_delay.probability, config.scenario.pull_delay.source) == (0.5, Constant(4.0))


def test_another_jitter_replaces_the_profiles() -> None:
    config, _ = compose(["cluster.jitter={name: exponential, mean: 1.0}"])
    assert (config.cluster.jitter.name, config.cluster.jitter.expectation()) == ("exponential", 1.0)


@pytest.mark.parametrize("override", ["scenario.slow={2: 4.0}", "+scenario.slow={2: 4.0}"])
def test_a_slow_worker_can_be_asked_for_on_the_command_line(override: str) -> None:
    assert compose([override])[0].scenario.slow == {2: 4.0}


# Errors: one line, what was given, what is allowed.


@pytest.mark.parametrize("group", [*GROUPS, "experiment"])
def test_an_unknown_choice_is_refused_with_the_allowed_ones(group: str) -> None:
    line = line_of(f"{group}=nonsense")
    assert line.startswith(f"{group} must be one of ")
    assert "nonsense" in line
    assert [choice for choice in choices(group) if choice not in line] == []


def test_an_unknown_key_at_the_top_is_refused_with_the_allowed_ones() -> None:
    for override in ("sede=3", "+sede=3", "++sede=3"):
        line = line_of(override)
        assert line.startswith("sede: unknown key")
        keys = {field.name for kind in (RunConfig, Invocation) for field in dataclasses.fields(kind)}
        assert [key for key in keys if key not in line] == []


@pytest.mark.parametrize(
    ("overrides", "allowed"),
    [
        (["strategy.stalenes=3"], ["s_lower", "r_max", "bound"]),
        (["strategy=ssp", "strategy.s_lower=3"], ["staleness"]),
        (["cluster.network.latency=1"], ["latency_s", "bandwidth_gbps"]),
        (["+cluster.network.latency=1"], ["latency_s", "bandwidth_gbps"]),
        (["optimizer.schedule.at=1"], ["factor", "at_epochs"]),
        (["model=resnet20", "model.layers=3"], ["depth", "width"]),
        (["dataset.root=data"], ["train_size", "augment"]),
        (["model.depth.foo=3"], ["model"]),
    ],
)
def test_an_unknown_nested_key_is_refused_with_those_of_its_parent(overrides: list[str], allowed: list[str]) -> None:
    line = line_of(*overrides)
    key = overrides[-1].lstrip("+").partition("=")[0]
    assert line.startswith(f"{key}: unknown key; ")
    assert [word for word in allowed if word not in line] == [], line


@pytest.mark.parametrize(
    ("override", "kind"),
    [
        ("seed=abc", "Integer"),
        ("batch_size=1.5", "Integer"),
        ("epochs=long", "Float"),
        ("gradients=maybe", "bool"),
        ("optimizer.lr=fast", "Float"),
        ("optimizer.lr=null", "not Optional"),
        ("cluster.gradient_s=[0.1,slow]", "Float"),
        ("cluster.network.bandwidth_gbps=wide", "Float"),
        ("optimizer.schedule.at_epochs=[soon]", "Float"),
        ("strategy.s_lower=x", "Integer"),
        ("target.value=high", "Float"),
        ("scale.seeds=[a]", "Integer"),
        ("scenario.slow={a: 2.0}", "int"),
        ("jobs=many", "Integer"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_key_and_the_type(override: str, kind: str) -> None:
    line = line_of(override)
    key, _, given = override.partition("=")
    assert key in line
    assert kind in line
    assert given.strip("[]").split(",")[-1] in line or kind in ("int", "not Optional")


@pytest.mark.parametrize(
    ("overrides", "rule"),
    [
        (["seed=-1"], "seed must be in 0 .. 2^32 - 1, got -1"),
        (["seed=4294967296"], "seed must be in 0 .. 2^32 - 1, got 4294967296"),
        (["batch_size=0"], "batch_size must be >= 1, got 0"),
        (["epochs=0"], "epochs must be > 0 or null, got 0.0"),
        (["epochs=-1"], "epochs must be > 0 or null, got -1.0"),
        (["epochs=nan"], "epochs must be > 0 or null, got nan"),
        (["max_updates=0"], "max_updates must be > 0 or null, got 0"),
        (["max_time_s=-2"], "max_time_s must be > 0 or null, got -2.0"),
        (["eval_every_epochs=0"], "eval_every_epochs must be > 0, got 0.0"),
        (["threads=0"], "threads must be >= 1, got 0"),
        (["jobs=0"], "jobs must be >= 1 or null, got 0"),
        (["scale.seeds=[]"], "scale.seeds must differ, got []"),
        (["scale.seeds=[1,1]"], "scale.seeds must differ, got [1, 1]"),
        (["lr_clock=wall"], "lr_clock must be one of samples, server_updates, got wall"),
        (["async_gradient=sum"], "async_gradient must be one of mean, mean_over_workers, got sum"),
        (["momentum=nesterov"], "momentum must be one of torch, lr_inside, got nesterov"),
        (["device=tpu"], "device must be one of auto, cpu, cuda, got tpu"),
        (["target.metric=f1"], "target.metric must be one of accuracy, top5, loss, got f1"),
        (["tracker=wandb", "tracker.mode=on"], "tracker.mode must be offline or online, got on"),
        (["optimizer.lr=0"], "optimizer.lr must be > 0, got 0.0"),
        (["optimizer.lr=nan"], "optimizer.lr must be > 0, got nan"),
        (["optimizer.momentum=1"], "optimizer.momentum must be in [0, 1), got 1.0"),
        (["optimizer.weight_decay=-1"], "optimizer.weight_decay must be >= 0, got -1.0"),
        (["optimizer.schedule.factor=0"], "optimizer.schedule.factor must be > 0, got 0.0"),
        (["optimizer.schedule.at_epochs=[3,1]"], "optimizer.schedule.at_epochs must ascend, got [3.0, 1.0]"),
        (["model=resnet20", "model.depth=21"], "model.depth must be 6 n + 2 (8, 14, 20, ...), got 21"),
        (["model=resnet20", "model.width=0"], "model.width must be >= 1, got 0"),
        (["dataset.train_size=0"], "dataset.train_size must be >= 1 or null, got 0"),
        (["dataset=cifar10", "dataset.test_size=-5"], "dataset.test_size must be >= 1 or null, got -5"),
        (["dataset=glyphs10", "dataset.image_size=7"], "dataset.image_size must be >= 8, got 7"),
        (["dataset=glyphs10", "dataset.seed=-1"], "dataset.seed must be >= 0, got -1"),
        (["cluster.workers=0"], "cluster.workers must be >= 1, got 0"),
        (["cluster.network.latency_s=-1"], "cluster.network.latency_s must be >= 0, got -1.0"),
        (["cluster.network.latency_s=nan"], "cluster.network.latency_s must be >= 0, got nan"),
        (["cluster.jitter.std=-0.5"], "cluster.jitter: normal.std must be >= 0, got -0.5"),
        (["strategy.s_lower=-1"], "strategy.s_lower must be >= 0, got -1"),
        (["strategy.r_max=-1"], "strategy.r_max must be >= 0, got -1"),
        (["strategy.bound=soft"], "strategy.bound must be one of paper, hard, catchup, got 'soft'"),
        (["strategy=ssp", "strategy.staleness=-1"], "strategy.staleness must be >= 0, got -1"),
        (["epochs=null"], "one of epochs, max_updates, max_time_s must be set, got none"),
        (["cluster.shards=2"], "strategy=dssp needs one logical server: cluster.shards must be 1, got 2"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_value_out_of_range_is_refused_with_the_rule_and_what_was_given(overrides: list[str], rule: str) -> None:
    assert line_of(*overrides) == rule


@pytest.mark.parametrize("limit", ["epochs=inf", "max_time_s=inf"])
def test_a_limit_that_is_never_reached_is_no_limit(limit: str) -> None:
    line_of("epochs=null", limit)


@pytest.mark.parametrize("strategy", [name for name, kind in STRATEGIES.items() if not kind.single_server])
def test_strategies_without_one_logical_server_run_on_shards(strategy: str) -> None:
    assert compose([f"strategy={strategy}", "cluster.shards=2"])[0].cluster.shards == 2


def test_a_jitter_that_is_no_distribution_is_refused() -> None:
    assert line_of("cluster.jitter=0.05").startswith("cluster.jitter must be ")
    line = line_of("cluster.jitter.name=gauss")
    assert line.startswith("cluster.jitter.name must be one of constant, ")
    assert line.endswith("got 'gauss'")


@pytest.mark.parametrize("override", ["seed=0,1", "strategy.s_lower=1,2", "seed=range(0,3)"])
def test_a_sweep_without_m_is_refused_and_m_is_named(override: str) -> None:
    line = line_of(override)
    assert override in line
    assert "-m" in line


@pytest.mark.parametrize("override", ["strategy=bsp,asp", "model=lenet,resnet20"])
def test_a_sweep_over_a_group_without_m_is_refused(override: str) -> None:
    group, _, given = override.partition("=")
    line = line_of(override)
    assert given in line
    assert [choice for choice in choices(group) if choice not in line] == []


@pytest.mark.parametrize(
    ("override", "quoted"), [("seed", "seed"), ("seed=[1", "[1"), ("=3", "=3"), ("--seed=3", "--seed")]
)
def test_what_is_no_override_is_quoted_in_one_line(override: str, quoted: str) -> None:
    assert quoted in line_of(override)


@pytest.mark.parametrize("override", ["hydra.run.dir=elsewhere", "hydra/launcher=submitit", "cluster@foo=laptop"])
def test_hydras_own_keys_are_no_keys_of_ours(override: str) -> None:
    """They would do nothing, so they must not pass in silence."""
    assert override.partition("=")[0] in line_of(override)


# Identity.

CONFIGS = [
    [],
    ["strategy=ssp", "model=resnet20", "dataset=cifar10", "scenario=slow_worker", "tracker=wandb"],
    ["strategy=bsp", "dataset=glyphs100", "scenario=late_pulls", "cluster=gtx1060_1080ti", "max_updates=10"],
    ["gradients=false", "cluster.jitter=null", "scenario=exponential_20ms", "optimizer.schedule.at_epochs=[10,12]"],
    ["runner=local", "strategy=bsp"],
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
        case list():
            return [[*value, (value[-1] if value else 0) + 1.0]]
        case dict():
            return [{**value, 1: 2.5}]
        case None:
            return [7, Constant(0.5)]
    raise AssertionError(f"no other value known for {value!r}")


_CHOICES = [
    ("samples", "server_updates"),
    MOMENTUM_FORMS,
    METRICS,
    ("mean", "mean_over_workers"),
    ("auto", "cpu", "cuda"),
    ("paper", "hard", "catchup"),
    ("offline", "online"),
    ("server", "allreduce"),
    ("auto", "unix", "tcp"),
    ("relative", "absolute"),
    ("after", "during"),
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
    bound = {"cluster.shards"} if config.strategy.single_server else {"strategy.topology"}
    if config.runner.name == "local":  # keys that allow nothing else unless another one is changed, too
        bound |= {"gradients", "target.value", "runner.tls_cert", "runner.tls_key"}
    assert fixed <= bound
    identities = {path: other.identity for path, other in changed.items() if other is not None}
    same = {path for path, identity in identities.items() if identity == config.identity}
    assert same == {path for path in identities if any(f"{path}.".startswith(f"{key}.") for key in NOT_IN_IDENTITY)}
    assert len(set(identities.values()) - {config.identity}) == len(identities) - len(same), "each in its own way"


def test_every_key_of_the_written_list_exists() -> None:
    config, _ = compose(["dataset=cifar10", "runner=local"])
    for key in NOT_IN_IDENTITY:
        found(config, key)


@pytest.mark.parametrize(
    "word",
    ["tracker=wandb", "runner.events=false", "threads=2", "device=cpu", "dataset.root=x", "dataset.download=true"],
)
def test_the_place_the_machine_and_what_is_written_down_are_not_in_the_identity(word: str) -> None:
    plain = composed("dataset=cifar10")[0]
    other = compose(["dataset=cifar10", word])[0]
    assert other != plain
    assert other.identity == plain.identity


def test_where_and_how_to_go_about_it_is_no_part_of_the_run() -> None:
    words = ["results=elsewhere", "rerun=true", "jobs=3", "fail_fast=true", "debug=true", "scale=smoke"]
    config, invocation = compose(words)
    assert config == composed()[0]
    assert (invocation.results, invocation.rerun, invocation.jobs) == ("elsewhere", True, 3)
    assert (invocation.fail_fast, invocation.debug, invocation.scale.name) == (True, True, "smoke")


def test_the_command_line_is_quick_until_something_is_run() -> None:
    """torch (2 s) and hydra are imported where they are first needed."""
    code = "import sys, run; print([name for name in ('torch', 'hydra', 'sklearn') if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], cwd=CONF.parent, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


# The tables of the config are those of the code they stand for.


def test_the_schemas_tables_agree_with_the_code_they_name() -> None:
    assert tuple(field.name for field in dataclasses.fields(Metrics)) == METRICS
    assert optimizer.MOMENTUM_FORMS == MOMENTUM_FORMS
    assert set(MODELS) == set(NETWORKS)
    assert set(choices("strategy")) == set(STRATEGIES)
    assert set(choices("dataset")) == set(DATASETS)
    assert {composed(f"model={choice}")[0].model.name for choice in choices("model")} == set(MODELS)
    for group, table in (("optimizer", OPTIMIZERS), ("runner", RUNNERS), ("tracker", TRACKERS)):
        assert {getattr(composed(f"{group}={choice}")[0], group).name for choice in choices(group)} == set(table)


@pytest.mark.parametrize("choice", choices("strategy"))
def test_a_strategy_is_named_like_its_file_and_starts(choice: str) -> None:
    config, _ = composed(f"strategy={choice}")
    assert type(config.strategy) is STRATEGIES[choice]
    assert config.strategy.name == choice
    assert config.strategy.start(3).state_dict()


@pytest.mark.parametrize("choice", choices("dataset"))
def test_a_timing_only_run_counts_by_the_sizes_that_the_data_set_has(choice: str) -> None:
    config, _ = compose([f"dataset={choice}", "dataset.train_size=123"])
    assert config.dataset.num_train == 123
    if choice in ("digits", "glyphs10"):  # the others need files, or seconds
        whole, _ = compose([f"dataset={choice}"] + (["dataset.train_size=40"] if choice != "digits" else []))
        options = dataclasses.asdict(whole.dataset)
        del options["augment"], options["name"]
        loaded = DATASETS[choice](**options)
        assert whole.dataset.num_train == len(loaded.train_labels)
        channels, size, classes = whole.dataset.shape
        assert loaded.train_images.shape[1:] == (channels, size, size)
        assert loaded.num_classes == classes


def test_a_distribution_arrives_as_one() -> None:
    config, _ = compose(["scenario.compute_delay={name: pareto, minimum: 0.1, shape: 2.5}"])
    delay: Distribution = config.scenario.compute_delay
    assert delay.expectation() == pytest.approx(0.1 * 2.5 / 1.5)
    assert config.as_dict()["scenario"]["compute_delay"] == {"minimum": 0.1, "shape": 2.5, "name": "pareto"}


# Sweeps.


def test_a_sweep_is_the_product_in_order() -> None:
    assert sweep(["strategy=bsp,asp", "epochs=2", "seed=0,1"]) == [
        ["strategy=bsp", "epochs=2", "seed=0"],
        ["strategy=bsp", "epochs=2", "seed=1"],
        ["strategy=asp", "epochs=2", "seed=0"],
        ["strategy=asp", "epochs=2", "seed=1"],
    ]


def test_ranges_and_choices_are_swept_and_lists_are_not() -> None:
    assert sweep(["seed=range(0,3)"]) == [["seed=0"], ["seed=1"], ["seed=2"]]
    assert sweep(["seed=choice(4,9)"]) == [["seed=4"], ["seed=9"]]
    assert sweep(["optimizer.schedule.at_epochs=[1,2]"]) == [["optimizer.schedule.at_epochs=[1,2]"]]
    assert sweep([]) == [[]]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_sweep_has_as_many_different_runs_as_the_product_of_its_sizes(sizes: list[int]) -> None:
    keys = ["seed", "batch_size", "max_updates", "threads"][: len(sizes)]
    words = [f"{key}={','.join(map(str, range(1, size + 1)))}" for key, size in zip(keys, sizes, strict=True)]
    runs = sweep(words)
    expected = 1
    for size in sizes:
        expected *= size
    assert len({tuple(run) for run in runs}) == len(runs) == expected


def test_every_run_of_a_sweep_composes() -> None:
    configs = [compose(words)[0] for words in sweep(["strategy=bsp,ssp", "seed=3,4"])]
    seen = [(config.strategy.name, config.seed) for config in configs]
    assert seen == [("bsp", 3), ("bsp", 4), ("ssp", 3), ("ssp", 4)]


@pytest.mark.parametrize("override", ["seed=0,", "seed=[1", "seed=range(0,3,0)"])
def test_a_broken_sweep_is_refused_in_one_line(override: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        sweep([override])
    assert "\n" not in str(refused.value)
