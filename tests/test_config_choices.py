"""The files of every group compose, and the config's tables are those of the code they stand for."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import hydra
import pytest
import yaml
from composing import choosing, chosen, composed, leaves, line_of
from omegaconf import OmegaConf
from own import using

from syncline.assembly.data import load_dataset
from syncline.assembly.optimizers import build_optimizer, build_rate
from syncline.config import (
    CONF,
    DATASETS,
    GROUPS,
    MODELS,
    ConfigError,
    Invocation,
    JudgeConfig,
    RaceConfig,
    RunConfig,
    SlurmConfig,
    TuneConfig,
    choices,
    compose,
    compose_study,
    compose_yaml,
)
from syncline.config.optimizers import OPTIMIZERS, RMSPROP_FORMS, ScheduleConfig
from syncline.config.run import MOMENTUM_FORMS
from syncline.datasets.registry import DATASETS as LOADERS
from syncline.learning import optimizer, rmsprop, sgd
from syncline.learning.layout import Layout
from syncline.learning.schedule import build_schedule
from syncline.learning.task import TASKS
from syncline.metrics import LOWER_IS_BETTER, METRICS
from syncline.models import MODELS as NETWORKS
from syncline.strategies import STRATEGIES

# Every file of every group: test_config_plain.py composes each by itself.


@pytest.mark.parametrize("place", [0, 1, -1])
def test_choices_are_what_hydra_composes_from_all_of_them_at_once(place: int) -> None:
    words = [chosen(group, choices(group)[place]) for group in GROUPS]
    printed = dict(leaves(yaml.safe_load(compose_yaml(words))))
    cfg: Any = OmegaConf.to_container(hydra.compose("config", words), resolve=True)
    assert {key: printed[key] for key, _ in leaves(cfg)} == dict(leaves(cfg))


STUDIES = {"tune": TuneConfig, "judge": JudgeConfig, "race": RaceConfig}


@pytest.mark.parametrize("group", STUDIES)
def test_a_preset_of_a_study_has_all_its_keys_and_another_one_may_be_chosen(group: str, tmp_path: Path) -> None:
    kind = STUDIES[group]
    (preset,) = choices(group)
    content = yaml.safe_load((CONF / group / f"{preset}.yaml").read_text())
    assert set(content) == {field.name for field in dataclasses.fields(kind)}
    (tmp_path / group).mkdir()
    (tmp_path / group / "other.yaml").write_text("looks: [4, 8]\n" if group != "tune" else "points: 9\n")
    with using(tmp_path):
        chosen = compose_study(kind, group, preset, [f"{group}=other"])
    assert chosen == (kind(points=9) if group == "tune" else kind(looks=[4, 8]))
    with pytest.raises(ConfigError, match=f"{group} must be one of {preset}"):
        compose_study(kind, group, preset, [f"{group}=none"])


def test_no_folder_of_conf_is_without_a_group() -> None:
    folders = {path.name for path in CONF.iterdir() if path.is_dir()}
    assert folders == {*GROUPS, "experiment", *STUDIES}
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


def test_a_composition_leaves_nothing_behind_for_the_next() -> None:
    compose(["strategy=ssp", "seed=7", "cluster.network.latency_s=1"])
    line_of("strategy=ssp", "strategy.s_lower=1")
    assert compose([]) == compose([])
    assert compose([])[0].strategy.name == "dssp"


# The tables of the config are those of the code they stand for.


def test_the_schemas_tables_agree_with_the_code_they_name() -> None:
    assert set(METRICS) == set(TASKS)
    assert set().union(*METRICS.values()) >= LOWER_IS_BETTER
    learned = set().union(*(kind.tasks for kind in MODELS.values()))
    assert learned == {*TASKS} - {"regression"}, "mlp learns what the data are for"
    assert set().union(*(kind.tasks for kind in DATASETS.values())) == set(TASKS)
    assert sgd.MOMENTUM_FORMS == MOMENTUM_FORMS
    assert set(OPTIMIZERS) == set(optimizer.OPTIMIZERS)
    assert RMSPROP_FORMS == rmsprop.RMSPROP_FORMS
    taken = inspect.signature(build_schedule).parameters
    assert {"base", *dataclasses.asdict(ScheduleConfig())} == set(taken)
    assert set(MODELS) == set(NETWORKS)
    assert set(choices("strategy")) == set(STRATEGIES)
    assert set(choices("dataset")) == set(DATASETS) == set(LOADERS)
    for group in ("model", "optimizer", "runner", "tracker"):
        files = [yaml.safe_load((CONF / group / f"{choice}.yaml").read_text()) for choice in choices(group)]
        assert {file["name"] for file in files} == set(GROUPS[group])


@pytest.mark.parametrize("choice", choices("strategy"))
def test_a_strategy_is_named_like_its_file_has_the_same_defaults_and_starts(choice: str) -> None:
    config, _ = composed(f"strategy={choice}")
    assert config.strategy == STRATEGIES[choice]()
    assert config.strategy.name == choice
    if config.strategy.has_server:
        assert config.strategy.start(3).state_dict()
    elif config.strategy.collective is not None:
        assert list(config.strategy.collective.of_turn(0, config.cluster.workers))
    else:
        assert config.strategy.neighbours.degree(config.cluster.workers)


@pytest.mark.parametrize("choice", choices("optimizer"))
def test_an_optimizer_is_built_of_its_file_and_begins_with_its_rate(choice: str) -> None:
    config, _ = composed(f"optimizer={choice}")
    assert build_optimizer(config, Layout.of({}))
    assert build_rate(config, 100)(0, 0) == config.optimizer.lr


@pytest.mark.parametrize("choice", choices("dataset"))
def test_a_timing_only_run_counts_by_the_sizes_that_the_data_set_has(choice: str) -> None:
    config, _ = compose([*choosing("dataset", choice), "dataset.train_size=123"])
    assert config.dataset.num_train == 123


@pytest.mark.parametrize(
    "choice", ["digits", "glyphs10", "mnist_digits", "ctr_synthetic", "pydoc_text", "qa_synthetic"]
)
def test_what_the_config_says_of_a_data_set_is_true(choice: str) -> None:
    drawn = [] if choice in ("digits", "pydoc_text") else ["dataset.train_size=40", "dataset.test_size=10"]
    config, _ = compose([*choosing("dataset", choice), *drawn])
    loaded = load_dataset(config)
    assert config.dataset.shape == loaded.shape
    if choice != "qa_synthetic":  # whose questions may take several rows
        assert config.dataset.num_train == loaded.num_train


def test_slurm_may_be_asked_for_as_a_runner_and_does_not_change_what_a_run_is() -> None:
    config, invocation = composed(
        "runner=slurm", "runner.partition=gpu", "runner.max_parallel=3", "runner.events=false"
    )
    assert invocation.launcher == SlurmConfig(partition="gpu", max_parallel=3)
    assert config == composed("runner.events=false")[0]
    assert composed("launcher=slurm", "launcher.partition=gpu", "launcher.max_parallel=3")[1] == invocation
