"""The schema of a run: frozen dataclasses that check their own ranges, tables name -> class, and composition."""

from syncline.config.checks import ConfigError
from syncline.config.composition import CONF, GROUPS, Invocation, choices, compose, compose_yaml, sweep
from syncline.config.datasets import DATASETS, CifarConfig, DigitsConfig, GlyphsConfig
from syncline.config.launchers import SlurmConfig
from syncline.config.models import MODELS, BertConfig, ModelConfig, ResnetConfig
from syncline.config.optimizers import OPTIMIZERS, ScheduleConfig, SgdConfig
from syncline.config.run import (
    ASYNC_GRADIENTS,
    MOMENTUM_FORMS,
    NOT_IN_IDENTITY,
    PRECISIONS,
    RunConfig,
    TargetConfig,
    content_here,
    from_plain,
)
from syncline.config.runners import (
    LiveConfig,
    LocalConfig,
    MultinodeConfig,
    NoTrackerConfig,
    ReplayConfig,
    SimulateConfig,
)

__all__ = [
    "ASYNC_GRADIENTS",
    "CONF",
    "DATASETS",
    "GROUPS",
    "MODELS",
    "MOMENTUM_FORMS",
    "NOT_IN_IDENTITY",
    "OPTIMIZERS",
    "PRECISIONS",
    "BertConfig",
    "CifarConfig",
    "ConfigError",
    "DigitsConfig",
    "GlyphsConfig",
    "Invocation",
    "LiveConfig",
    "LocalConfig",
    "ModelConfig",
    "MultinodeConfig",
    "NoTrackerConfig",
    "ReplayConfig",
    "ResnetConfig",
    "RunConfig",
    "ScheduleConfig",
    "SgdConfig",
    "SimulateConfig",
    "SlurmConfig",
    "TargetConfig",
    "choices",
    "compose",
    "compose_yaml",
    "content_here",
    "from_plain",
    "sweep",
]
