"""Does a network wait for its data? Seconds of input against seconds of computation, and photographs a second."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from benchmarks.measuring import Spread, cpu_s
from syncline.config import ModelConfig, ResnetConfig
from syncline.datasets.glyphs import glyphs
from syncline.datasets.imagenet import imagenet
from syncline.models import build

CPU = torch.device("cpu")
BATCH = 128
PHOTOGRAPHS, WIDTH, HEIGHT = 128, 500, 375  # the usual size in ImageNet
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


@dataclass(frozen=True, slots=True)
class Decoding:
    """With one number of loaders."""

    rate: Spread  # photographs a wall second from `take`; more loaders than free cores cannot help
    own_ms: Spread  # CPU milliseconds a photograph in the computing process


def decoding(loaders: tuple[int, ...], repeats: int) -> list[Decoding]:
    """Random boxes of 224 x 224 out of JPEGs, normalised, with each of these numbers of loaders in turn."""
    spent: list[list[tuple[float, float]]] = [[] for _ in loaders]  # wall and CPU seconds
    with photographs() as root:
        sets = [replace(imagenet(str(root), num_classes=1, loaders=number), augment=True) for number in loaders]
        sources = [dataset.batch_source(CPU, "classification") for dataset in sets]
        for source in sources:
            source.take(np.arange(PHOTOGRAPHS), None)
        for repeat in range(repeats):
            for source, found in zip(sources, spent, strict=True):
                wall, cpu = time.perf_counter(), time.process_time()
                source.take(np.arange(PHOTOGRAPHS), np.random.default_rng(repeat))
                found.append((time.perf_counter() - wall, time.process_time() - cpu))
    return [
        Decoding(
            Spread(tuple(PHOTOGRAPHS / wall for wall, _ in found)),
            Spread(tuple(1e3 * cpu / PHOTOGRAPHS for _, cpu in found)),
        )
        for found in spent
    ]


@contextmanager
def photographs() -> Iterator[Path]:
    """A folder of generated JPEGs of about 110 kB each, as those of ImageNet are on average."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as root:
        for part, count in (("train", PHOTOGRAPHS), ("val", 1)):
            folder = Path(root) / "imagenet" / part / "n01440764"
            folder.mkdir(parents=True)
            for number in range(count):
                coarse = Image.fromarray(random.integers(0, 256, (HEIGHT // 25, WIDTH // 25, 3), np.uint8))
                smooth = np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), np.float32)
                grainy = np.clip(smooth + random.normal(0, 19, smooth.shape), 0, 255).astype(np.uint8)
                Image.fromarray(grainy).save(folder / f"{number}.JPEG", quality=90)
        yield Path(root)


def report() -> None:
    torch.set_num_threads(1)
    print("Input / computing, CPU seconds for the same mini-batches of 128 (goal <= 0.1): median [min .. max]")
    for name, (model, steps) in MODELS.items():
        for augment in (False, True):
            share = input_share(model, steps, augment, repeats=7)
            what = f"{name}, {'crops and flips' if augment else 'as they are'}"
            print(f"  {what:28} {share.ratio}  ({share.input_rate.median:,.0f} / {share.compute_rate.median:,.0f} a s)")
    print(f"JPEGs of {WIDTH} x {HEIGHT}, random boxes of 224 x 224: median [min .. max]")
    loaders = (0, 1, 2)
    for number, found in zip(loaders, decoding(loaders, repeats=5), strict=True):
        print(f"  {number} loaders  photographs a wall second {found.rate}")
        print(f"             CPU ms a photograph in the computing process {found.own_ms}")
