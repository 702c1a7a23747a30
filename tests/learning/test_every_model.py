"""Steps on the flat vector are, for every network, steps of the ordinary module and torch's own optimizer.

In every bit, but for DeepFM. Its last layer has a single output, and a product with a single row of weights is summed
in an order that depends on where in memory the row begins (modulo 16 bytes); so it agrees to rounding, and it is tried
with plain SGD, since Adam makes whole steps of the rounding noise in gradients that are 0 but for it. Its table takes
its gradient row by row where a gradient is there already, as on the flat vector; so the ordinary module keeps its own.
"""

from copy import deepcopy

import pytest
import torch
from composing import compose
from torch import nn

from syncline.assembly.optimizers import build_optimizer, build_rate
from syncline.assembly.problem import build_problem
from syncline.config import MODELS, RunConfig
from syncline.learning.task import TASKS

STEPS = 3
STEPS_OF_THE_LARGEST = 1
LARGEST = ("inception_v3", "resnet50", "resnet50_bottleneck_cifar")
TINY = ["dataset.train_size=12", "dataset.test_size=4", "batch_size=3"]
GLYPHS = ["dataset=glyphs10", "dataset.image_size=8"]
CASES = {
    "alexnet_small": ["model=alexnet_small", *GLYPHS],
    "bert": ["model=bert_tiny", "dataset=qa_synthetic", "optimizer=adamw", "optimizer.clip_norm=1"],
    "char_lstm": ["model=char_lstm", "dataset=pydoc_text", "optimizer=adam", "optimizer.clip_norm=0.5"],
    "deepfm": ["model=deepfm", "dataset=ctr_synthetic", "optimizer.lr=0.01"],
    "draw": ["model=draw_small", "dataset=digits", "optimizer=adam", "optimizer.clip_norm=5"],
    "gpt": [
        "model=gpt_nano",
        "dataset=pydoc_text",
        "dataset.length=16",
        "optimizer=adamw",
        "optimizer.decays=matrices",
    ],
    "inception_small": ["model=inception_small", *GLYPHS, "optimizer=rmsprop", "optimizer.form=torch"],
    "inception_v3": ["model=inception_v3", "dataset=glyphs10", "dataset.image_size=299", "batch_size=2"],
    "lenet": ["model=lenet", *GLYPHS],
    "mlp": ["model=mlp", *GLYPHS],
    "resnet": ["model=resnet8", *GLYPHS, "optimizer=nesterov"],
    "resnet50": ["model=resnet50", "dataset=glyphs10"],
    "resnet50_bottleneck_cifar": ["model=resnet50_bottleneck_cifar", "dataset=glyphs10", "dataset.image_size=16"],
    "softmax_regression": ["model=softmax_regression", "dataset=digits"],
    "wide_resnet": ["model=wrn10_1", *GLYPHS, "model.dropout=0.3", "optimizer=nesterov"],
}


def torchs_own(config: RunConfig, module: nn.Module) -> torch.optim.Optimizer:
    options = config.optimizer
    bare = [each for each in module.parameters() if each.ndim < 2 and options.decays == "matrices"]
    rest = [each for each in module.parameters() if all(each is not other for other in bare)]
    parameters = [{"params": rest}, {"params": bare, "weight_decay": 0.0}]
    given = {"lr": options.lr, "weight_decay": options.weight_decay, "foreach": False}
    match options.name:
        case "sgd":
            return torch.optim.SGD(parameters, momentum=options.momentum, nesterov=options.nesterov, **given)
        case "rmsprop":
            given |= {"alpha": options.alpha, "eps": options.eps, "momentum": options.momentum}
            return torch.optim.RMSprop(parameters, **given)
        case "adam" | "adamw":
            kind = torch.optim.Adam if options.name == "adam" else torch.optim.AdamW
            return kind(parameters, betas=(options.beta1, options.beta2), eps=options.eps, **given)
    raise AssertionError(options.name)


def test_every_network_is_tried() -> None:
    """But for one that is resnet50 with other numbers of channels."""
    assert {*CASES, "wide_resnet50_2"} == set(MODELS)


def marks(name: str) -> list[pytest.MarkDecorator]:
    """BERT and GPT are transformers' own, which imports torchvision."""
    in_group = [pytest.mark.xdist_group("torchvision")] if name in ("bert", "gpt") else []
    return [*in_group, pytest.mark.slow] if name in LARGEST else in_group


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in sorted(CASES)])
def test_steps_are_those_of_the_ordinary_module(name: str) -> None:
    config, _ = compose([*TINY, *CASES[name]])
    assert config.model.name == name
    problem = build_problem(config, torch.device("cpu"))
    flat, optimizer, rate = (
        problem.flat,
        build_optimizer(config, problem.flat.layout),
        build_rate(config, problem.num_train),
    )
    module, task = deepcopy(flat.module), TASKS[config.task_name]
    ordinary = torchs_own(config, module)
    batches = problem.batches(config, 0)
    clips = []
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for step in range(STEPS_OF_THE_LARGEST if name in LARGEST else STEPS):
        batch = batches.take(step)
        problem.gradient([flat.weights], flat.buffers, batch)
        assert not flat.layout.unreached(flat.gradient), "optimizers of our own networks do not look for such tensors"
        optimizer.step(flat.weights, flat.gradient, rate(0, 0), out=flat.weights)

        ordinary.zero_grad(set_to_none=False)
        batch.seed_generators()
        task.loss(module, batch.samples).backward()
        if config.optimizer.clip_norm is not None:
            norm = nn.utils.clip_grad_norm_(module.parameters(), config.optimizer.clip_norm)
            clips.append(bool(norm > config.optimizer.clip_norm))
        ordinary.step()
    expected = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    buffers = [buffer.flatten() for buffer in module.buffers() if buffer.is_floating_point()]
    assert not clips or any(clips), "no gradient was long enough to be clipped"
    if name == "deepfm":
        torch.testing.assert_close(flat.weights, expected, rtol=0, atol=1e-6)
        return
    assert torch.equal(flat.weights, expected)
    assert torch.equal(flat.buffers, torch.cat(buffers) if buffers else flat.buffers)
