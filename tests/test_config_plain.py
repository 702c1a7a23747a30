"""A config as plain types and back: what a record holds is the whole run. And the ranges of what real runs add."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from composing import assert_refused, choosing, composed, misses
from hypothesis import given
from hypothesis import strategies as st

from syncline.config import GROUPS, ConfigError, MultinodeConfig, ReplayConfig, RunConfig, choices, compose, from_plain
from syncline.records.store import read_config, read_run_config
from syncline.records.writer import RecordWriter
from syncline.timing.distributions import _columns
from tests.refusals import refusal

FILES = [(group, choice) for group in GROUPS for choice in choices(group)]


def config_of(*words: str) -> RunConfig:
    return composed(*words)[0]


def refusal_of(plain: Any) -> str:
    """The error that this config gives; it must be one line."""
    line = refusal(ConfigError, from_plain, plain)
    assert line.startswith("a config of another version: ")
    return line


def assert_comes_back(config: RunConfig, plain: dict[str, Any]) -> None:
    found = from_plain(plain)
    assert found == config
    assert repr(found) == repr(config), "the same classes all the way down"
    assert found.identity == config.identity
    assert found.as_dict() == config.as_dict()


@pytest.mark.parametrize(("group", "choice"), FILES, ids=str)
def test_all_that_a_file_of_a_group_sets_arrives_and_comes_back(group: str, choice: str) -> None:
    words = choosing(group, choice)
    config, invocation = composed(*words)
    assert misses(words, config, invocation) == []
    assert_comes_back(config, json.loads(json.dumps(config.as_dict())))


@pytest.mark.parametrize(
    "words",
    [
        ["scenario.compute_delay={name: exponential, mean: 0.1, probability: 0.3}"],
        ["scenario.push_delay={name: trace, values: [3, 1, 2]}"],
        ["scenario.pull_delay={name: trace, values: [3, 1, 2], block: 1, probability: 0.5}"],
        ["scenario.pull_delay={name: pareto, minimum: 0.1, shape: 2.5, probability: 0}"],
        ["cluster.jitter={name: trace, values: [0.9, 1.1]}"],
        ["cluster.jitter={name: normal, mean: 1, std: 0.1}", "cluster.gradient_s=[0.1, 1e-7]", "cluster.workers=9"],
        ["cluster.jitter={name: shifted_exponential, shift: 0.5, scale: 0.5}", "scenario.slow={3: 2, 1: 1e3}"],
        ["cluster.network.bandwidth_gbps=10", "cluster.network.latency_s=1e-4", "cluster.message_bytes=1000000"],
        ["optimizer.lr=1e-5", "optimizer.schedule.at_epochs=[1, 2.5]", "epochs=1e8", "seed=4294967295"],
        ["model=resnet8", "model.width=3", "dataset=glyphs100", "dataset.train_size=null", "dataset.image_size=16"],
        ["strategy=dssp", "strategy.bound=hard", "strategy.r_max=0", "target.value=0.5", "target.metric=loss"],
        ["runner=local", "runner.evaluate=during", "target.value=0.5"],
        ["runner=replay", "from=dssp-lenet-digits-s0-0123456789"],
        ["runner=local", "strategy=bsp", "strategy.topology=allreduce", "dataset.sharing=shared"],
        ["tracker=wandb", "tracker.project='null'", "tracker.mode=online"],
        ["gradients=false", "epochs=null", "max_updates=100", "max_time_s=3.5"],
    ],
    ids=" ".join,
)
def test_other_choices_come_back_also_from_the_file_of_a_record(words: list[str], tmp_path: Path) -> None:
    config = config_of(*words)
    RecordWriter(tmp_path / "record", config.as_dict(), with_events=False).close()
    for plain in (config.as_dict(), read_config(tmp_path / "record")):
        assert_comes_back(config, plain)


MEASURED = [
    "cluster.jitter={{name: trace, path: {0}}}",
    "cluster.network.jitter={{name: trace, path: {0}}}",
    "scenario.compute_delay={{name: trace, path: {0}}}",
    "scenario.pull_delay={{name: trace, path: {0}, block: 1, probability: 0.5}}",
]


def measured_run(path: Path) -> RunConfig:
    return compose([word.format(path) for word in MEASURED])[0]


def test_measured_durations_are_identified_by_their_content(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    path.write_text("\n".join(["0", *map(str, np.random.default_rng(0).random(20_000))]))
    config = measured_run(path)
    assert len(json.dumps(config.as_dict())) < 5000
    assert measured_run(path.rename(tmp_path / "moved.csv")).identity == config.identity
    (tmp_path / "moved.csv").write_text("0\n0.25\n")
    assert measured_run(tmp_path / "moved.csv").identity != config.identity


def test_a_record_holds_the_durations_that_its_run_was_drawn_from(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    path.write_text("0\n0.5\n0.25\n")
    config, folder = measured_run(path), tmp_path / "record"
    RecordWriter(folder, config.as_dict(), with_events=False).close()
    path.unlink()
    _columns.cache_clear()
    assert str(tmp_path) not in (folder / "config.json").read_text(), "it can be moved"
    moved = folder.rename(tmp_path / "moved")
    found = from_plain(read_run_config(moved))
    assert found == config
    assert found.identity == config.identity
    for delay in (found.cluster.jitter, found.cluster.network.jitter, found.scenario.pull_delay.source):
        assert [column.tolist() for column in delay.columns] == [[0.5, 0.25]]
    RecordWriter(moved, found.as_dict(), with_events=False).close()
    (column,) = from_plain(read_run_config(moved)).cluster.jitter.columns
    assert column.tolist() == [0.5, 0.25], "made again from itself"


def test_relative_durations_are_another_run_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "seconds.csv"
    path.write_text("0,1\n0.5,0.25\n0.75,\n")
    config, absolute = (
        config_of(f"cluster.jitter={{name: trace, path: {path}, relative: {each}}}") for each in ("true", "false")
    )
    assert config.identity != absolute.identity
    RecordWriter(tmp_path / "record", config.as_dict(), with_events=False).close()
    path.unlink()
    found = from_plain(read_run_config(tmp_path / "record"))
    assert found == config
    assert [column.tolist() for column in found.cluster.jitter.columns] == [[0.8, 1.2], [1.0]]


def test_a_few_values_keep_the_identity_from_before_files_had_checksums() -> None:
    assert config_of("cluster.jitter={name: trace, values: [1, 2]}").identity == "dssp-lenet-digits-s0-22d2d6b105"


def test_the_plain_types_are_left_as_they_are() -> None:
    plain = config_of("scenario=late_pulls", "runner=local").as_dict()
    before = json.dumps(plain)
    from_plain(plain)
    assert json.dumps(plain) == before


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"beam_width": 3}, "beam_width"),
        ({"model": {"name": "vgg"}}, "vgg"),
        ({"model": {"name": "lenet", "depth": 3}}, "depth"),
        ({"model": {}}, "name"),
        ({"model": {"name": 3}}, "3"),
        ({"model": "lenet"}, "indices"),
        ({"model": None}, "None"),
        ({"cluster": None}, "None"),
        ({"cluster": {"workers": 0}}, "cluster.workers must be in 1 .. 100,000, got 0"),
        ({"cluster": {"jitter": {"name": "gauss"}}}, "cluster.jitter.name must be one of"),
        ({"cluster": {"network": {"loss": 0.1}}}, "loss"),
        ({"scenario": {"compute_delay": {"source": 1, "probability": 1}}}, "mapping"),
        ({"scenario": {"compute_delay": {"source": {"name": "constant", "value": 1}}}}, "probability"),
        ({"scenario": {"slow": {"first": 2}}}, "first"),
        ({"runner": {"name": "slurm"}}, "slurm"),
        ({"runner": {"name": "local", "hang_s": "long"}}, "<"),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"seed": "zero"}, "<="),
    ],
    ids=str,
)
def test_a_config_of_another_version_is_refused_in_one_line(change: dict[str, Any], word: str) -> None:
    assert word in refusal_of({**config_of().as_dict(), **change})


@pytest.mark.parametrize("plain", [None, 3, "config", [1]], ids=repr)
def test_what_is_no_config_is_refused_in_one_line(plain: Any) -> None:
    refusal_of(plain)


# What runs of real processes add.


def test_from_is_short_for_the_source_of_a_replay() -> None:
    short, long = config_of("runner=replay", "from=abc"), config_of("runner=replay", "runner.source=abc")
    assert short.runner == ReplayConfig(source="abc")
    assert short == long
    assert_refused(["from=abc"], "runner.source")  # a simulation has none


# Several hosts.


def test_hosts_is_short_for_those_of_the_runner() -> None:
    assert config_of("runner=multinode", "hosts=[a,b]").runner == MultinodeConfig(hosts=["a", "b"])


@given(nodes=st.integers(1, 6), num_ranks=st.integers(1, 12))
def test_hosts_have_ranks_as_evenly_as_possible(nodes: int, num_ranks: int) -> None:
    runner = MultinodeConfig(nodes=nodes)
    if num_ranks < nodes:
        with pytest.raises(ConfigError, match=f"must be at most {num_ranks}, a rank each"):
            runner.ranks(num_ranks)
        return
    counts = runner.ranks(num_ranks)
    assert (len(counts), sum(counts)) == (nodes, num_ranks)
    assert max(counts) - min(counts) <= 1


def test_hosts_have_as_many_ranks_as_the_user_says() -> None:
    assert MultinodeConfig(nodes=3, nproc_per_node=[1, 2, 1]).ranks(4) == [1, 2, 1]
    assert MultinodeConfig(nodes=3, nproc_per_node=[2]).ranks(6) == [2, 2, 2]


def test_where_the_parity_restarts_with_each_epoch_it_needs_two_steps() -> None:
    words = ["strategy=ds_sync", "strategy.parity=epoch", "cluster.workers=4", "batch_size=32"]
    assert_refused([*words, "dataset.train_size=255"], "an epoch must have 2 steps of all workers or more", "255")
    assert config_of(*words, "dataset.train_size=256").strategy.collective.least_steps_an_epoch == 2
