"""What may be written after `syncline run`: Hydra's overrides and sweeps, and the one line that each mistake gets."""

from itertools import product
from typing import Any

import pytest
from composing import assert_refused, line_of
from examples import scaled
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st

from runners.commands import call
from syncline.config import GROUPS, ConfigError, choices, compose, composition, sweep
from tests.refusals import refusal

# Overrides of Hydra's documentation ("Basic Override syntax", "Extended Override syntax"), with keys of ours.


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("results=hello world", "hello world"),
        ("results='hello, world'", "hello, world"),
        ("results='a[10]: \\'b\\''", "a[10]: 'b'"),
        ("results=a\\,b\\=c\\ ", "a,b=c "),
        ("results=10", "10"),
        ("results=${strategy.bound}/${oc.env:HOME}", "paper//home/ann"),
        ("results=~/my-runs", "/home/ann/my-runs"),  # as in a shell
        ("results='~/my-runs'", "~/my-runs"),
        ("results=/tmp/jörg", "/tmp/jörg"),
        ("jobs=1_000", 1000),
        ("jobs=NULL", None),
        ("jobs=int('10')", 10),
        ("debug=TrUe", True),
        ("++debug=true", True),
        ("~jobs", None),
    ],
)
def test_a_value_is_what_hydra_reads(monkeypatch: pytest.MonkeyPatch, word: str, value: Any) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert getattr(compose([word])[1], word.lstrip("+~").partition("=")[0]) == value


@pytest.mark.parametrize(
    ("word", "same"),
    [
        ("++seed=3", "seed=3"),
        ("+max_updates=9", "max_updates=9"),  # it is null
        ("~optimizer.momentum", "optimizer.momentum=0"),  # the default of its class
        ("~optimizer.momentum=0.9", "optimizer.momentum=0"),
        ("epochs=1e1", "epochs=10.0"),
        ("gradients=bool(0)", "gradients=false"),
        ("cluster.network={latency_s: 1e-3}", "cluster.network.latency_s=0.001"),
        ("cluster.network={jitter: {name: constant, value: 1}}", "cluster.network.jitter={name: constant, value: 1}"),
        ("+scenario.slow={1:2}", "scenario.slow={1: 2.0}"),
        ("seed=${batch_size}", "seed=32"),
        ("cluster.gradient_s=[${batch_size},1]", "cluster.gradient_s=[32,1]"),
        ("scenario.slow={1: ${batch_size}}", "scenario.slow={1: 32}"),
        ("cluster.jitter.std=${eval_every_epochs}", "cluster.jitter.std=1"),
    ],
)
def test_another_way_to_write_it_is_the_same_run(word: str, same: str) -> None:
    assert repr(compose([word])) == repr(compose([same]))


def test_a_mapping_is_merged_and_a_distribution_replaced() -> None:
    config, _ = compose(["scenario.slow={1: 2}", "scenario.slow={2: 3}", "cluster.jitter={name: exponential, mean: 1}"])
    assert config.scenario.slow == {1: 2.0, 2: 3.0}
    assert config.as_dict()["cluster"]["jitter"] == {"name": "exponential", "mean": 1}


def test_interpolations_are_of_the_whole_config_in_any_order() -> None:
    words = ["seed=${batch_size}", "batch_size=${max_updates}", "max_updates=9"]
    config, _ = compose(words)
    assert (config.seed, config.batch_size) == (9, 9)
    assert compose(words[::-1])[0] == config


# Sweeps.


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("strategy=bsp,asp", ["bsp", "asp"]),
        ("strategy=choice(bsp,asp)", ["bsp", "asp"]),
        ("optimizer=glob(adam*)", ["adam", "adamw"]),
        ("optimizer=glob([a*,s*],exclude=*w)", ["adam", "sgd"]),
        ("seed=range(3)", ["0", "1", "2"]),
        ("seed=range(4,0,-2)", ["4", "2"]),
        ("optimizer.lr=range(0,10,3.3)", ["0.0", "3.3", "6.6", "9.9"]),
        ("seed=sort(3,1,2,reverse=true)", ["3", "2", "1"]),
        ("seed=tag(some,choice(1,2))", ["1", "2"]),
        ("optimizer.schedule.at_epochs=[1,2],[3]", ["[1,2]", "[3]"]),
        ("cluster.jitter={name:constant,value:1},null", ["{name:constant,value:1}", "null"]),
        ("results='a,b'", ["'a,b'"]),
    ],
)
def test_a_sweep_has_the_values_that_hydra_gives(word: str, values: list[str]) -> None:
    key = word.partition("=")[0]
    assert sweep([word]) == [[f"{key}={value}"] for value in values]
    if "glob" not in word:  # which needs the groups of a config
        (runs,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides([word]), None)
        assert sweep([word]) == runs


@scaled(30)
@given(st.lists(st.integers(1, 4), max_size=4))
def test_a_sweep_is_the_product_in_order(sizes: list[int]) -> None:
    keys = ["seed", "batch_size", "max_updates", "threads"]
    values = [[f"{key}={value}" for value in range(1, size + 1)] for key, size in zip(keys, sizes, strict=False)]
    words = [f"{key}={','.join(map(str, range(1, size + 1)))}" for key, size in zip(keys, sizes, strict=False)]
    assert sweep(words) == [list(run) for run in product(*values)]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("seed=range(0,1e9)", ["100,000 runs at most"]),
        ("seed=range(0,1000) batch_size=range(1,102)", ["100,000 runs at most"]),
        *((f"seed=range({span})", ["range(FIRST,END)", "STEP not 0"]) for span in ("0,3,0", "0,nan", "0,3,nan")),
        ("seed=range(a)", ["start", "Union[int, float]"]),
        ("seed=interval(0,1)", ["range(FIRST,END,STEP) or choice(A,B)"]),
        ("seed=sum(0,1)", ["Unknown function 'sum'", "choice"]),
        ("optimizer=glob(x*)", ["must match some of adam, "]),
        ("seed=0,", ["cannot be read"]),
        ("jobs=1,2", ["jobs must have one value"]),
    ],
)
def test_a_broken_or_endless_sweep_is_refused_before_it_is_expanded(words: str, parts: list[str]) -> None:
    line = refusal(ConfigError, sweep, words.split())
    assert [part for part in parts if part not in line] == []


def test_the_longest_sweep_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "MOST_RUNS", 6)
    assert len(sweep(["seed=range(0,3)", "batch_size=1,2"])) == 6
    with pytest.raises(ConfigError, match="6 runs at most"):
        sweep(["seed=range(0,7)"])


# Each mistake gets one line: the key, what was given, what is allowed.


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("seed", "'seed' is not key=value, such as seed=1"),
        (
            "cluster.gradient_s=0.1,0.2",
            "cluster.gradient_s=0.1,0.2 holds several values; run -m makes a run of each, "
            "or write cluster.gradient_s=[0.1,0.2] for one",
        ),
        ("strategy=bsp,asp", "strategy=bsp,asp holds several values; run -m makes a run of each"),
        (
            "precision=float32,x",
            "precision=float32,x holds several values; run -m makes a run of each, "
            "or write precision=\"'float32,x'\" for one",
        ),
        ("seed=abc", "seed must be a whole number, got abc"),
        (
            "results=a&b",
            "results=a&b cannot be read: brackets must be closed, and text with other characters than letters, "
            "digits and /-\\+.$%*@?|: quoted, as in results=\"'a&b'\"",
        ),
        (
            "strategy.stalenes=6",
            "strategy.stalenes: unknown key; strategy takes s_lower, r_max, bound; "
            "did you mean strategy.staleness=6 with strategy=ssp?",
        ),
        (
            "model.depth=20",
            "model.depth: unknown key; model takes no keys; model.depth needs model=resnet110, resnet20, resnet32, ...",
        ),
        (
            "optimizer=adm",
            "optimizer must be one of adam, adamw, delayed_nesterov, nesterov, rmsprop, sgd; got 'adm'; "
            "did you mean adam or adamw?",
        ),
        (
            "seed=${nope}",
            "seed=${nope} cannot be resolved; write ${KEY} of another key, or ${oc.env:NAME} of a variable that is set",
        ),
        ("+seed=3", "+seed=3: + adds a key that is not set, and seed is 0; write seed=3"),
        ("device=tpu", "device must be one of auto, cpu, cuda, got tpu"),
    ],
)
def test_a_mistake_of_each_kind_as_its_user_reads_it(word: str, line: str) -> None:
    assert line_of(word) == line


@pytest.mark.parametrize(
    "word", ["=3", "", "[1", "=", "seed==3", "seed=[1,", "seed={a", "seed='1", "seed=${", "é=1", "seed=[é"]
)
def test_what_is_no_override_is_quoted(word: str) -> None:
    assert word in line_of(word)


@pytest.mark.parametrize("word", ["hydra.run.dir=x", "hydra/launcher=x", "hydra/sweeper=x", "hydra.job.chdir=true"])
def test_of_hydras_own_settings_is_said_what_does_it_here(word: str) -> None:
    assert_refused([word], word, "results=", "launcher=", "-m")


@pytest.mark.parametrize("group", GROUPS)
def test_no_choice_is_deleted_or_renamed_and_its_sign_is_that_of_hydra(group: str) -> None:
    choice = choices(group)[0]
    words = {f"{group}={choice}", f"+{group}={choice}"}
    (refused,) = (word for word in words if not composes(word))
    assert_refused([refused], refused, "write ", *(words - {refused}))
    assert_refused([f"~{group}"], f"~{group}", "leave it out for the default")
    if refused.startswith("+"):
        assert_refused([f"{group}.name=x"], f"{group}.name cannot be set", f"write {group}=x")


def composes(word: str) -> bool:
    """Whether its sign is right; what else must be chosen with it does not matter."""
    try:
        compose([word])
    except ConfigError as error:
        return "+ is for" not in str(error)
    return True


@pytest.mark.parametrize(
    ("word", "allowed"),
    [
        ("seed=${oc.env:NOPE}", "${oc.env:NAME} of a variable that is set"),
        ("seed=${seed}", "${KEY} of another key"),
        ("seed=${strategy.bound}", "must be a whole number"),
        ("scenario.slow=${seed}", "must be a mapping such as {1: 1.5}"),
        ("cluster.network=${oc.env:NOPE,4}", "must be {latency_s: ..., bandwidth_gbps: ..., "),
    ],
)
def test_an_interpolation_without_a_fitting_value_is_refused(word: str, allowed: str) -> None:
    key, _, text = word.partition("=")
    assert_refused([word], key, allowed, text)


@pytest.mark.parametrize("broken", ["max_updates=${nope}", "cluster.jitter.mean=${cluster.jitter.mean}"])
def test_of_several_interpolations_the_broken_one_is_named(broken: str) -> None:
    assert line_of("seed=${batch_size}", broken).startswith(broken)


# Options.

ALLOWED = "its options are -h, --help, -m, --multirun, --cfg, --plan, --runs, --config-dir"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("--hlep", ["syncline run takes no --hlep", ALLOWED, "did you mean --help?"]),
        ("--multi=3", ["syncline run takes no --multi=3", ALLOWED, "did you mean --multirun?"]),
        ("-x", ["syncline run takes no -x", ALLOWED]),
        ("--plan", ["argument --plan"]),
        ("--cfg=3", ["argument --cfg", "'3'"]),
        ("--runs 0:1", ["--runs goes with --plan FILE"]),
        ("--plan x --runs garbage", ["--runs must be FIRST:END", "got garbage"]),
        ("--plan x -m", ["-m, --cfg and --plan exclude each other"]),
        ("--plan x strategy=ssp results=there", ["results=, jobs=, rerun=, fail_fast=, debug= alone", "strategy=ssp"]),
        ("--cfg -m seed=0,1", ["-m, --cfg and --plan exclude each other"]),
        ("-m seed=range(0,0)", ["no runs in seed=range(0,0)"]),
    ],
)
def test_a_mistaken_option_is_one_line(words: str, parts: list[str]) -> None:
    line = refusal(ValueError, call, ["run", *words.split()])
    assert [part for part in parts if part not in line] == []


# Any other words either compose or are refused in one line.

KEYS = [*GROUPS, "seed", "epochs", "gradients", "results", "target", "cluster.network", "cluster.gradient_s"]
BELOW = [
    "cluster.jitter",
    "cluster.jitter.mean",
    "scenario.slow",
    "scenario.push_delay",
    "strategy.bound",
    "hosts",
    "~",
]
TEXTS = [
    "", "1", "-1e3", "nan", "inf", "1e400", "null", "true", "abc", "~/x", "a,b", "[1,2]", "[1,", "{}", "{a: 1}", "???",
    "{1: 2}", "{name: constant, value: 1}", "{name: normal, probability: a}", "${seed}", "${nope}", "${", "range(0,3)",
    "'a", "bsp", "lenet", "${oc.env:HOME}", "[" * 500, "{name: trace, values: [a]}", "[[1]]", "'é'", "glob(*)",
]  # fmt: skip
WORDS = st.one_of(
    st.builds("{}{}={}".format, st.sampled_from(["", "+", "~"]), st.sampled_from(KEYS + BELOW), st.sampled_from(TEXTS)),
    st.builds("{}={}".format, st.sampled_from([*KEYS, *BELOW]), st.text(max_size=12)),
    st.text(alphabet="abs.=,~+-@[]{}()'\"$:\\ é\n0159", max_size=20),
    st.text(max_size=10),
)


@scaled(200)
@given(st.lists(WORDS, max_size=4))
@example(["cluster.network=${seed}", "cluster.network.latency_s=1"])
@example(["cluster.jitter=null", "cluster.jitter.mean=1"])
@example(["cluster.jitter={name: normal, mean: " + "9" * 400 + ", std: 0}"])
@example(["~scenario.slow.1", "~cluster.network"])
def test_any_words_compose_or_are_refused_in_one_line(words: list[str]) -> None:
    for ask in (compose, sweep):
        try:
            ask(words)
        except ConfigError as refused:
            line = str(refused)
            assert line
            assert line.isprintable()
