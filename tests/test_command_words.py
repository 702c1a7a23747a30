"""What may be written after `python run.py`, and the one line that each mistake gets."""

import pytest
from composing import line_of
from examples import scaled
from hypothesis import example, given
from hypothesis import strategies as st

from runners import command_line
from syncline.config import GROUPS, ConfigError, choices, compose, sweep
from syncline.config.optimizers import OPTIMIZERS
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
    words = ["runner=local", "runner.tls_cert=/ä/c d.pem", "runner.tls_key='a,b'"]
    runner = compose(words)[0].runner
    assert (runner.tls_cert, runner.tls_key) == ("/ä/c d.pem", "a,b")


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
        ("cluster.gradient_s=[${epochs},1]", "cluster.gradient_s=[30,1]"),
        ("scenario.slow={1: ${epochs}}", "scenario.slow={1: 30}"),
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

NETWORK = "{latency_s: ..., bandwidth_gbps: ..., jitter: ..., sharing: ..., later_weight: ...}"
UNRESOLVED = "cannot be resolved; write ${KEY} of another key, or ${oc.env:NAME} of a variable that is set"
SEVERAL = "holds several values; add -m to make a run of each"
DELETED = "nothing can be deleted; write"
LOCAL = f"local.optimizer must be {{name: {' | '.join(OPTIMIZERS)}, ...}} or null"
DSSP_TAKES = "strategy takes s_lower, r_max, bound"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        # No key=value.
        ("seed", "'seed' is not key=value, such as seed=1"),
        ("=3", "'=3' is not key=value, such as seed=1"),
        ("", "'' is not key=value, such as seed=1"),
        ("results=", "results must be a folder, got nothing"),
        ("cluster.jitter.std=${x", f"cluster.jitter={{'name': 'normal', 'mean': 1.0, 'std': '${{x'}} {UNRESOLVED}"),
        *(
            (f"~{group}", f"~{group}: {DELETED} {group}=VALUE, or leave it out for the default")
            for group in (*GROUPS, "seed")
        ),
        # Several values.
        ("strategy=bsp,asp", f"strategy=bsp,asp {SEVERAL}"),
        ("seed=range(0,3)", f"seed=range(0,3) {SEVERAL}"),
        ("seed=choice(1)", f"seed=choice(1) {SEVERAL}"),
        ("precision=float32,x", f"precision=float32,x {SEVERAL}, or write precision=\"'float32,x'\" for one"),
        (
            "cluster.gradient_s=0.1,0.2",
            f"cluster.gradient_s=0.1,0.2 {SEVERAL}, or write cluster.gradient_s=[0.1,0.2] for one",
        ),
        ("jobs=1,2", "jobs must be a whole number or null, got 1,2"),
        # Values of another type.
        ("seed=abc", "seed must be a whole number, got abc"),
        ("seed=1.5", "seed must be a whole number, got 1.5"),
        ("seed=null", "seed must be a whole number, got null"),
        ("seed=true", "seed must be a whole number, got true"),
        ("seed=", "seed must be a whole number, got ''"),
        ("seed=inf", "seed must be a whole number, got inf"),
        ("seed=[1]", "seed must be a whole number, got [1]"),
        ("max_updates=1e400", "max_updates must be a whole number or null, got 1e400"),
        ("epochs=abc", "epochs must be a number or null, got abc"),
        ("epochs={a: 1}", "epochs must be a number or null, got {a: 1}"),
        ("gradients=maybe", "gradients must be true or false, got maybe"),
        ("results=null", "results must be text, got null"),
        ("results=???", "results must be text, got ???"),
        ("target=null", "target must be {metric: ..., value: ...}, got null"),
        ("cluster.network=[1]", f"cluster.network must be {NETWORK}, got [1]"),
        ("cluster.network={latency_s: x}", "cluster.network.latency_s must be a number, got {latency_s: x}"),
        ("cluster.gradient_s=[1,", "cluster.gradient_s must be a list such as [1.5, ...], got [1,"),
        ("cluster.gradient_s=[0.1,slow]", "cluster.gradient_s must be a list such as [1.5, ...], got [0.1,slow]"),
        ("scenario.slow=[1]", "scenario.slow must be a mapping such as {1: 1.5}, got [1]"),
        ("scenario.slow={a: 2}", "scenario.slow must be a mapping such as {1: 1.5}, got {a: 2}"),
        ("cluster.jitter=[1,", "cluster.jitter must be text, a number, [a list] or {name: value}, got [1,"),
        ("cluster.jitter=0.1", "cluster.jitter must be null or {name: <distribution>, ...}, got 0.1"),
        # Unknown keys.
        ("workers=6", "workers: unknown key; did you mean cluster.workers=6?"),
        ("lr=0.1", "lr: unknown key; did you mean optimizer.lr=0.1?"),
        ("ptimizer.lr=1", "ptimizer.lr: unknown key; did you mean optimizer.lr=1?"),
        ("sede=3", "sede: unknown key; did you mean seed=3?"),
        (
            "strategy.staleness=6",
            f"strategy.staleness: unknown key; {DSSP_TAKES}; strategy.staleness needs strategy=ssp",
        ),
        (
            "strategy.stalenes=6",
            f"strategy.stalenes: unknown key; {DSSP_TAKES}; did you mean strategy.staleness=6 with strategy=ssp?",
        ),
        ("stratgy=bsp", "stratgy: unknown key; did you mean strategy=bsp?"),
        ("experimnt=dssp", "experimnt: unknown key; did you mean experiment=dssp?"),
        ("hydra/launcher=x", "hydra/launcher: unknown key; did you mean launcher=x?"),
        ("cluster@foo=laptop", "cluster@foo: unknown key; did you mean cluster=laptop?"),
        ("strategy.=6", f"strategy.: unknown key; {DSSP_TAKES}"),
        (
            "model.depth=20",
            "model.depth: unknown key; model takes no keys; model.depth needs model=resnet110, resnet20, resnet32, ...",
        ),
        ("seed.foo=3", "seed.foo: unknown key; seed must be a whole number"),
        ("scenario.slow.0=3", "scenario.slow.0: unknown key; scenario.slow must be a mapping such as {1: 1.5}"),
        (
            "cluster.gradient_s.0=1",
            "cluster.gradient_s.0: unknown key; cluster.gradient_s must be a list such as [1.5, ...]",
        ),
        ("cluster.jitter.a=1", "cluster.jitter.a: unknown; normal takes mean, std"),
        *((f"{group}.name=x", f"{group}.name cannot be set; write {group}=x") for group in GROUPS),
        # Unknown choices.
        ("cluster=5", f"cluster must be one of {', '.join(choices('cluster'))}; got '5'"),
        ("optimizer={}", "optimizer must be one of adam, adamw, nesterov, rmsprop, sgd; got '{}'"),
        (
            "optimizer=adm",
            "optimizer must be one of adam, adamw, nesterov, rmsprop, sgd; got 'adm'; did you mean adam or adamw?",
        ),
        (
            "model=resnet11O",
            f"model must be one of {', '.join(choices('model'))}; got 'resnet11O'; did you mean resnet110 or resnet8?",
        ),
        (
            "scale=smoke,laptop",
            "scale must be one of gpu, laptop, paper, smoke, workstation; got 'smoke,laptop'; did you mean laptop?",
        ),
        # Interpolations.
        ("seed=${nope}", f"seed=${{nope}} {UNRESOLVED}"),
        ("seed=${oc.env:NOPE}", f"seed=${{oc.env:NOPE}} {UNRESOLVED}"),
        ("seed=${seed}", f"seed=${{seed}} {UNRESOLVED}"),
        ("results=${", f"results=${{ {UNRESOLVED}"),
        ("seed=${strategy.bound}", "seed must be a whole number, got ${strategy.bound}"),
        ("scenario.slow=${seed}", "scenario.slow must be a mapping such as {1: 1.5}, got ${seed}"),
        ("cluster.network=${oc.env:NOPE,4}", f"cluster.network must be {NETWORK}, got ${{oc.env:NOPE,4}}"),
        # Nothing breaks the line.
        ("device=a\nb", "device must be one of auto, cpu, cuda, got a\\nb"),
    ],
)
def test_a_mistake_is_one_line_with_the_key_what_was_given_and_what_is_allowed(words: str, line: str) -> None:
    assert line_of(words) == line


@pytest.mark.parametrize("broken", ["results=${", "max_updates=${nope}", "cluster.jitter.mean=${cluster.jitter.mean}"])
def test_of_several_interpolations_the_broken_one_is_named(broken: str) -> None:
    assert line_of("seed=${batch_size}", broken).startswith(broken.split(".mean")[0])


@pytest.mark.parametrize("word", ["hydra.x=", "hydra.run.dir=x", "experiment.x=3", "xyz=1"])
def test_a_key_unlike_any_other_is_refused_with_the_known_ones(word: str) -> None:
    line = line_of(word)
    assert line.startswith(f"{word.partition('=')[0]}: unknown key; the top level takes model, dataset, ")
    assert line.endswith(", results, rerun, jobs, fail_fast, debug, experiment")


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


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("seed=range(3)", ["0", "1", "2"]),
        ("seed=range(4,0,-2)", ["4", "2"]),
        ("optimizer.lr=range(0.1,0.35,0.1)", ["0.1", "0.2", "0.3"]),
        ("max_updates=range(1e3,3e3,1e3)", ["1000", "2000"]),
        ("strategy=choice(bsp,asp)", ["bsp", "asp"]),
        ("cluster.jitter={name: constant, value: 1},null", ["{name: constant, value: 1}", "null"]),
        ("results=a,b", ["a,b"]),
    ],
)
def test_a_sweep_has_these_values(word: str, values: list[str]) -> None:
    key = word.partition("=")[0]
    assert sweep([f"+{word}"]) == [[f"{key}={value}"] for value in values]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("seed=range(0,1e9)", "seed=range(0,1e9): 1,000,000,000 runs; a sweep may have 100,000 at most"),
        (
            "seed=range(0,1000) batch_size=range(1,102)",
            "seed=range(0,1000) batch_size=range(1,102): 101,000 runs; a sweep may have 100,000 at most",
        ),
        *(
            (
                f"seed=range({span})",
                f"seed=range({span}): a range is range(FIRST,END) or range(FIRST,END,STEP) of numbers, STEP not 0",
            )
            for span in ("0,3,0", "", "a", "nan", "0,1,2,3", "0,3,nan")
        ),
        ("seed=0,", "seed=0,: a value is missing beside a comma"),
        ("seed=0 ~model", f"~model: {DELETED} model=VALUE, or leave it out for the default"),
    ],
)
def test_a_broken_or_endless_sweep_is_refused_before_it_is_expanded(words: str, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sweep(words.split())
    assert str(refused.value) == line


def test_the_longest_sweep_is_allowed() -> None:
    assert len(sweep(["seed=range(0,1e5)"])) == 100_000


# Options.

ALLOWED = "-m, --multirun, --status, --cfg, --version, -h, --help, --plan, --runs, --config-dir, and key=value"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--hlep", f"unknown option --hlep; allowed: {ALLOWED}; did you mean --help?"),
        ("--multi=3", f"unknown option --multi=3; allowed: {ALLOWED}; did you mean --multirun?"),
        ("-x", f"unknown option -x; allowed: {ALLOWED}"),
        ("--plan", "argument --plan: expected one argument"),
        ("--cfg=3", "argument --cfg: ignored explicit argument '3'"),
        ("--runs 0:1", "--runs goes with --plan FILE"),
        ("--plan x --runs garbage", "--runs must be FIRST:END, counted from 0, got garbage"),
        ("--plan x -m", "--plan goes with none of -m, --status, --cfg"),
        (
            "--plan x strategy=ssp results=there",
            "--plan FILE goes with results=, jobs=, rerun=, fail_fast=, debug= alone, got strategy=ssp",
        ),
        ("--cfg -m seed=0,1", "--cfg goes with none of -m, --status, --cfg"),
        ("-m seed=range(0,0)", "no runs in seed=range(0,0)"),
    ],
)
def test_a_mistaken_option_is_one_line(words: str, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        command_line.main(words.split())
    assert str(refused.value) == line


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


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["local=diloco", "local.optimizer.name=[adam]"], f"{LOCAL}, got ['adam']"),
        (["local=diloco", "local.optimizer=1.5"], f"{LOCAL}, got 1.5"),
        (["+judge=claims", f"judge.looks=[{10**20}]"], f"judge.looks must be <= 1,000,000,000, got {10**20}"),
    ],
)
def test_a_mistake_in_a_chosen_part_is_one_line(words: list[str], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        compose(words)
    assert str(refused.value) == line
