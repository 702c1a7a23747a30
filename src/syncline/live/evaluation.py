"""Evaluation of what shards have left on disk, apart from the timed run."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from syncline.assembly import build_flat, load_dataset, pick_device, shape_of
from syncline.config import RunConfig
from syncline.course import evaluation_row
from syncline.learning.evaluate import Evaluator
from syncline.records.snapshots import read_state


class SnapshotEvaluator:
    """Metrics of states that were written by all shards."""

    def __init__(self, config: RunConfig) -> None:
        torch.set_num_threads(config.threads)
        device = pick_device(config)
        dataset = load_dataset(config)
        flat = build_flat(config, shape_of(dataset), device)
        self._device = device
        self._evaluator = Evaluator(dataset, flat, device)
        self.num_train = len(dataset.train_labels)
        self.num_parameters = flat.weights.numel()

    def row(self, paths: list[Path], wall_s: float) -> dict[str, Any]:
        """The line of metrics.jsonl for a state, given each shard's part of it.

        The time is that of the shard which was there last; updates and samples are those of the one furthest behind.
        """
        parts = [read_state(path) for path in paths]
        about: list[Mapping[str, Any]] = [state for _, state in parts]
        metrics = self._evaluator(
            [tensors["weights"].to(self._device) for tensors, _ in parts], parts[0][0]["buffers"].to(self._device)
        )
        return evaluation_row(
            max(state["time_s"] for state in about),
            min(state["updates"] for state in about),
            min(state["samples"] for state in about),
            self.num_train,
            asdict(metrics),
            train_loss=about[0]["train_loss"],
            learning_rate=about[0]["learning_rate"],
            wall_s=wall_s,
        )
