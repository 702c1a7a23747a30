"""The parameters that a shard keeps, and its rule for pushes."""

from dataclasses import asdict

from syncline.assembly.optimizers import build_optimizer, build_rate
from syncline.config import ConfigError, OwnPart, RunConfig
from syncline.config.updates import UpdateConfig
from syncline.learning.flat import FlatModule
from syncline.learning.layout import Layout, blocks
from syncline.learning.parameters import Parameters, Version
from syncline.learning.update import RULES, UpdateRule


def build_update(config: RunConfig) -> UpdateRule:
    """What a shard makes of the pushes of an update. Raises ConfigError: the user's own is no UpdateRule."""
    own: UpdateConfig = config.update
    if not isinstance(own, OwnPart):
        options = asdict(own)
        return RULES[options.pop("name")](**options)
    rule = own.made()
    if not isinstance(rule, UpdateRule):
        must = f"{own._target_} must return a syncline.learning.update.UpdateRule"
        raise ConfigError(f"update={own.name}: {must}, got {type(rule).__name__}")
    return rule


def shard_blocks(config: RunConfig, layout: Layout) -> list[slice]:
    """The block of each shard, of nearly equal size; of whole tensors, where the optimizer looks at tensors.

    Raises:
        ConfigError: there are fewer tensors than shards.
    """
    num_shards = config.cluster.shards if config.strategy.has_server else 1
    if not isinstance(config.optimizer, OwnPart):
        return blocks(layout.size, num_shards)
    try:
        return layout.blocks(num_shards)
    except ValueError as error:
        raise ConfigError(f"cluster.shards with optimizer={config.optimizer.name}: {error}") from None


def build_parameters(config: RunConfig, number: int, flat: FlatModule, num_train: int, is_whole: bool) -> Parameters:
    """One shard of the parameter server, at the initial weights.

    Args:
        is_whole: gradients are the whole flat vector, of which the shard takes its block; else its block alone.
    """
    block = shard_blocks(config, flat.layout)[number]
    return Parameters(
        block=block if is_whole else slice(0, block.stop - block.start),
        current=Version(
            flat.weights[block].clone(), flat.buffers.clone() if number == 0 else flat.buffers.new_empty(0)
        ),
        optimizer=build_optimizer(config, flat.layout.within(block).cut(config.local.fragments)),
        rate=build_rate(config, num_train),
        num_workers=config.cluster.workers,
        divide_by_workers=config.async_gradient == "mean_over_workers",
        rule=build_update(config),
    )
