"""syncline export: the weights that a run has ended with, as its model keeps them."""

import argparse
from pathlib import Path
from typing import Any

from syncline.config import from_plain
from syncline.operations.names import find_record
from syncline.records.snapshots import read_state
from syncline.records.store import RecordError, check_file, read_run_config

FILE = "model.safetensors"


def main(asked: argparse.Namespace) -> int:
    """Write them, and name the folder."""
    record = find_record(asked.record, asked.results)
    print(export(record, asked.output or record / "model"))
    return 0


def export(record: Path, into: Path) -> Path:
    """Write what is evaluated at the end of a run into a folder, as the state dict of its model.

    A model of transformers is written by itself, so that its `from_pretrained` reads the folder. Of replicas it is the
    mean, or the first one, as evaluated.

    Returns:
        The folder.

    Raises:
        RecordError: the run is not finished, or has kept no parameters. ConfigError: its model cannot be built here.
    """
    import torch
    from safetensors.torch import save_file

    from syncline.assembly.data import shape_of
    from syncline.assembly.network import build_flat
    from syncline.learning.evaluate import evaluated_parts

    paths = sorted(record.glob("parameters-*.safetensors"), key=lambda path: int(path.stem.partition("-")[2]))
    if not paths:
        raise RecordError(
            f"{record} has no parameters: it is not finished, or is of virtual time without runner.parameters=true"
        )
    for path in paths:
        check_file(path)
    config = from_plain(read_run_config(record))
    flat = build_flat(config, shape_of(config), torch.device("cpu"))
    weights, buffers, _ = evaluated_parts([read_state(path)[0] for path in paths], config.strategy.evaluates_mean)
    flat.load(weights, buffers)
    flat.train(False)
    into.mkdir(parents=True, exist_ok=True)
    model: Any = next((each for each in flat.module.modules() if hasattr(each, "save_pretrained")), None)
    if model is not None:
        model.save_pretrained(into)
    else:
        state = flat.module.state_dict()
        save_file({name: tensor.detach().clone() for name, tensor in state.items()}, into / FILE)
    return into
