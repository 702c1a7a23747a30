"""What an evaluation depends on, and what it leaves as it was."""

import torch

from syncline.datasets.glyphs import glyphs
from syncline.learning.evaluate import Evaluator
from syncline.learning.flat import FlatModule
from syncline.learning.task import TASKS
from syncline.models import build


def test_evaluation_leaves_the_statistics_and_the_mode_unchanged():
    flat = FlatModule(build("resnet", depth=8, in_channels=3, image_size=8, num_classes=10))
    source = glyphs(10, 10, 50, image_size=8).batch_source(torch.device("cpu"), "classification")
    evaluate = Evaluator(source, TASKS["classification"], flat)
    weights, buffers = flat.weights.clone(), flat.buffers.clone()
    found = evaluate([weights], buffers)
    assert flat.module.training
    assert torch.equal(flat.buffers, buffers)
    assert evaluate([2 * weights], buffers)["loss"] != found["loss"]
    assert evaluate([weights], buffers) == found
