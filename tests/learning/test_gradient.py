"""The gradient function: clipping, precision, and random networks."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from syncline.datasets.batch_source import IGNORED_LABEL
from syncline.datasets.registry import load
from syncline.datasets.sharding import WorkerShare
from syncline.learning.flat import FlatModule
from syncline.learning.gradient import GradientFunction, WorkerBatches
from syncline.learning.task import TASKS
from syncline.models import build

CPU = torch.device("cpu")
TASK = TASKS["classification"]


class Dropping(nn.Module):
    """A network that drops half of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.linear = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.linear(self.drop(images.flatten(1)))
        return logits


@pytest.fixture(scope="module")
def batches() -> WorkerBatches:
    dataset = load("digits", train_size=200, test_size=20)
    return WorkerBatches(dataset.batch_source(CPU, "classification"), WorkerShare(200, 2, 0, 16, seed=3))


def gradient_at(function: GradientFunction, batch) -> torch.Tensor:
    flat = function.flat
    _, gradient, _ = function([flat.weights.clone()], flat.buffers.clone(), batch)
    return gradient.clone()


def test_a_random_network_draws_the_same_for_the_same_worker_and_iteration(batches):
    torch.manual_seed(0)
    function = GradientFunction(FlatModule(Dropping()), TASK)
    assert function.flat.is_random
    batch = batches.take(5)
    first = gradient_at(function, batch)
    torch.manual_seed(99)  # numbers drawn earlier do not matter
    assert torch.equal(first, gradient_at(function, batches.take(5)))
    for key in ((1, 5, 3), (0, 6, 3), (0, 5, 4)):  # worker, iteration, seed of the run
        assert not torch.equal(first, gradient_at(function, replace(batch, key=key))), key


def test_a_network_without_randomness_leaves_the_global_generator_unchanged(batches):
    function = GradientFunction(FlatModule(build("lenet", in_channels=1, image_size=8, num_classes=10)), TASK)
    assert not function.flat.is_random
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    gradient_at(function, batches.take(0))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("limit", [1e-3, 0.5, 1e3])
def test_a_gradient_is_clipped_as_torch_clips_that_of_an_ordinary_module(batches, limit):
    torch.manual_seed(0)
    module = build("lenet", in_channels=1, image_size=8, num_classes=10)
    torch.manual_seed(0)
    flat = FlatModule(build("lenet", in_channels=1, image_size=8, num_classes=10))
    batch = batches.take(0)
    TASK.loss(module, batch.samples).backward()
    norm = nn.utils.clip_grad_norm_(module.parameters(), limit)
    expected = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    found = gradient_at(GradientFunction(flat, TASK, clip_norm=limit), batch)
    assert torch.equal(found, expected)
    assert found.norm() == pytest.approx(min(limit, norm.item()), rel=1e-4)


@pytest.mark.parametrize("pieces", [2, 3, 50])
def test_in_pieces_it_is_the_gradient_of_the_whole_mini_batch(batches, pieces):
    """Even if they are unequal, or more than there are samples."""
    flats = [FlatModule(build("lenet", in_channels=1, image_size=8, num_classes=10)) for _ in range(2)]
    flats[1].weights.copy_(flats[0].weights)
    batch, seen = batches.take(0), []

    class Counted(type(TASK)):
        def loss(self, module, samples):
            seen.append(len(samples[0]))
            return super().loss(module, samples)

    whole, parts = GradientFunction(flats[0], TASK), GradientFunction(flats[1], Counted(), clip_norm=0.5, pieces=pieces)
    losses = [each([each.flat.weights], each.flat.buffers, batch)[0] for each in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    expected = flats[0].gradient * min(1.0, 0.5 / flats[0].gradient.norm())
    torch.testing.assert_close(flats[1].gradient, expected, rtol=1e-4, atol=1e-6)
    assert sum(seen) == len(batch.samples[0])
    assert len(seen) == min(pieces, sum(seen))


@pytest.mark.parametrize("num_ignored", [3, 9])
def test_in_pieces_ignored_labels_count_nowhere(batches, num_ignored):
    """Of nine, a whole first piece of eight is ignored, whose own mean is no number."""
    flats = [FlatModule(build("lenet", in_channels=1, image_size=8, num_classes=10)) for _ in range(2)]
    flats[1].weights.copy_(flats[0].weights)
    batch = batches.take(0)
    images, labels = batch.samples
    batch = replace(
        batch, samples=(images, torch.where(torch.arange(len(labels)) < num_ignored, IGNORED_LABEL, labels))
    )
    losses = [
        GradientFunction(flat, TASK, pieces=pieces)([flat.weights], flat.buffers, batch)[0]
        for flat, pieces in zip(flats, (1, 2), strict=True)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    torch.testing.assert_close(flats[1].gradient, flats[0].gradient, rtol=1e-4, atol=1e-6)


def test_in_bfloat16_it_is_what_autocast_gives_an_ordinary_module_and_the_weights_stay_float32():
    source = load("glyphs10", train_size=8, test_size=1, image_size=8).batch_source(CPU, "classification")
    batch = WorkerBatches(source, WorkerShare(8, 1, 0, 8, seed=0)).take(0)

    def network() -> nn.Module:
        torch.manual_seed(0)
        return build("resnet", depth=8, in_channels=3, image_size=8, num_classes=10)

    found = gradient_at(GradientFunction(FlatModule(network()), TASK, precision=torch.bfloat16), batch)
    ordinary, (images, labels) = network(), batch.samples
    with torch.autocast("cpu", torch.bfloat16):
        logits = ordinary(images.contiguous(memory_format=torch.channels_last))
        loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in ordinary.parameters()])
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)
    assert not torch.equal(found, gradient_at(GradientFunction(FlatModule(network()), TASK), batch))
