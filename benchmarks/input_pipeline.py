"""Does a network wait for its data? Seconds of input against seconds of computation."""

from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import nn

from benchmarks.measuring import Spread, cpu_s
from syncline.config import ModelConfig, ResnetConfig
from syncline.datasets.glyphs import glyphs
from syncline.models import build

CPU = torch.device("cpu")
BATCH = 128
MODELS: dict[str, tuple[ModelConfig | ResnetConfig, int]] = {  # and steps that are timed at once
    "LeNet": (ModelConfig(), 20),
    "ResNet-20": (ResnetConfig(depth=20), 2),
}


@dataclass(frozen=True, slots=True)
class Share:
    """Of one network on images in the shape of CIFAR."""

    input_rate: Spread  # images a CPU second from `take`
    compute_rate: Spread  # images a CPU second of forward, backward and step
    ratio: Spread  # seconds of input / seconds of computing


def input_share(model: ModelConfig | ResnetConfig, steps: int, augment: bool, repeats: int) -> Share:
    """Mini-batches of 128, `steps` of input and as many of computing in alternation, one thread."""
    source = replace(glyphs(10, train_size=2000, test_size=10), augment=augment).batch_source(CPU, "classification")
    module = build(**asdict(model), in_channels=3, image_size=32, num_classes=10)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    generator = np.random.default_rng(0)
    inputs, labels = source.take(np.arange(BATCH), generator)

    def read() -> None:
        source.take(generator.integers(2000, size=BATCH), generator)

    def compute() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    cpu_s(read, steps), cpu_s(compute, steps)
    pairs = [(cpu_s(read, steps), cpu_s(compute, steps)) for _ in range(repeats)]
    return Share(
        Spread(tuple(BATCH * steps / reading for reading, _ in pairs)),
        Spread(tuple(BATCH * steps / computing for _, computing in pairs)),
        Spread(tuple(reading / computing for reading, computing in pairs)),
    )


def report() -> None:
    torch.set_num_threads(1)
    print("Input / computing, CPU seconds for the same mini-batches of 128 (goal <= 0.1): median [min .. max]")
    for name, (model, steps) in MODELS.items():
        for augment in (False, True):
            share = input_share(model, steps, augment, repeats=7)
            what = f"{name}, {'crops and flips' if augment else 'as they are'}"
            print(f"  {what:28} {share.ratio}  ({share.input_rate.median:,.0f} / {share.compute_rate.median:,.0f} a s)")
