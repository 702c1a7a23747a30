"""Real processes on text and clicks: random layers, clipping, averaged weights, optimizers with a state."""

import pytest
import torch
from live.here import Launcher

from syncline.simulation.run import build_replicas, build_server_training

pytestmark = pytest.mark.processes

SHORT = ["epochs=null", "max_updates=12", "batch_size=8", "eval_every_epochs=1000", "cluster.gradient_s=[0.01]"]


@pytest.mark.parametrize(
    "words",
    [
        # dropout, batch norm, two shards of an Adam, of which each keeps the average of its own block
        ["model=deepfm", "dataset=ctr_synthetic", "model.hidden=[8,8]", "dataset.train_size=200", "optimizer=adam"],
        # draws its latent vectors; TensorFlow's RMSProp
        ["model=draw_small", "dataset=digits", "optimizer=rmsprop", "optimizer.lr=0.01", "optimizer.clip_norm=1"],
    ],
    ids=["deepfm", "draw"],
)
def test_a_run_through_two_shards_is_replayed_in_every_bit_and_its_averaged_weights_are_evaluated(
    words, launch: Launcher
):
    average = ["strategy=asp", "cluster.workers=2", "cluster.shards=2", "optimizer.average_decay=0.9"]
    run = launch(*words, *SHORT, *average)
    again = run.replayed()
    for metric in run.config.metrics:
        assert again["final"][metric] == run.summary["final"][metric], "the same average, to the last bit"
    weights, evaluated = (torch.cat([state[key] for state in run.states]) for key in ("weights", "evaluated"))
    assert not torch.equal(weights, evaluated)
    learning = build_server_training(run.config)
    found = learning.evaluator([evaluated], run.states[0]["buffers"])
    assert found == {metric: run.summary["final"][metric] for metric in run.config.metrics}


def test_divide_and_shuffle_of_a_language_model_equals_virtual_time(launch: Launcher):
    """To rounding; the mean of the replicas' averages is evaluated."""
    words = ["model=char_lstm", "model.hidden_size=16", "dataset=pydoc_text", "dataset.length=16"]
    words += ["dataset.train_size=400", "dataset.test_size=40", "optimizer=adam", "optimizer.average_decay=0.9"]
    words += [*SHORT, "strategy=ds_sync", "cluster.workers=4"]
    run = launch(*words)
    measured = run.rows[-1]
    _, rows, _ = run.in_virtual_time()
    for metric in (*run.config.metrics, "divergence"):
        assert measured[metric] == pytest.approx(rows[-1][metric], rel=1e-4), metric
    replicas = build_replicas(run.config)
    mean = torch.stack([state["evaluated"] for state in run.states]).mean(0)
    assert replicas.evaluator([mean], run.states[0]["buffers"])["loss"] == pytest.approx(measured["loss"], rel=1e-5)
