"""Metrics on the test set, and what of several replicas is evaluated."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from syncline.datasets.images import ImageDataset
from syncline.learning.flat import FlatModule
from syncline.learning.task import Normalise

BATCH = 500


@dataclass(frozen=True, slots=True)
class Metrics:
    """Of one evaluation: accuracy and top5 are fractions of the test set, loss is the mean log loss (nats)."""

    accuracy: float
    top5: float
    loss: float


class Evaluator:
    """The test set on the device, ready to be run through the module; leaves the module's training mode as it was."""

    def __init__(self, dataset: ImageDataset, flat: FlatModule, device: torch.device) -> None:
        self._flat = flat
        self._images = dataset.test_images.to(device)  # uint8 [N, C, H, W]
        self._labels = dataset.test_labels.to(device)  # int64 [N]
        self._normalise = Normalise(dataset, device)

    @torch.no_grad()
    def __call__(self, weights: list[Tensor], buffers: Tensor) -> Metrics:
        """Metrics of these weights (blocks, [n] in all) and buffers [m]."""
        self._flat.load(weights, buffers)
        module = self._flat.module
        module.eval()
        correct = within_5 = 0
        loss = 0.0
        for images, labels in zip(torch.split(self._images, BATCH), torch.split(self._labels, BATCH), strict=True):
            logits = module(self._normalise(images))
            loss += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
            best = logits.topk(min(5, logits.shape[1])).indices == labels[:, None]  # [B, 5]
            correct += int(best[:, 0].sum())
            within_5 += int(best.sum())
        module.train()
        size = len(self._labels)
        return Metrics(correct / size, within_5 / size, loss / size)


def consensus(weights: Sequence[Tensor], buffers: Sequence[Tensor]) -> tuple[Tensor, Tensor, float]:
    """The mean of replicas: weights [n] and buffers [m], and the divergence, max over i of ||w_i - mean||_2.

    The replicas are what is there after a whole step: with `average=before_forward` each worker's own step is the last
    thing that happened to it, where after_step a group has averaged.
    """
    mean, mean_buffers = weights[0].clone(), buffers[0].clone()
    for other, other_buffers in zip(weights[1:], buffers[1:], strict=True):
        mean.add_(other)
        mean_buffers.add_(other_buffers)
    mean.div_(len(weights))
    mean_buffers.div_(len(weights))
    distances = [torch.linalg.vector_norm(replica - mean, dtype=torch.float64) for replica in weights]
    return mean, mean_buffers, max(distance.item() for distance in distances)


METRICS = tuple(Metrics.__dataclass_fields__)
