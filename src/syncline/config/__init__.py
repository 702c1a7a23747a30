"""The schema of a run: frozen dataclasses that check their own ranges, tables name -> class, and composition."""

from syncline.checks import ConfigError
from syncline.config.composition import apart, compose, compose_study, compose_yaml, divided, sweep
from syncline.config.datasets import DATASETS, DigitsConfig, GlyphsConfig, OwnDatasetConfig
from syncline.config.invocation import Invocation
from syncline.config.models import MODELS, BertConfig, ModelConfig, ResnetConfig
from syncline.config.optimizers import OptimizerConfig, SgdConfig
from syncline.config.overrides import is_swept, split
from syncline.config.own import OwnPart, users_fault
from syncline.config.parts import CONF, GROUPS, choices
from syncline.config.run import RunConfig, TargetConfig, content_here, from_plain
from syncline.config.runners import LiveConfig, LocalConfig, MultinodeConfig, ReplayConfig, SimulateConfig, SlurmConfig
from syncline.config.studies import JudgeConfig, RaceConfig, RatesConfig, TuneConfig, of_whole, seconds
from syncline.config.tasks import OwnTaskConfig

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
    "RatesConfig",
    "ReplayConfig",
    "ResnetConfig",
    "RunConfig",
    "SgdConfig",
    "SimulateConfig",
    "SlurmConfig",
    "TargetConfig",
    "TuneConfig",
    "apart",
    "choices",
    "compose",
    "compose_study",
    "compose_yaml",
    "content_here",
    "divided",
    "from_plain",
    "is_swept",
    "of_whole",
    "seconds",
    "split",
    "sweep",
    "users_fault",
]
