"""Metrics on the test set."""

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


METRICS = tuple(Metrics.__dataclass_fields__)
