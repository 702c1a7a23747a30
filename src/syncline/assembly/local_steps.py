"""The local steps of a worker."""

from dataclasses import asdict

from syncline.assembly.network import has_own_network
from syncline.assembly.optimizers import optimizer_from
from syncline.assembly.parameters import shard_blocks
from syncline.assembly.problem import Problem
from syncline.config import ConfigError, OwnPart, RunConfig
from syncline.learning.layout import Layout, blocks
from syncline.learning.local_steps import LocalRule, LocalSteps
from syncline.learning.schedule import build_schedule


def build_local_steps(config: RunConfig, problem: Problem, worker: int) -> LocalSteps:
    """What this worker computes for a push; its optimizer is its own."""
    local, rounds = config.local, config.rounds(problem.num_train).of(worker)
    options = config.optimizer if local.optimizer is None else local.optimizer
    schedule = build_schedule(options.lr, **asdict(options.schedule))
    skips_unreached = has_own_network(config)
    optimizer = None
    if local.optimizer is not None:
        optimizer = optimizer_from(local.optimizer, problem.flat.layout, "torch", skips_unreached)
    epochs_a_batch = config.cluster.workers * config.batch_size / problem.num_train
    return LocalSteps(
        problem.gradient,
        rounds,
        rate=lambda place: schedule.rate(place * epochs_a_batch),
        weight_decay=0.0 if optimizer else options.weight_decay,
        optimizer=optimizer,
        skips_unreached=skips_unreached,
        keep=local.keep,
        fragments=_fragments(config, problem.flat.layout) if local.fragments > 1 else (),
        overlap=local.overlap,
        rule=build_local_rule(config),
    )


def build_local_rule(config: RunConfig) -> LocalRule | None:
    """What one worker changes in its local steps. Raises ConfigError: the user's own is no LocalRule."""
    own = config.local
    if not isinstance(own, OwnPart):
        return None
    rule = own.made()
    if not isinstance(rule, LocalRule):
        must = f"{own._target_} must return a syncline.learning.local_steps.LocalRule"
        raise ConfigError(f"local={own.name}: {must}, got {type(rule).__name__}")
    return rule


def _fragments(config: RunConfig, layout: Layout) -> list[list[slice]]:
    """Places in the vector of each fragment, of which every shard has a part."""
    num = config.local.fragments
    of_shards = [
        [slice(block.start + place.start, block.start + place.stop) for place in blocks(block.stop - block.start, num)]
        for block in shard_blocks(config, layout)
    ]
    return [list(places) for places in zip(*of_shards, strict=True)]
