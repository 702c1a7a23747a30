"""Models that are broken, of the cases of test_own_cases.py; docstrings as in case_models.py."""

import copy

import numpy as np
import torch
from case_models import Normed, Two
from torch import nn
from torch.nn import functional as F


class Overlap(Two):
    """Storage: two parameters have some rows of one tensor in common. torch/nn#78"""

    def extend(self, num_outputs):
        base = torch.randn(24, 16) * 0.1
        self.q, self.k = nn.Parameter(base[:16]), nn.Parameter(base[8:])

    def forward(self, x):
        h = self.hidden(x)
        return self.o(h + F.linear(h, self.q).tanh() + F.linear(h, self.k))


def lazy(num_outputs):
    """Made late: layers without sizes before the first pass. meta-pytorch/torchrec#740"""
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(num_outputs))


class Clipped(Two):
    """Changed in a pass: all weights are clipped. znxlwm/pytorch-generative-model-collections#31"""

    def forward(self, x):
        for parameter in self.parameters():
            parameter.data.clamp_(-0.05, 0.05)
        return super().forward(x)


class Counts(Two):
    """State: a Python count sets a temperature. umran666/UniqToken#12"""

    passes = 0

    def forward(self, x):
        self.passes += self.training
        return super().forward(x) / (1 + 0.1 * self.passes)


class CumulativeNorm(Normed):
    """State: batch norm with momentum=None reads how many batches it has seen. pytorch/pytorch#5766"""

    def __init__(self, sample_shape, num_outputs):
        super().__init__(sample_shape, num_outputs, momentum=None)


class Remembers(Two):
    """State: that of a recurrent cell is kept from batch to batch. keras-team/keras#1902"""

    def extend(self, num_outputs):
        self.cell, self.state = nn.GRUCell(16, 16), torch.zeros(16)

    def forward(self, x):
        h = self.cell(self.hidden(x), self.state.expand(len(x), 16))
        self.state = h.detach().mean(0)
        return self.o(h)


class Teacher(Two):
    """State: parameters that are not trained follow the others in passes. lucidrains/byol-pytorch#95"""

    def extend(self, num_outputs):
        self.teacher = copy.deepcopy(self.o).requires_grad_(False)

    def forward(self, x):
        h = self.hidden(x)
        if self.training:
            for mean, parameter in zip(self.teacher.parameters(), self.o.parameters(), strict=True):
                mean.data.lerp_(parameter.data, 0.1)
        return self.o(h) + self.teacher(h)


class Unseeded(Two):
    """Random numbers when it is built: a generator without a seed. GPflow/GPflow#416"""

    def extend(self, num_outputs):
        drawn = np.random.default_rng().normal(size=(self.num_values, self.num_values)) / 8
        self.register_buffer("projection", torch.from_numpy(drawn).float())

    def forward(self, x):
        return super().forward(x.flatten(1) @ self.projection)


class SetOrder(Two):
    """Random numbers when it is built: layers in the order of a set of words. huggingface/transformers#48162"""

    def extend(self, num_outputs):
        kinds = {"sliding", "full", "local", "global", "chunked", "linear"}
        self.layers = nn.ModuleDict({kind: nn.Linear(16, 16) for kind in kinds})

    def forward(self, x):
        h = self.hidden(x)
        for kind in sorted(self.layers):
            h = h + self.layers[kind](h).tanh()
        return self.o(h)


class Synchronised(Normed):
    """Batch norm over all workers."""

    def __init__(self, sample_shape, num_outputs):
        super().__init__(sample_shape, num_outputs)
        self.bn = nn.SyncBatchNorm(16)


class TrainFits(Two):
    """Names and methods: `train` is a loop of its own. KindXiaoming/pykan#108"""

    def train(self, dataset, epochs):
        raise NotImplementedError


class Sparse(Two):
    """Gradients: those of an embedding are sparse."""

    def extend(self, num_outputs):
        self.table = nn.Embedding(4, num_outputs, sparse=True)

    def forward(self, x):
        return super().forward(x) + self.table(x.flatten(1).abs().long().clamp(max=3)).mean(1)


class Double(Two):
    """Kinds of numbers: parameters of float64. tfjgeorge/nngeometry#70"""

    def extend(self, num_outputs):
        self.double()

    def forward(self, x):
        return super().forward(x.double()).float()


class FewLogits(Two):
    """Outputs: of some samples of a batch alone."""

    def forward(self, x):
        return super().forward(x)[:3]


class Raises(Two):
    """Outputs: none, but an error."""

    def forward(self, x):
        raise KeyError("x")


class NeedsWidth(Two):
    """Names and methods: an argument that its file lacks."""

    def __init__(self, sample_shape, num_outputs, width):
        super().__init__(sample_shape, num_outputs)


class Average(Two):
    """State: a buffer that each pass assigns anew, which is read in evaluation alone."""

    def extend(self, num_outputs):
        self.register_buffer("average", torch.zeros(16))

    def hidden(self, x):
        h = super().hidden(x)
        if self.training:
            self.average = 0.9 * self.average + 0.1 * h.detach().mean(0)
            return h
        return h - self.average


class NoNumber(Two):
    """Outputs: not a number, of finite samples."""

    def forward(self, x):
        return super().forward(x) * float("nan")
