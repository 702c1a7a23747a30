"""What an update costs a server that applies it tensor by tensor, as one that calls its updater once a key does."""

import time
from dataclasses import asdict

import torch

from benchmarks.measuring import Spread
from syncline.config import compose
from syncline.models import build

NETWORKS = {  # of DSSP's Figure 3 -> classes
    "alexnet_small": 10,
    "resnet50_cifar": 100,
    "resnet110": 100,
}


def update_ms(model: str, num_classes: int, repeats: int) -> tuple[Spread, int]:
    """CPU milliseconds of an SGD step with momentum and weight decay; and the number of tensors."""
    config, _ = compose([f"model={model}"])
    module = build(**asdict(config.model), in_channels=3, image_size=32, num_classes=num_classes)
    weights = list(module.parameters())
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimizer = torch.optim.SGD(weights, lr=0.05, momentum=0.9, weight_decay=1e-4, foreach=False)
    optimizer.step()  # makes its buffers
    spent = []
    for _ in range(repeats):
        begun = time.process_time()
        optimizer.step()
        spent.append(1e3 * (time.process_time() - begun))
    return Spread(tuple(spent)), len(weights)


def report() -> None:
    torch.set_num_threads(1)
    print("An SGD update, tensor by tensor, CPU ms: median [min .. max]")
    for model, num_classes in NETWORKS.items():
        spread, tensors = update_ms(model, num_classes, repeats=15)
        print(f"  {model:15} {tensors:4} tensors  {spread}  {1e3 * spread.median / tensors:.0f} µs a tensor")
