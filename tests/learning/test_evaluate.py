"""Metrics against a plain computation, over more than one batch."""

import pytest
import torch

from syncline.datasets.images import TEST_BATCH, ImageDataset
from syncline.learning.evaluate import Evaluator
from syncline.learning.flat import FlatModule
from syncline.learning.task import TASKS
from syncline.models import build

CPU = torch.device("cpu")


def noise(num_test: int, num_classes: int) -> ImageDataset:
    generator = torch.Generator().manual_seed(0)

    def images(size: int) -> torch.Tensor:
        return torch.randint(0, 256, (size, 3, 8, 8), generator=generator, dtype=torch.uint8)

    labels = torch.arange(num_test) % num_classes
    return ImageDataset(
        "noise",
        images(num_classes),
        torch.arange(num_classes),
        images(num_test),
        labels,
        num_classes,
        (127.0,) * 3,
        (70.0,) * 3,
    )


def evaluator(dataset: ImageDataset, flat: FlatModule) -> Evaluator:
    return Evaluator(dataset.batch_source(CPU, "classification"), TASKS["classification"], flat)


@pytest.mark.parametrize("num_classes", [3, 10])
def test_the_metrics_are_those_of_a_plain_loop(num_classes):
    dataset = noise(TEST_BATCH + 77, num_classes)
    torch.manual_seed(0)
    flat = FlatModule(build("resnet", depth=8, in_channels=3, image_size=8, num_classes=num_classes))
    found = evaluator(dataset, flat)([flat.weights.clone()], flat.buffers.clone())
    module = flat.module.eval()
    with torch.no_grad():
        logits = module((dataset.test_images.float() - 127.0) / 70.0)
    order = logits.argsort(dim=1, descending=True)
    hits = order == dataset.test_labels[:, None]
    assert found["accuracy"] == pytest.approx(hits[:, 0].float().mean().item())
    assert found["top5"] == pytest.approx(hits[:, :5].any(dim=1).float().mean().item())
    loss = torch.nn.functional.cross_entropy(logits, dataset.test_labels).item()
    assert found["loss"] == pytest.approx(loss, rel=1e-5)


def test_evaluation_leaves_the_statistics_and_the_mode_unchanged():
    flat = FlatModule(build("resnet", depth=8, in_channels=3, image_size=8, num_classes=10))
    buffers = flat.buffers.clone()
    evaluator(noise(50, 10), flat)([flat.weights.clone()], buffers)
    assert flat.module.training
    assert torch.equal(flat.buffers, buffers)
