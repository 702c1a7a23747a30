"""Every mistake in a config is one line: what was given, what is allowed."""

import dataclasses

import pytest
from composing import line_of

from syncline.config import GROUPS, Invocation, RunConfig, choices, compose
from syncline.strategies import STRATEGIES


@pytest.mark.parametrize("group", [*GROUPS, "experiment"])
def test_an_unknown_choice_is_refused_with_the_allowed_ones(group: str) -> None:
    line = line_of(f"{group}=nonsense")
    assert line.startswith(f"{group} must be one of ")
    assert "nonsense" in line
    assert [choice for choice in choices(group) if choice not in line] == []


def test_an_unknown_key_at_the_top_is_refused_with_the_allowed_ones() -> None:
    for override in ("xyz=3", "+xyz=3", "++xyz=3"):
        line = line_of(override)
        assert line.startswith("xyz: unknown key")
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
        ("seed=abc", "a whole number"),
        ("batch_size=1.5", "a whole number"),
        ("epochs=long", "a number or null"),
        ("gradients=maybe", "true or false"),
        ("optimizer.lr=fast", "a number"),
        ("optimizer.lr=null", "a number"),
        ("cluster.gradient_s=[0.1,slow]", "a list such as [1.5, ...]"),
        ("cluster.network.bandwidth_gbps=wide", "a number or null"),
        ("optimizer.schedule.at_epochs=[soon]", "a list such as [1.5, ...]"),
        ("strategy.s_lower=x", "a whole number"),
        ("target.value=high", "a number or null"),
        ("scale.seeds=[a]", "a list such as [1, ...]"),
        ("scenario.slow={a: 2.0}", "a mapping such as {1: 1.5}"),
        ("jobs=many", "a whole number or null"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_key_and_the_type(override: str, kind: str) -> None:
    key, _, given = override.partition("=")
    assert line_of(override) == f"{key} must be {kind}, got {given}"


@pytest.mark.parametrize(
    ("overrides", "rule"),
    [
        (["seed=-1"], "seed must be in 0 .. 2^32 - 1, got -1"),
        (["seed=4294967296"], "seed must be in 0 .. 2^32 - 1, got 4294967296"),
        (["batch_size=0"], "batch_size must be >= 1, got 0"),
        (["compress=topk", "compress.density=0"], "compress.density must be in (0, 1], got 0.0"),
        (
            ["compress=sign", "compress.pulls=true", "strategy=ds_sync", "cluster.workers=4"],
            "compress.pulls must be false: strategy=ds_sync has no server here to pull from, got True",
        ),
        (
            ["compress=sign", "strategy=ds_sync", "strategy.impl=naive", "cluster.workers=4"],
            "compress must be none where strategy=ds_sync sends tensors one by one, got sign",
        ),
        (
            ["compress=sign", "compress.feedback=false", "strategy=ds_sync", "cluster.workers=4"],
            "compress.feedback must be true where replicas send each other changes: what one leaves out comes later, "
            "got False",
        ),
        (
            ["strategy=bsp", "strategy.topology=allreduce", "strategy.impl=overlap", "local.steps=2"],
            "local.steps must be 1, local.optimizer null, with strategy.impl=overlap, which sends parts early, got 2",
        ),
        (
            ["strategy=bsp", "strategy.topology=allreduce", "strategy.impl=overlap", "compress=int8"],
            "compress must be none with strategy.impl=overlap, which sends parts early, got int8",
        ),
        (
            ["strategy=bsp", "strategy.topology=allreduce", "strategy.impl=overlap", "optimizer.clip_norm=1"],
            "optimizer.clip_norm must be null with strategy.impl=overlap, which sends parts early, got 1.0",
        ),
        (
            ["strategy=bsp", "strategy.impl=overlap"],
            "strategy.impl=overlap needs strategy.topology=allreduce, got server",
        ),
        (
            ["strategy=ds_sync", "strategy.impl=overlap", "strategy.average=before_forward"],
            "strategy.impl=overlap needs strategy.average=after_step, got before_forward",
        ),
        (["strategy=ds_sync", "strategy.bucket_mb=-1"], "strategy.bucket_mb must be > 0, got -1.0"),
        (["strategy=asp", "push_bucket_mb=0"], "push_bucket_mb must be > 0 or null, got 0.0"),
        (
            ["strategy=ds_sync", "push_bucket_mb=1"],
            "push_bucket_mb must be null: strategy=ds_sync has no server here to push to, got 1.0",
        ),
        (
            ["strategy=k_sync", "push_bucket_mb=1"],
            "push_bucket_mb must be null: strategy=k_sync interrupts gradients, of which parts would have left, "
            "got 1.0",
        ),
        (
            ["strategy=psp", "push_bucket_mb=1"],
            "push_bucket_mb must be null: strategy=psp has a pull rule, which begins when a push is sent, got 1.0",
        ),
        (
            ["strategy=asp", "push_bucket_mb=1", "compress=topk"],
            "compress must be none with push_bucket_mb, which sends parts early, got topk",
        ),
        (
            ["strategy=asp", "push_bucket_mb=1", "scenario.push_delay={name: constant, value: 1.0}"],
            "scenario.push_delay must be empty with push_bucket_mb: parts of a push leave one after another, "
            "got Constant(value=1.0, name='constant')",
        ),
        (["strategy=bsp", "strategy.bucket_mb=0"], "strategy.bucket_mb must be > 0, got 0.0"),
        (
            ["cluster.ready=[0.5,0.4,1]"],
            "cluster.ready must be two or more ascending shares in [0, 1], the last one 1, got [0.5, 0.4, 1.0]",
        ),
        (["compress=sign", "compress.consensus=0"], "compress.consensus must be in (0, 1], got 0.0"),
        (["local.steps=0"], "local.steps must be >= 1, got 0"),
        (["local.after_epochs=-1"], "local.after_epochs must be >= 0, got -1.0"),
        (["local.optimizer=foo"], "local.optimizer must be {name: adam | adamw | rmsprop | sgd, ...} or null, got foo"),
        (["local.optimizer={name: sgd, lr: 0}"], "local.optimizer.lr must be > 0, got 0.0"),
        (["local=diloco", "local.optimizer.beta1=1"], "local.optimizer.beta1 must be in [0, 1), got 1.0"),
        (["local=diloco", "local.optimizer.lr=fast"], "local.optimizer.lr must be a number, got fast"),
        (
            ["local.steps=2", "optimizer=adam"],
            "local.optimizer must be set with optimizer=adam: without it steps are of plain SGD, got None",
        ),
        (
            ["local.steps=2", "dataset.sharing=shared"],
            "dataset.sharing must be partition with local.steps > 1 or local.optimizer, got shared",
        ),
        (
            ["local.optimizer={name: sgd, lr: 0.1}", "dataset.sharing=shared"],
            "dataset.sharing must be partition with local.steps > 1 or local.optimizer, got shared",
        ),
        (
            ["local=diloco", "optimizer.clip_norm=1"],
            "optimizer.clip_norm must be null with local.optimizer, whose clip_norm limits the gradients, got 1.0",
        ),
        (["epochs=0"], "epochs must be > 0 or null, got 0.0"),
        (["epochs=-1"], "epochs must be > 0 or null, got -1.0"),
        (["epochs=nan"], "epochs must be > 0 or null, got nan"),
        (["max_updates=0"], "max_updates must be > 0 or null, got 0"),
        (["max_time_s=-2"], "max_time_s must be > 0 or null, got -2.0"),
        (["eval_every_epochs=0"], "eval_every_epochs must be > 0, got 0.0"),
        (["threads=0"], "threads must be >= 1, got 0"),
        (["jobs=0"], "jobs must be >= 1 or null, got 0"),
        (
            ["cluster.jitter={name: empirical, values: [1, -1]}"],
            "cluster.jitter: empirical needs durations >= 0, got [-1.0]",
        ),
        (
            ["cluster.jitter={name: empirical, values: []}"],
            "cluster.jitter: empirical needs either values or path, got []",
        ),
        (
            ["tracker=wandb", "tracker.tags=[größe]"],
            "tracker.tags must be a list such as [abc, ...], got [größe] (words with other letters than those of "
            "ASCII, or with ~, need quotes)",
        ),
        (["scale.seeds=[]"], "scale.seeds must be one or more, which differ, got []"),
        (["scale.seeds=[1,1]"], "scale.seeds must be one or more, which differ, got [1, 1]"),
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
        
        (["cluster.shards=2"], "strategy=dssp needs one logical server: cluster.shards must be 1, got 2"),
        (["strategy=ds_sync", "cluster.shards=2"], "strategy=ds_sync has no server: cluster.shards must be 1, got 2"),
        (["cluster.message_tensors=0"], "cluster.message_tensors must be >= 1 or null, got 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_value_out_of_range_is_refused_with_the_rule_and_what_was_given(overrides: list[str], rule: str) -> None:
    assert line_of(*overrides) == rule


@pytest.mark.parametrize("limit", ["epochs=inf", "max_time_s=inf"])
def test_a_limit_that_is_never_reached_is_no_limit(limit: str) -> None:
    line_of("epochs=null", limit)


@pytest.mark.parametrize(
    "strategy", [name for name, kind in STRATEGIES.items() if not kind.single_server and kind().has_server]
)
def test_strategies_without_one_logical_server_run_on_shards(strategy: str) -> None:
    assert compose([f"strategy={strategy}", "cluster.shards=2"])[0].cluster.shards == 2


def test_a_jitter_that_is_no_distribution_is_refused() -> None:
    assert line_of("cluster.jitter=0.05").startswith("cluster.jitter must be ")
    line = line_of("cluster.jitter.name=gauss")
    assert line.startswith("cluster.jitter.name must be one of constant, ")
    assert line.endswith("got 'gauss'")


@pytest.mark.parametrize(
    "override", ["seed=0,1", "strategy.s_lower=1,2", "seed=range(0,3)", "strategy=bsp,asp", "model=lenet,resnet20"]
)
def test_a_sweep_without_m_is_refused_and_m_is_named(override: str) -> None:
    line = line_of(override)
    assert override in line
    assert "-m" in line


@pytest.mark.parametrize(
    ("override", "quoted"), [("seed", "seed"), ("seed=[1", "[1"), ("=3", "=3"), ("--seed=3", "--seed")]
)
def test_what_is_no_override_is_quoted_in_one_line(override: str, quoted: str) -> None:
    assert quoted in line_of(override)


@pytest.mark.parametrize("override", ["hydra.run.dir=elsewhere", "hydra/launcher=submitit", "cluster@foo=laptop"])
def test_hydras_own_keys_are_no_keys_of_ours(override: str) -> None:
    """They would do nothing, so they must not pass in silence."""
    assert override.partition("=")[0] in line_of(override)
