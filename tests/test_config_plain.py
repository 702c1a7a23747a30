"""A config as plain types and back: what a record holds is the whole run. And the ranges of what real runs add."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from composing import choosing, composed, line_of
from hypothesis import given
from hypothesis import strategies as st

from syncline.config import (
    GROUPS,
    ConfigError,
    LocalConfig,
    MultinodeConfig,
    ReplayConfig,
    RunConfig,
    choices,
    compose,
    from_plain,
)
from syncline.config.runners import places
from syncline.records.store import read_config, read_run_config
from syncline.records.writer import RecordWriter
from syncline.timing.distributions import Empirical, Exponential, Occasional, _numbers

RUN_GROUPS = [
    group for group in GROUPS if group not in ("scale", "launcher", "tune", "judge", "race")
]  # no part of what a run is
FILES = [(group, choice) for group in RUN_GROUPS for choice in choices(group)]


def config_of(*words: str) -> RunConfig:
    return composed(*words)[0]


def refusal_of(plain: Any) -> str:
    """The error that this config gives; it must be one line."""
    with pytest.raises(ConfigError, match=r"^a config of another version: ") as refused:
        from_plain(plain)
    line = str(refused.value)
    assert "\n" not in line
    return line


def assert_comes_back(config: RunConfig, tmp_path) -> None:
    """From its plain types, and from the file of a record."""
    RecordWriter(tmp_path / "record", config.as_dict(), with_events=False).close()
    for plain in (config.as_dict(), read_config(tmp_path / "record")):
        found = from_plain(plain)
        assert found == config
        assert repr(found) == repr(config), "the same classes all the way down"
        assert found.identity == config.identity
        assert found.as_dict() == config.as_dict()


@pytest.mark.parametrize(("group", "choice"), FILES, ids=str)
def test_every_choice_of_every_group_comes_back(group: str, choice: str, tmp_path) -> None:
    assert_comes_back(config_of(*choosing(group, choice)), tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["scenario.compute_delay={name: exponential, mean: 0.1, probability: 0.3}"],
        ["scenario.push_delay={name: empirical, values: [3, 1, 2]}"],
        ["scenario.pull_delay={name: empirical, values: [3, 1, 2], probability: 0.5}"],
        ["scenario.pull_delay={name: pareto, minimum: 0.1, shape: 2.5, probability: 0}"],
        ["cluster.jitter={name: empirical, values: [0.9, 1.1]}"],
        ["cluster.jitter={name: normal, mean: 1, std: 0.1}", "cluster.gradient_s=[0.1, 1e-7]", "cluster.workers=9"],
        ["cluster.jitter={name: shifted_exponential, shift: 0.5, scale: 0.5}", "scenario.slow={3: 2, 1: 1e3}"],
        ["cluster.network.bandwidth_gbps=10", "cluster.network.latency_s=1e-4", "cluster.message_bytes=1000000"],
        ["optimizer.lr=1e-5", "optimizer.schedule.at_epochs=[1, 2.5]", "epochs=1e8", "seed=4294967295"],
        ["model=resnet8", "model.width=3", "dataset=glyphs100", "dataset.train_size=null", "dataset.image_size=16"],
        ["strategy=dssp", "strategy.bound=hard", "strategy.r_max=0", "target.value=0.5", "target.metric=loss"],
        ["runner=local", "runner.evaluate=during", "target.value=0.5", "runner.tls_cert=a b", "runner.tls_key='1'"],
        ["runner=replay", "from=dssp-lenet-digits-s0-0123456789"],
        ["runner=local", "strategy=bsp", "strategy.topology=allreduce"],
        ["tracker=wandb", "tracker.project='null'", "tracker.mode=online"],
        ["gradients=false", "epochs=null", "max_updates=100", "max_time_s=3.5"],
    ],
    ids=" ".join,
)
def test_other_choices_come_back(words: list[str], tmp_path) -> None:
    assert_comes_back(config_of(*words), tmp_path)


def test_delays_come_back_as_what_they_are() -> None:
    config = config_of(
        "scenario.pull_delay={name: empirical, values: [0.5, 0.25], probability: 0.5}",
        "scenario.compute_delay={name: exponential, mean: 2}",
    )
    scenario = from_plain(yaml.safe_load(json.dumps(config.as_dict()))).scenario
    assert scenario.pull_delay == Occasional(0.5, Empirical((0.25, 0.5)))
    assert scenario.compute_delay == Exponential(2.0)


MEASURED = [
    "cluster.jitter={{name: empirical, path: {0}}}",
    "cluster.network.jitter={{name: empirical, path: {0}}}",
    "scenario.compute_delay={{name: empirical, path: {0}}}",
    "scenario.pull_delay={{name: empirical, path: {0}, probability: 0.5}}",
]


def measured_run(path: Path) -> RunConfig:
    return compose([word.format(path) for word in MEASURED])[0]


def test_measured_durations_are_identified_by_their_content(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    path.write_text("\n".join(map(str, np.random.default_rng(0).random(20_000))))
    config = measured_run(path)
    assert len(json.dumps(config.as_dict())) < 5000
    assert measured_run(path.rename(tmp_path / "moved.csv")).identity == config.identity
    (tmp_path / "moved.csv").write_text("0.25\n")
    assert measured_run(tmp_path / "moved.csv").identity != config.identity


def test_a_record_holds_the_durations_that_its_run_was_drawn_from(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    path.write_text("0.5\n0.25\n")
    config, folder = measured_run(path), tmp_path / "record"
    RecordWriter(folder, config.as_dict(), with_events=False).close()
    path.unlink()
    _numbers.cache_clear()
    assert str(tmp_path) not in (folder / "config.json").read_text(), "it can be moved"
    moved = folder.rename(tmp_path / "moved")
    found = from_plain(read_run_config(moved))
    assert found == config
    assert found.identity == config.identity
    for delay in (found.cluster.jitter, found.cluster.network.jitter, found.scenario.pull_delay.source):
        assert delay.sample.tolist() == [0.25, 0.5]
    RecordWriter(moved, found.as_dict(), with_events=False).close()
    assert from_plain(read_run_config(moved)).cluster.jitter.sample.tolist() == [0.25, 0.5], "made again from itself"


def test_a_trace_is_identified_by_its_content_and_kept_by_a_record(tmp_path: Path) -> None:
    path = tmp_path / "seconds.csv"
    path.write_text("0,1\n0.5,0.25\n0.75,\n")
    config = compose([f"cluster.jitter={{name: trace, path: {path}, relative: true}}"])[0]
    moved = path.rename(tmp_path / "moved.csv")
    assert compose([f"cluster.jitter={{name: trace, path: {moved}, relative: true}}"])[0].identity == config.identity
    assert compose([f"cluster.jitter={{name: trace, path: {moved}}}"])[0].identity != config.identity
    held = compose([f"cluster.jitter={{name: trace, path: {moved}, relative: true}}"])[0]
    RecordWriter(tmp_path / "record", held.as_dict(), with_events=False).close()
    moved.unlink()
    found = from_plain(read_run_config(tmp_path / "record"))
    assert found == held
    assert [column.tolist() for column in found.cluster.jitter.columns] == [[0.8, 1.2], [1.0]]


def test_a_few_values_keep_the_identity_from_before_files_had_checksums() -> None:
    assert config_of("cluster.jitter={name: empirical, values: [1, 2]}").identity == "dssp-lenet-digits-s0-59195510ca"


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
        ({"cluster": {"workers": 0}}, "cluster.workers must be >= 1, got 0"),
        ({"cluster": {"jitter": {"name": "gauss"}}}, "cluster.jitter.name must be one of"),
        ({"cluster": {"network": {"loss": 0.1}}}, "loss"),
        ({"scenario": {"compute_delay": {"source": 1, "probability": 1}}}, "mapping"),
        ({"scenario": {"compute_delay": {"source": {"name": "constant", "value": 1}}}}, "probability"),
        ({"scenario": {"slow": {"first": 2}}}, "first"),
        ({"runner": {"name": "slurm"}}, "slurm"),
        ({"runner": {"name": "local", "hang_s": "long"}}, ">"),
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


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("transport=pigeon", "runner.transport must be one of auto, unix, tcp, got pigeon"),
        ("pace=brisk", "runner.pace must be one of relative, absolute, got brisk"),
        ("evaluate=never", "runner.evaluate must be one of after, during, got never"),
        ("checkpoint_every_epochs=0", "runner.checkpoint_every_epochs must be > 0, got 0.0"),
        ("hang_s=-1", "runner.hang_s must be > 0, got -1.0"),
        ("hang_s=nan", "runner.hang_s must be > 0, got nan"),
        ("leave_s=0", "runner.leave_s must be > 0, got 0.0"),
        ("start_timeout_s=0", "runner.start_timeout_s must be > 0, got 0.0"),
        ("initial_workers=0", "runner.initial_workers must be in 1 .. 4, cluster.workers, or null, got 0"),
        ("initial_workers=5", "runner.initial_workers must be in 1 .. 4, cluster.workers, or null, got 5"),
        ("max_restarts=-1", "runner.max_restarts must be >= 0, got -1"),
        ("tls_cert=a.pem", "runner.tls_cert and runner.tls_key must both be set, or both be empty, got 'a.pem' and ''"),
        ("tls_key=a.pem", "runner.tls_cert and runner.tls_key must both be set, or both be empty, got '' and 'a.pem'"),
    ],
)
def test_what_is_out_of_range_is_refused_in_one_line(override: str, line: str) -> None:
    assert line_of("runner=local", f"runner.{override}") == line


def test_a_strategy_that_needs_all_workers_begins_with_all_of_them() -> None:
    line = "runner.initial_workers must be null: strategy=bsp needs all workers from the start, got 2"
    assert line_of("strategy=bsp", "runner=local", "runner.initial_workers=2") == line


def test_a_simulated_run_is_checkpointed_after_some_time() -> None:
    assert line_of("runner.checkpoint_every_s=0") == "runner.checkpoint_every_s must be > 0, got 0.0"


def test_the_file_of_real_runs_says_what_the_class_says() -> None:
    assert config_of("runner=local").runner == LocalConfig()


def test_a_target_is_only_met_by_evaluations_during_the_run() -> None:
    assert line_of("runner=local", "target.value=0.9") == "a target needs runner.evaluate=during, got after"
    assert config_of("runner=local", "target.value=0.9", "runner.evaluate=during").target.value == 0.9
    assert config_of("target.value=0.9").target.value == 0.9


def test_real_processes_learn() -> None:
    assert "gradients must be true" in line_of("runner=local", "gradients=false")


def test_real_processes_with_a_server_have_no_common_order_of_samples() -> None:
    line = line_of("runner=local", "dataset.sharing=shared")
    assert line == (
        "dataset.sharing must be partition for runner=local with a parameter server: "
        "its processes have no common order of beginning, got shared"
    )
    words = ["runner=local", "dataset.sharing=shared", "strategy=bsp", "strategy.topology=allreduce"]
    assert config_of(*words).dataset.sharing == "shared"


def test_from_is_short_for_the_source_of_a_replay() -> None:
    short, long = config_of("runner=replay", "from=abc"), config_of("runner=replay", "runner.source=abc")
    assert short.runner == ReplayConfig(source="abc")
    assert short == long
    assert "source" in line_of("from=abc"), "a simulation has none"


# Several hosts.


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nodes=2"], "runner.nodes must be 3, as many as runner.hosts, or null, got 2"),
        (["start=rsh"], "runner.start must be one of ssh, srun, print, command, got rsh"),
        (["start_command=x"], "runner.start_command goes with start=command, got 'x' with start=ssh"),
        (["start=command"], "runner.start_command goes with start=command, got '' with start=command"),
        (["start=print", "start_options=[-v]"], "runner.start_options must be empty unless start is ssh or srun, got"),
        (["workers_per_host=[1,2]"], "runner.workers_per_host must hold one number, 3 or none, got [1, 2]"),
        (["workers_per_host=[1,2,2]"], "runner.workers_per_host must come to cluster.workers = 4, got [1, 2, 2]"),
        (
            ["workers_per_host=[2,2,0]"],
            "every host must have a worker or a shard; without: runner.hosts number, got [2]",
        ),
        (["shards_on=moon"], "runner.shards_on must be one of workers, own, got moon"),
        (["shard_hosts=[1]"], "runner.shard_hosts must be empty unless shards_on=own, got [1]"),
        (["shards_on=own", "shard_hosts=[3]"], "runner.shard_hosts must be in 0 .. 2, got [3]"),
        (["ports=80-90"], "runner.ports must be LOW-HIGH in 1024 .. 65535 or empty, got 80-90"),
        (["ports=2000"], "runner.ports must be LOW-HIGH in 1024 .. 65535 or empty, got 2000"),
        (["address=node1"], "runner.address must be an IPv4 address or empty, got 'node1'"),
        (
            ["interface=10.0.0.1/8"],
            "runner.interface must be a name or an IPv4 network such as 10.0.0.0/16, got '10.0.0.1/8'",
        ),
        (["hosts=[a,a,b]"], "runner.hosts must differ, got ['a', 'a', 'b']"),
        (["hosts=[a,b,-oX]"], "runner.hosts must be names or addresses, got ['-oX']"),
    ],
    ids=str,
)
def test_what_does_not_go_together_over_several_hosts_is_refused_in_one_line(words: list[str], line: str) -> None:
    said = line_of("runner=multinode", "hosts=[a,b,c]", *(f"runner.{word}" for word in words))
    assert said.startswith(line)


def test_the_file_of_runs_over_several_hosts_says_what_the_class_says() -> None:
    assert config_of("runner=multinode").runner == MultinodeConfig()
    assert config_of("runner=multinode", "hosts=[a,b]").runner == MultinodeConfig(hosts=["a", "b"])


@given(st.data())
def test_every_worker_and_every_shard_is_on_one_host_and_none_has_nothing(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 6))
    workers, shards = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 4))
    on = data.draw(st.sampled_from(["workers", "own"]))
    runner = MultinodeConfig(nodes=nodes, shards_on=on)
    if (on == "own" and (shards == 0 or nodes == 1)) or workers < (nodes if on == "workers" else nodes - shards):
        with pytest.raises(ConfigError, match=r"must|needs"):
            places(runner, workers, shards)
        return
    made = places(runner, workers, shards)
    assert [worker for place in made for worker in place.workers] == list(range(workers))
    assert [shard for place in made for shard in place.shards] == list(range(shards))
    assert all(place.shards or place.workers for place in made)
    counts = [len(place.workers) for place in made if place.workers]
    assert max(counts) - min(counts) <= 1
    if on == "own":
        assert not any(place.workers and place.shards for place in made)


def test_where_the_parity_restarts_with_each_epoch_it_needs_two_steps() -> None:
    words = ["strategy=ds_sync", "strategy.parity=epoch", "cluster.workers=4", "batch_size=32"]
    assert line_of(*words, "dataset.train_size=255") == (
        "an epoch must have 2 steps of all workers or more for these options of the strategy: "
        "dataset=digits has 255 training samples, got 1.99219"
    )
    assert config_of(*words, "dataset.train_size=256").strategy.least_steps_an_epoch == 2
