"""What may be written after `syncline run`, and the one line that each mistake gets."""

from itertools import product

import pytest
from composing import assert_refused, line_of
from examples import scaled
from hypothesis import example, given
from hypothesis import strategies as st

from runners.commands import call
from syncline.config import GROUPS, ConfigError, compose, composition, sweep
from syncline.config.words import pieces

# Plain text is taken literally.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("/tmp/jörg", "/tmp/jörg"),
        ("~/x", "HOME/x"),
        ("~", "HOME"),
        ("'~/x'", "~/x"),
        ("/a b/c=d,e(f)[g{h:i\\j", "/a b/c=d,e(f)[g{h:i\\j"),
        ("it's", "it's"),
        ("[1,", "[1,"),
        ("range(1,2)", "range(1,2)"),
        ("'null'", "null"),
        ('"a, b"', "a, b"),
        ("1e3", "1e3"),
        ("${strategy.bound}/x", "paper/x"),
        ("${oc.env:HOME}", "HOME"),
    ],
)
def test_a_path_is_literal_text(monkeypatch: pytest.MonkeyPatch, text: str, value: str) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert compose([f"results={text}"])[1].results == value.replace("HOME", "/home/ann")


def test_a_path_of_a_run_is_text_too_but_for_the_comma_that_sweeps() -> None:
    words = [
        "runner=multinode",
        "runner.nodes=2",
        "runner.start=command",
        "runner.start_command=/ä/c d",
        "runner.interface='a,b'",
    ]
    runner = compose(words)[0].runner
    assert (runner.start_command, runner.interface) == ("/ä/c d", "a,b")


# Numbers, lists and mappings are read by the types of their keys.


@pytest.mark.parametrize(
    ("word", "same"),
    [
        ("max_updates=1e3", "max_updates=1000"),
        ("max_updates=1_000", "max_updates=1000"),
        ("seed=7.0", "seed=7"),
        ("epochs=1_0", "epochs=10"),
        ("gradients=No", "gradients=false"),
        ("gradients=0", "gradients=false"),
        ("jobs=NULL", "jobs=null"),
        ("cluster.gradient_s=0.1", "cluster.gradient_s=[0.1]"),
        ("scale.seeds=7", "scale.seeds=[7]"),
        ("cluster.network={latency_s: 1e-3}", "cluster.network.latency_s=0.001"),
        ("cluster.network={jitter: {name: constant, value: 1}}", "cluster.network.jitter={name: constant, value: 1}"),
        ("scenario.slow={1:2}", "scenario.slow={1: 2.0}"),
        ("seed=${batch_size}", "seed=32"),
        ("cluster.gradient_s=[${batch_size},1]", "cluster.gradient_s=[32,1]"),
        ("scenario.slow={1: ${batch_size}}", "scenario.slow={1: 32}"),
        ("cluster.jitter.std=${eval_every_epochs}", "cluster.jitter.std=1"),
    ],
)
def test_another_way_to_write_it_is_the_same_run(word: str, same: str) -> None:
    assert repr(compose([word])) == repr(compose([same]))


def test_interpolations_are_of_the_whole_config_in_any_order() -> None:
    words = ["seed=${batch_size}", "batch_size=${max_updates}", "max_updates=9"]
    config, _ = compose(words)
    assert (config.seed, config.batch_size) == (9, 9)
    assert compose(words[::-1])[0] == config


# Each mistake gets one line: the key, what was given, what is allowed.


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("seed", "'seed' is not key=value, such as seed=1"),
        ("~model", "~model: nothing can be deleted; write model=VALUE, or leave it out for the default"),
        (
            "cluster.gradient_s=0.1,0.2",
            "cluster.gradient_s=0.1,0.2 holds several values; add -m to make a run of each, "
            "or write cluster.gradient_s=[0.1,0.2] for one",
        ),
        ("seed=abc", "seed must be a whole number, got abc"),
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
            "optimizer must be one of adam, adamw, nesterov, rmsprop, sgd; got 'adm'; did you mean adam or adamw?",
        ),
        (
            "seed=${nope}",
            "seed=${nope} cannot be resolved; write ${KEY} of another key, or ${oc.env:NAME} of a variable that is set",
        ),
        ("device=a\nb", "device must be one of auto, cpu, cuda, got a\\nb"),
    ],
)
def test_a_mistake_of_each_kind_as_its_user_reads_it(word: str, line: str) -> None:
    assert line_of(word) == line


@pytest.mark.parametrize("word", ["=3", "", "[1"])
def test_what_is_no_override_is_quoted(word: str) -> None:
    assert word in line_of(word)


@pytest.mark.parametrize("group", [*GROUPS, "seed"])
def test_nothing_is_deleted_and_no_part_is_renamed(group: str) -> None:
    assert_refused([f"~{group}"], f"~{group}", "nothing can be deleted", f"{group}=VALUE")
    if group in GROUPS:
        assert_refused([f"{group}.name=x"], f"{group}.name cannot be set", f"write {group}=x")


@pytest.mark.parametrize(
    ("word", "otherwise"),
    [
        ("strategy=bsp,asp", ""),
        ("strategy.s_lower=1,2", ""),
        ("seed=range(0,3)", ""),
        ("seed=choice(1)", ""),
        ("precision=float32,x", "precision=\"'float32,x'\" for one"),
    ],
)
def test_several_values_are_for_sweeps(word: str, otherwise: str) -> None:
    assert_refused([word], word, "holds several values", "add -m", otherwise)


@pytest.mark.parametrize(
    ("word", "allowed"),
    [
        ("seed=${oc.env:NOPE}", "${oc.env:NAME} of a variable that is set"),
        ("seed=${seed}", "${KEY} of another key"),
        ("results=${", "${KEY} of another key"),
        ("cluster.jitter.std=${x", "${KEY} of another key"),
        ("seed=${strategy.bound}", "must be a whole number"),
        ("scenario.slow=${seed}", "must be a mapping such as {1: 1.5}"),
        ("cluster.network=${oc.env:NOPE,4}", "must be {latency_s: ..., bandwidth_gbps: ..., "),
    ],
)
def test_an_interpolation_without_a_fitting_value_is_refused(word: str, allowed: str) -> None:
    key, _, text = word.partition("=")
    assert_refused([word], key.removesuffix(".std"), allowed, text)


@pytest.mark.parametrize("broken", ["results=${", "max_updates=${nope}", "cluster.jitter.mean=${cluster.jitter.mean}"])
def test_of_several_interpolations_the_broken_one_is_named(broken: str) -> None:
    assert line_of("seed=${batch_size}", broken).startswith(broken.split(".mean")[0])


# Sweeps.


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]),
        ("a", ["a"]),
        ("a, b", ["a", "b"]),
        ("[1,2],[3]", ["[1,2]", "[3]"]),
        ("{a: (1,2)},'x,y'", ["{a: (1,2)}", "'x,y'"]),
        ("it's,that's", ["it's", "that's"]),
        ("['a,]',b],c", ["['a,]',b]", "c"]),
        ("a],b", ["a]", "b"]),
        ("[a,b", ["[a,b"]),
    ],
)
def test_commas_outside_of_brackets_and_quotes_separate_values(text: str, parts: list[str]) -> None:
    assert pieces(text) == parts


@scaled(30)
@given(st.lists(st.integers(1, 4), max_size=4))
def test_a_sweep_is_the_product_in_order(sizes: list[int]) -> None:
    keys = ["seed", "batch_size", "max_updates", "threads"]
    values = [[f"{key}={value}" for value in range(1, size + 1)] for key, size in zip(keys, sizes, strict=False)]
    words = [f"{key}={','.join(map(str, range(1, size + 1)))}" for key, size in zip(keys, sizes, strict=False)]
    assert sweep(words) == [list(run) for run in product(*values)]


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("seed=range(3)", ["0", "1", "2"]),
        ("seed=range(4,0,-2)", ["4", "2"]),
        ("optimizer.lr=range(0.1,0.35,0.1)", ["0.1", "0.2", "0.3"]),
        ("max_updates=range(1e3,3e3,1e3)", ["1000", "2000"]),
        ("strategy=choice(bsp,asp)", ["bsp", "asp"]),
        ("cluster.jitter={name: constant, value: 1},null", ["{name: constant, value: 1}", "null"]),
        ("optimizer.schedule.at_epochs=[1,2]", ["[1,2]"]),
    ],
)
def test_a_sweep_has_these_values(word: str, values: list[str]) -> None:
    key = word.partition("=")[0]
    assert sweep([f"+{word}"]) == [[f"{key}={value}"] for value in values]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("seed=range(0,1e9)", ["1,000,000,000 runs", "100,000 at most"]),
        ("seed=range(0,1000) batch_size=range(1,102)", ["101,000 runs", "100,000 at most"]),
        *(
            (f"seed=range({span})", ["range(FIRST,END) or range(FIRST,END,STEP) of numbers, STEP not 0"])
            for span in ("0,3,0", "", "a", "nan", "0,1,2,3", "0,3,nan")
        ),
        ("seed=0,", ["a value is missing beside a comma"]),
        ("seed=0 ~model", ["~model", "nothing can be deleted"]),
    ],
)
def test_a_broken_or_endless_sweep_is_refused_before_it_is_expanded(words: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        sweep(words.split())
    line = str(refused.value)
    assert words.split()[-1] in line
    assert [part for part in parts if part not in line] == []


def test_the_longest_sweep_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "MOST_RUNS", 6)
    assert len(sweep(["seed=range(0,3)", "batch_size=1,2"])) == 6
    with pytest.raises(ConfigError, match="7 runs"):
        sweep(["seed=range(0,7)"])


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
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        call(["run", *words.split()])
    line = str(refused.value)
    assert "\n" not in line
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
    "'a", "bsp", "lenet", "${oc.env:HOME}", "[" * 500, "{name: empirical, values: [a]}", "[[1]]", "'é'",
]  # fmt: skip
WORDS = st.one_of(
    st.builds("{}={}".format, st.sampled_from([*KEYS, *BELOW]), st.sampled_from(TEXTS)),
    st.builds("{}={}".format, st.sampled_from([*KEYS, *BELOW]), st.text(max_size=12)),
    st.text(alphabet="abs.=,~+-@[]{}()'\"$:\\ é\n0159", max_size=20),
    st.text(max_size=10),
)


@scaled(200)
@given(st.lists(WORDS, max_size=4))
@example(["cluster.network=${seed}", "cluster.network.latency_s=1"])
@example(["cluster.jitter=null", "cluster.jitter.mean=1"])
@example(["cluster.jitter={name: normal, mean: " + "9" * 400 + ", std: 0}"])
def test_any_words_compose_or_are_refused_in_one_line(words: list[str]) -> None:
    for ask in (compose, sweep):
        try:
            ask(words)
        except ConfigError as refused:
            line = str(refused)
            assert line
            assert line.isprintable()
