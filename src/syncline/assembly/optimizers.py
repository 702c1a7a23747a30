"""Optimizers, of a run or of its local steps, and their learning rate."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial

from syncline.assembly.network import has_own_network
from syncline.config import ConfigError, OptimizerConfig, OwnPart, RunConfig
from syncline.learning.foreign import optimizer_of
from syncline.learning.layout import Layout
from syncline.learning.optimizer import OPTIMIZERS, Averaged, InParts, Optimizer, SkipsUnreached
from syncline.learning.schedule import EpochClock, build_schedule


def build_optimizer(config: RunConfig, layout: Layout) -> Optimizer:
    """The optimizer of one block, or of all weights. Raises ConfigError if the user's own is none, or cannot step it.

    Args:
        layout: of the block.
    """
    skips, decay = has_own_network(config) or config.local.fragments > 1, config.optimizer.average_decay
    optimizer = optimizer_from(config.optimizer, layout, config.momentum, skips)
    return optimizer if decay is None else Averaged(optimizer, decay)


def optimizer_from(own: OptimizerConfig, layout: Layout, momentum: str, skips: bool) -> Optimizer:
    """The optimizer that these options describe; it `skips` tensors, or fragments, that a gradient has not reached."""
    if not isinstance(own, OwnPart):
        return _built_in(own, layout, momentum, skips)
    try:
        return optimizer_of(own.name, own.found(), own.arguments, layout, own.lr, own.weight_decay)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _built_in(own: OptimizerConfig, layout: Layout, momentum: str, skips: bool) -> Optimizer:
    options = asdict(own)
    for key in ("name", "lr", "schedule", "clip_norm", "average_decay", "decays"):
        del options[key]
    if own.name == "sgd":
        options["form"] = momentum

    def of_part(place: slice, weight_decay: float) -> Optimizer:
        make = partial(OPTIMIZERS[own.name], **options | {"weight_decay": weight_decay})
        return SkipsUnreached(make, layout.within(place)) if skips else make()

    if own.decays == "all" or not own.weight_decay:
        return of_part(slice(0, layout.size), own.weight_decay)
    parts = layout.matrices()
    decay = {place.start: own.weight_decay * is_matrix for place, is_matrix in parts}
    return InParts(lambda place: of_part(place, decay[place.start]), [place for place, _ in parts])


def build_rate(config: RunConfig, num_train: int) -> Callable[[int, int], float]:
    """(samples, updates) so far -> learning rate of the next update."""
    schedule = build_schedule(config.optimizer.lr, **asdict(config.optimizer.schedule))
    rounds = config.rounds(num_train)
    clock = EpochClock(config.lr_clock, num_train, config.cluster.workers, config.batch_size, rounds)
    return lambda samples, updates: schedule.rate(clock.epoch(samples, updates))
