"""The schema of a run: frozen dataclasses that check their own ranges, tables name -> class, and composition."""

from syncline.config.checks import ConfigError
from syncline.config.composition import compose, compose_yaml, divided, sweep
from syncline.config.datasets import DATASETS, DigitsConfig, GlyphsConfig, OwnDatasetConfig
from syncline.config.invocation import Invocation
from syncline.config.judging import JudgeConfig
from syncline.config.models import MODELS, BertConfig, ModelConfig, ResnetConfig
from syncline.config.optimizers import OptimizerConfig, SgdConfig
from syncline.config.overrides import is_swept, split
from syncline.config.own import OwnPart, users_fault
from syncline.config.parts import CONF, GROUPS, choices
from syncline.config.racing import RaceConfig, of_whole
from syncline.config.run import RunConfig, TargetConfig, content_here, from_plain
from syncline.config.runners import LiveConfig, LocalConfig, MultinodeConfig, ReplayConfig, SimulateConfig, SlurmConfig
from syncline.config.tasks import OwnTaskConfig
from syncline.config.tuning import TuneConfig

__all__ = [
    "CONF",
    "DATASETS",
    "GROUPS",
    "MODELS",
    "BertConfig",
    "ConfigError",
    "DigitsConfig",
    "GlyphsConfig",
    "Invocation",
    "JudgeConfig",
    "LiveConfig",
    "LocalConfig",
    "ModelConfig",
    "MultinodeConfig",
    "OptimizerConfig",
    "OwnDatasetConfig",
    "OwnPart",
    "OwnTaskConfig",
    "RaceConfig",
    "ReplayConfig",
    "ResnetConfig",
    "RunConfig",
    "SgdConfig",
    "SimulateConfig",
    "SlurmConfig",
    "TargetConfig",
    "TuneConfig",
    "choices",
    "compose",
    "compose_yaml",
    "content_here",
    "divided",
    "from_plain",
    "is_swept",
    "of_whole",
    "split",
    "sweep",
    "users_fault",
]
