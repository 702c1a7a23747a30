"""The compression of pushes, pulls and exchanges."""

from torch import Tensor

from syncline.assembly.parameters import shard_blocks
from syncline.config import ConfigError, OwnPart, RunConfig
from syncline.config.compression import FeedbackConfig, Int8Config, RandkConfig, SparseConfig
from syncline.learning.compression import Compression, Fragment, Int8, PullCompressor, PushCompressor, RandK, Sign, TopK
from syncline.learning.gossip import Gossip
from syncline.learning.layout import Layout


def build_compression(config: RunConfig) -> Compression | None:
    """Of pushes; None if they are sent as they are."""
    compress = config.compress
    if isinstance(compress, RandkConfig) and not compress.feedback:
        return RandK(compress.density, unbiased=True)
    is_whole = compress.name == "none" and config.local.fragments == 1
    return None if is_whole else build_feedback_compression(config)


def build_feedback_compression(config: RunConfig) -> Compression:
    """Where what is left out of one message is in a later one. Raises ConfigError: the user's own is none."""
    compress = config.compress
    if config.local.fragments > 1:
        return Fragment(config.local.fragments)
    if isinstance(compress, OwnPart):
        made: Compression = compress.made()
        if absent := [name for name in ("size", "encode", "decode") if not callable(getattr(made, name, None))]:
            must = f"{compress._target_} must return a compression, with size, encode and decode"
            raise ConfigError(f"compress={compress.name}: {must}, got a {type(made).__name__} without {absent[0]}")
        return made
    if isinstance(compress, SparseConfig):
        return RandK(compress.density) if isinstance(compress, RandkConfig) else TopK(compress.density)
    return Int8() if isinstance(compress, Int8Config) else Sign()


def build_compressor(config: RunConfig, worker: int, layout: Layout) -> PushCompressor | None:
    """Of one worker's pushes, or what it joins with others'; None if they are sent as they are."""
    compression, compress = build_compression(config), config.compress
    if compression is None or config.strategy.has_replicas:
        return None
    feedback = isinstance(compress, FeedbackConfig) and compress.feedback
    return PushCompressor(compression, shard_blocks(config, layout), feedback, worker, config.seed)


def build_gossip(config: RunConfig, worker: int, weights: Tensor) -> list[Gossip] | None:
    """Of one replica with its groups of each turn; None if there are none, or weights are sent as they are.

    Args:
        weights: the initial ones.
    """
    compress = config.compress
    if not config.strategy.has_replicas or not isinstance(compress, FeedbackConfig):
        return None
    compression = build_feedback_compression(config)
    assert config.strategy.collective is not None
    turns = range(config.strategy.collective.turns(config.cluster.workers))
    return [Gossip(compression, weights, compress.consensus, worker, config.seed) for _ in turns]


def build_pull_compressor(config: RunConfig, worker: int, shard: int) -> PullCompressor:
    """Of what one shard sends one worker, where `config.compresses_pulls`."""
    return PullCompressor(build_feedback_compression(config), worker, shard, config.seed)
