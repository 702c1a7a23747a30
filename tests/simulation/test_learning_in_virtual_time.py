"""Simulated runs with real, stale gradients, against plain PyTorch loops."""

import math
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest
import simulations
import torch
from simulations import final_state
from torch import nn

from benchmarks.measuring import simulated
from syncline.config import DigitsConfig, ModelConfig, ResnetConfig, RunConfig, SgdConfig
from syncline.config.optimizers import ScheduleConfig
from syncline.datasets.registry import load
from syncline.datasets.sharding import WorkerShare
from syncline.models import build
from syncline.simulation.run import simulate
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import ClusterConfig

SGD = SgdConfig(lr=0.02, momentum=0.9, weight_decay=1e-3)
CPU = torch.device("cpu")


config_of = partial(
    simulations.config_of,
    dataset=DigitsConfig(train_size=100, test_size=50),  # 6.25 mini-batches an epoch of one worker
    optimizer=SGD,
    strategy=AspOptions(),
    cluster=ClusterConfig(workers=1, gradient_s=[1.0]),
    batch_size=16,
    max_updates=15,
)


class PlainLoop:
    """An ordinary training loop: nn.Module, DataLoader order, torch.optim.SGD."""

    def __init__(self, config: RunConfig) -> None:
        self.dataset = load(**config.dataset.loader_options())
        _, channels, size, _ = self.dataset.train.samples.shape
        torch.manual_seed(config.seed)
        shape = {"in_channels": channels, "image_size": size, "num_classes": self.dataset.num_classes}
        self.module = build(**asdict(config.model), **shape)
        self.source = self.dataset.batch_source(CPU, "classification")
        optimizer = config.optimizer
        self.optimizer = torch.optim.SGD(
            self.module.parameters(), lr=optimizer.lr, momentum=optimizer.momentum, weight_decay=optimizer.weight_decay
        )

    def step(self, indices) -> None:
        images, labels = self.source.take(np.asarray(indices), None)
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.module(images), labels).backward()
        self.optimizer.step()

    def state(self) -> tuple[torch.Tensor, torch.Tensor]:
        buffers = [buffer.reshape(-1) for buffer in self.module.buffers() if buffer.is_floating_point()]
        weights = torch.cat([parameter.detach().reshape(-1) for parameter in self.module.parameters()])
        return weights, torch.cat(buffers) if buffers else torch.empty(0)


SOFTMAX, LENET, RESNET = ModelConfig(name="softmax_regression"), ModelConfig(), ResnetConfig(depth=8, width=4)


@pytest.mark.parametrize(
    ("model", "strategy", "sharing"),
    [
        (LENET, AspOptions(), "partition"),
        (RESNET, AspOptions(), "partition"),  # the statistics of batch norm must also agree
        (SOFTMAX, BspOptions(), "partition"),
        (SOFTMAX, SspOptions(), "partition"),
        (SOFTMAX, AspOptions(), "shared"),  # all workers take batches from one order of the samples
        (SOFTMAX, BspOptions(), "shared"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_with_one_worker_it_is_a_plain_loop_in_every_bit(model, strategy, sharing):
    """Over more than two epochs, with momentum and weight decay."""
    dataset = DigitsConfig(train_size=100, test_size=50, sharing=sharing)
    config = config_of(model=model, strategy=strategy, dataset=dataset)
    plain = PlainLoop(config)
    share = WorkerShare(100, 1, 0, config.batch_size, config.seed)
    for iteration in range(15):
        plain.step(share.batch(iteration))
    for ours, theirs in zip(final_state(config), plain.state(), strict=True):
        assert torch.equal(ours, theirs)


def test_bsp_of_four_workers_is_one_step_on_the_joined_batch_whatever_the_number_of_shards():
    clusters = [ClusterConfig(workers=4, shards=shards, gradient_s=[1.0, 2.0, 1.5]) for shards in (1, 3)]
    config = config_of(strategy=BspOptions(), cluster=clusters[0])
    plain = PlainLoop(config)
    shares = [WorkerShare(plain.dataset.num_train, 4, worker, 16, config.seed) for worker in range(4)]
    for iteration in range(15):
        plain.step([index for share in shares for index in share.batch(iteration)])
    whole, in_blocks = (final_state(replace(config, cluster=cluster))[0] for cluster in clusters)
    assert torch.equal(whole, in_blocks)
    assert (whole - plain.state()[0]).abs().max() < 1e-6


def test_asp_computes_each_gradient_at_the_weights_the_worker_was_granted():
    """Against a small reference with a copy of the weights for each worker; one is three times slower."""
    config = config_of(cluster=ClusterConfig(workers=2, gradient_s=[1.0, 2.9]), max_updates=24)
    plain = PlainLoop(config)
    shares = [WorkerShare(plain.dataset.num_train, 2, worker, 16, config.seed) for worker in range(2)]
    parameters = list(plain.module.parameters())
    server = [parameter.detach().clone() for parameter in parameters]
    copies, iterations, ends = [server, server], [0, 0], [1.0, 2.9]
    for _ in range(24):
        worker = ends.index(min(ends))
        for parameter, value in zip(parameters, copies[worker], strict=True):
            parameter.data = value.clone()
        indices = shares[worker].batch(iterations[worker])
        images, labels = plain.source.take(indices, None)
        plain.optimizer.zero_grad()
        nn.functional.cross_entropy(plain.module(images), labels).backward()
        for parameter, value in zip(parameters, server, strict=True):
            parameter.data = value.clone()  # the stale gradient is applied to the server's weights
        plain.optimizer.step()
        server = [parameter.detach().clone() for parameter in parameters]
        copies[worker] = server
        iterations[worker] += 1
        ends[worker] += (1.0, 2.9)[worker]
    assert iterations == [18, 6]
    assert torch.equal(final_state(config)[0], torch.cat([value.reshape(-1) for value in server]))


def test_batch_norm_statistics_are_the_mean_of_those_pushed():
    """BSP, one update of two workers: the server's statistics are the mean of those of the two forward passes."""
    config = config_of(
        model=RESNET, strategy=BspOptions(), cluster=ClusterConfig(workers=2, gradient_s=[1.0]), max_updates=1
    )
    statistics = []
    for worker in range(2):
        plain = PlainLoop(config)
        plain.step(WorkerShare(plain.dataset.num_train, 2, worker, 16, config.seed).batch(0))
        statistics.append(plain.state()[1])
    assert torch.allclose(final_state(config)[1], (statistics[0] + statistics[1]) / 2, rtol=0, atol=1e-7)


def test_asynchronous_gradients_may_be_divided_by_the_number_of_workers():
    """`mean_over_workers`: four asynchronous workers move a quarter as far in the first update."""
    start = final_state(
        config_of(
            cluster=ClusterConfig(workers=4, gradient_s=[1.0, 9.0, 9.0, 9.0]),
            max_updates=1,
            optimizer=SgdConfig(lr=1e-30, momentum=0.0),
        )
    )[0]
    moved = {}
    for reading in ("mean", "mean_over_workers"):
        config = config_of(
            cluster=ClusterConfig(workers=4, gradient_s=[1.0, 9.0, 9.0, 9.0]),
            optimizer=SgdConfig(lr=0.1, momentum=0.0),
            async_gradient=reading,
            max_updates=1,
        )
        moved[reading] = final_state(config)[0] - start
    assert moved["mean"].abs().max() > 1e-3
    assert torch.allclose(moved["mean_over_workers"], moved["mean"] / 4, rtol=1e-4, atol=1e-7)
    config = config_of(strategy=BspOptions(), cluster=ClusterConfig(workers=4, gradient_s=[1.0]), max_updates=5)
    by_workers = final_state(replace(config, async_gradient="mean_over_workers"))[0]
    assert torch.equal(final_state(config)[0], by_workers), "synchronous updates have as many gradients as workers"


def curve(config: RunConfig) -> list[dict]:
    rows: list[dict] = []
    simulate(config, rows.append, lambda progress: None)
    return rows


def test_the_learning_rate_follows_its_clock():
    """4 workers, drop at epoch 2: by samples at 2, by server updates (asynchronous) at 0.5."""
    changes = {
        "cluster": ClusterConfig(workers=4, gradient_s=[1.0]),
        "optimizer": SgdConfig(lr=0.01, schedule=ScheduleConfig(factor=0.1, at_epochs=[2])),
        "max_updates": None,
        "epochs": 3,
        "eval_every_epochs": 0.25,
    }
    for clock, drop in (("samples", 2.0), ("server_updates", 0.5)):
        rates = {row["epoch"]: row["learning_rate"] for row in curve(config_of(lr_clock=clock, **changes))}
        assert {rate for epoch, rate in rates.items() if epoch < drop} == {0.01}
        assert {round(rate, 9) for epoch, rate in rates.items() if epoch >= drop} == {0.001}


def test_evaluations_are_on_time_and_take_no_virtual_time():
    """One after every quarter of an epoch, at the first update that completes it, and one of the last state."""
    config = config_of(max_updates=None, epochs=2, eval_every_epochs=0.25)
    rows = curve(config)
    updates_per_epoch = 100 / 16
    assert [row["updates"] for row in rows] == [math.ceil(k * updates_per_epoch / 4) for k in range(9)]
    assert [row["time_s"] for row in rows] == [float(row["updates"]) for row in rows]
    sparse = curve(replace(config, eval_every_epochs=1))
    assert sparse[-1]["loss"] == rows[-1]["loss"], "evaluating more often changes nothing"


def test_a_loss_that_is_not_finite_ends_the_run_as_diverged():
    config = config_of(model=LENET, optimizer=SgdConfig(lr=1e9, momentum=0.9), max_updates=500)
    summary = simulated(config)
    assert summary["status"] == "diverged"
    assert summary["updates"] < 500
