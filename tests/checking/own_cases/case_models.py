"""Models that are right, of the cases of test_own_cases.py.

Each docstring has its kind, and the public report of such a one.
"""

import math
import warnings
from collections import OrderedDict, namedtuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Two(nn.Module):
    """Ordinary: two layers, 1,210 parameters on digits."""

    def __init__(self, sample_shape, num_outputs):
        super().__init__()
        self.num_values = math.prod(sample_shape)
        self.i, self.o = nn.Linear(self.num_values, 16), nn.Linear(16, num_outputs)
        self.extend(num_outputs)

    def extend(self, num_outputs):
        """What else a case has."""

    def hidden(self, x):
        return self.i(x.float().flatten(1)).relu()

    def forward(self, x):
        return self.o(self.hidden(x))


class Slices(Two):
    """Storage: three parameters are disjoint slices of one tensor. safetensors/safetensors#379"""

    def extend(self, num_outputs):
        base = torch.randn(12, 16) * 0.1
        self.q, self.k, self.v = (nn.Parameter(base[4 * part : 4 * part + 4]) for part in range(3))

    def forward(self, x):
        h = self.hidden(x)
        return self.o(h + (F.linear(h, self.q) * F.linear(h, self.k)).tanh() @ self.v)


class Transposed(Two):
    """Storage: a parameter whose axes lie in another order. pytorch/pytorch#47163"""

    def extend(self, num_outputs):
        self.i.weight = nn.Parameter((torch.randn(self.num_values, 16) * 0.05).t())


class ChannelsLast(nn.Module):
    """Storage: convolutions in channels_last; rounding is that of an ordinary loop."""

    def __init__(self, in_channels, num_outputs):
        super().__init__()
        self.conv, self.o = nn.Conv2d(in_channels, 8, 3), nn.Linear(8, num_outputs)
        self.more = nn.Conv2d(8, 8, 3)
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        x = x.contiguous(memory_format=torch.channels_last)
        return self.o(self.more(self.conv(x).relu()).relu().mean((2, 3)))


class Matrices(Two):
    """Norms: matrices alone, for Muon."""

    def extend(self, num_outputs):
        self.i.bias = self.o.bias = None


class LazyTable(Two):
    """Made late: a table that follows from the shape alone. jingyaogong/minimind#855"""

    table = None

    def forward(self, x):
        x = x.flatten(1)
        if self.table is None or len(self.table) != x.shape[1]:
            self.table = torch.cos(torch.arange(x.shape[1]) / 7.0)
        return super().forward(x * self.table)


def scripted(sample_shape, num_outputs):
    """Compiled by torch.jit.script. pytorch/pytorch#15421"""
    with warnings.catch_warnings(action="ignore"):
        return torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(math.prod(sample_shape), num_outputs)))


class KeepsPenalty(Two):
    """Attributes that are no leaves: a term of the loss, which the task Penalty adds. sktime/sktime#10928"""

    def forward(self, x):
        h = self.hidden(x)
        self.penalty = 0.01 * h.square().mean()
        return self.o(h)


class PythonList(Two):
    """Not registered: layers in a list stay as they are drawn. pytorch/pytorch#666"""

    def extend(self, num_outputs):
        self.more = [nn.Linear(16, 16) for _ in range(2)]

    def forward(self, x):
        h = self.hidden(x)
        for layer in self.more:
            h = layer(h).relu()
        return self.o(h)


class RelativeIndex(Two):
    """Kinds of numbers: constant whole numbers and truth values. huggingface/pytorch-image-models#2350"""

    def extend(self, num_outputs):
        self.register_buffer("index", torch.arange(16).flip(0), persistent=False)
        self.register_buffer("mask", torch.arange(16) % 3 == 0, persistent=False)

    def forward(self, x):
        return self.o(self.hidden(x)[:, self.index].masked_fill(self.mask, 0.0))


class GradientHook(Two):
    """Hooks: each element of a gradient is bounded. facebookresearch/fairscale#1101"""

    def extend(self, num_outputs):
        for parameter in self.parameters():
            parameter.register_hook(lambda gradient: gradient.clamp(-0.002, 0.002))


class AccumulateHook(Two):
    """Hooks: gradients are halved in place once they are whole. meta-pytorch/torchrec#4268"""

    def extend(self, num_outputs):
        for parameter in self.parameters():
            parameter.register_post_accumulate_grad_hook(self.halve)

    @staticmethod
    def halve(parameter):
        parameter.grad.mul_(0.5)


class LayerDrop(Two):
    """No gradient: blocks are left out by chance, whose weights do not decay then. pytorch/pytorch#90171"""

    def extend(self, num_outputs):
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        h = self.hidden(x)
        for block in self.blocks:
            if not self.training or torch.rand(()) < 0.5:
                h = h + block(h).relu()
        return self.o(h)


class FreezesInTrain(Two):
    """No gradient: `train` freezes the first layer. neuralmagic/sparseml#965"""

    def train(self, mode=True):
        super().train(mode)
        self.i.requires_grad_(False)
        return self


class NamedHead(Two):
    """No gradient: `named_parameters` names the head alone. stanfordnlp/pyvene#122"""

    def named_parameters(self, *args, **kwargs):
        return self.o.named_parameters(*args, **kwargs)


class NumpyOrder(Two):
    """Random numbers when it is built: NumPy's and Python's global generators are seeded."""

    def extend(self, num_outputs):
        self.register_buffer("order", torch.from_numpy(np.random.permutation(self.num_values)))

    def forward(self, x):
        return super().forward(x.flatten(1)[:, self.order])


class NumpyNoise(Two):
    """Random numbers in a pass: NumPy's global generator is seeded. xingyizhou/CenterNet#233"""

    def forward(self, x):
        noise = torch.from_numpy(np.random.normal(0, 0.1, tuple(x.shape))).float()
        return super().forward(x + noise if self.training else x)


class FunctionalDropout(Two):
    """Random numbers in a pass: F.dropout drops in evaluation, too. pytorch/pytorch#26338"""

    def forward(self, x):
        return self.o(F.dropout(self.hidden(x), 0.3))


class Normed(Two):
    """Batch norm."""

    def __init__(self, sample_shape, num_outputs, **options):
        super().__init__(sample_shape, num_outputs)
        self.bn = nn.BatchNorm1d(16, **options)

    def forward(self, x):
        return self.o(self.bn(self.hidden(x)))


class BatchStatistics(Normed):
    """Batch norm: the batch's statistics in evaluation, too. xu-ji/IIC#49"""

    def __init__(self, sample_shape, num_outputs):
        super().__init__(sample_shape, num_outputs, track_running_stats=False)


class FrozenEachPass(Normed):
    """Batch norm: set to evaluation in each pass. jfzhang95/pytorch-deeplab-xception#140"""

    def forward(self, x):
        self.bn.eval()
        return super().forward(x)


class AlwaysTraining(Normed):
    """Batch norm: evaluation uses and moves the statistics, too. awslabs/aws-cv-task2vec#23"""

    def train(self, mode=True):
        return super().train(True)


class SamplesAttribute(Two):
    """Names and methods: a parameter `samples`, which a tool may want for itself."""

    def extend(self, num_outputs):
        self.samples = nn.Parameter(torch.ones(num_outputs))

    def forward(self, x):
        return super().forward(x) * self.samples


class TrainReturnsNone(Two):
    """Names and methods: `train` does not return the module. neuraloperator/neuraloperator#338"""

    def train(self, mode=True):
        super().train(mode)


class Delegates(Two):
    """Names and methods: unknown attributes are those of a part. galilai-group/stable-pretraining#402"""

    def extend(self, num_outputs):
        self.inner = nn.Dropout(0.25)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, x):
        return self.o(self.inner(self.hidden(x)))


class OwnStateDict(Two):
    """Names and methods: `state_dict` has a part only, and `load_state_dict` refuses. lucidrains/ema-pytorch#7"""

    def state_dict(self, *args, **kwargs):
        return {"head": self.o.weight}

    def load_state_dict(self, *args, **kwargs):
        raise RuntimeError("use load_ema")


class ModelOutput(OrderedDict):
    """As that of transformers: a mapping, an attribute a key, and slices of the values."""

    def __getattr__(self, name):
        return self[name]

    def __getitem__(self, key):
        return super().__getitem__(key) if isinstance(key, str) else tuple(self.values())[key]


class LikeTransformers(Two):
    """Outputs: those of transformers, with the logits after a loss that is None. NVIDIA/apex#27"""

    def forward(self, x):
        h = self.hidden(x)
        return ModelOutput(hidden_states=(h,), logits=self.o(h))


Heads = namedtuple("Heads", ["logits", "aux_logits"])


class Auxiliary(Two):
    """Outputs: a second head in training, logits in evaluation. pytorch/vision#302"""

    def extend(self, num_outputs):
        self.aux = nn.Linear(16, num_outputs)

    def forward(self, x):
        h = self.hidden(x)
        return Heads(self.o(h), self.aux(h)) if self.training else self.o(h)


class OneOutput(Two):
    """Outputs: one number [B, 1], of a regression or a logit."""

    def __init__(self, sample_shape):
        super().__init__(sample_shape, 1)


class AnyClasses(Two):
    """Outputs: as many as its file says, or 12, as networks of a package have 1,000."""

    def __init__(self, sample_shape, **options):
        super().__init__(sample_shape, options.get("num_classes", 12))


class Pixels(nn.Module):
    """Images [B, C, H, W] of any size."""

    def __init__(self, sample_shape, num_outputs):
        super().__init__()
        self.conv, self.o = nn.Conv2d(sample_shape[0], 8, 3), nn.Linear(8, num_outputs)

    def forward(self, x):
        x = x.float() / 255 if x.dtype == torch.uint8 else x
        return self.o(self.conv(x).relu().mean((2, 3)))


class Symbols(nn.Module):
    """A language model without a state."""

    def __init__(self, num_symbols):
        super().__init__()
        self.table, self.o = nn.Embedding(num_symbols, 2), nn.Linear(2, num_symbols)

    def forward(self, symbols):
        return self.o(self.table(symbols))
