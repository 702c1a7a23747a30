"""The schema of a run: frozen dataclasses that check their own ranges, tables name -> class, and composition."""

from syncline.config.checks import ConfigError
from syncline.config.composition import CONF, GROUPS, Invocation, ScaleConfig, choices, compose, compose_yaml, sweep
from syncline.config.datasets import DATASETS, CifarConfig, DatasetConfig, DigitsConfig, GlyphsConfig
from syncline.config.launchers import HereConfig, SlurmConfig
from syncline.config.models import MODELS, BertConfig, ModelConfig, ResnetConfig
from syncline.config.optimizers import OPTIMIZERS, AdamConfig, AdamWConfig, RmsPropConfig, ScheduleConfig, SgdConfig
from syncline.config.run import (
    ASYNC_GRADIENTS,
    MOMENTUM_FORMS,
    NOT_IN_IDENTITY,
    PRECISIONS,
    RunConfig,
    TargetConfig,
    content_here,
    from_plain,
    with_content,
)
from syncline.config.runners import (
    LiveConfig,
    LocalConfig,
    MultinodeConfig,
    NoTrackerConfig,
    ReplayConfig,
    SimulateConfig,
    WandbConfig,
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
    "AdamConfig",
    "AdamWConfig",
    "BertConfig",
    "CifarConfig",
    "ConfigError",
    "DatasetConfig",
    "DigitsConfig",
    "GlyphsConfig",
    "HereConfig",
    "Invocation",
    "LiveConfig",
    "LocalConfig",
    "ModelConfig",
    "MultinodeConfig",
    "NoTrackerConfig",
    "ReplayConfig",
    "ResnetConfig",
    "RmsPropConfig",
    "RunConfig",
    "ScaleConfig",
    "ScheduleConfig",
    "SgdConfig",
    "SimulateConfig",
    "SlurmConfig",
    "TargetConfig",
    "WandbConfig",
    "choices",
    "compose",
    "compose_yaml",
    "content_here",
    "from_plain",
    "sweep",
    "with_content",
]
