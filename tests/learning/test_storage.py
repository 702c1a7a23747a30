"""What shares a parameter's memory follows it into the flat vector, or is refused with both names."""

import pytest
import torch
from torch import nn

from syncline.learning.flat import FlatModule


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)


def attribute(net: Net) -> None:
    net.alias = net.first.weight.detach()


def row_in_a_list(net: Net) -> None:
    net.rows = [{"row": net.first.weight.data[1]}]


def frozen(net: Net) -> None:
    net.second.weight = nn.Parameter(net.first.weight.data, requires_grad=False)


@pytest.mark.parametrize(
    ("share", "seen", "expected"),
    [
        (attribute, lambda net: net.alias, lambda weight: weight),
        (row_in_a_list, lambda net: net.rows[0]["row"], lambda weight: weight[1]),
        (frozen, lambda net: net.second.weight, lambda weight: weight),
    ],
    ids=["attribute", "row", "frozen parameter"],
)
def test_other_tensors_follow(share, seen, expected) -> None:
    net = Net()
    share(net)
    flat = FlatModule(net)
    flat.weights.copy_(torch.arange(flat.weights.numel()))
    assert torch.equal(seen(net).detach(), expected(net.first.weight.detach()))


def tied_by_data(net: Net) -> None:
    net.second.weight.data = net.first.weight.data


def tied_transposed(net: Net) -> None:
    net.second.weight.data = net.first.weight.data.t()


def buffer(net: Net) -> None:
    net.register_buffer("seen", net.first.weight.detach())


def closure(net: Net) -> None:
    weight = net.first.weight.data
    net.score = lambda x: x @ weight


def larger(net: Net) -> None:
    net.base = torch.zeros(8, 4)
    net.first.weight.data = net.base[:4]


def of_a_graph(net: Net) -> None:
    net.rows = [net.first.weight[0]]


def expanded(net: Net) -> None:
    net.first.bias = nn.Parameter(torch.ones(1).expand(4))


@pytest.mark.parametrize(
    ("share", "line"),
    [
        (tied_by_data, "first.weight and second.weight share memory, but are two tensors"),
        (tied_transposed, "first.weight and second.weight share memory, but are two tensors"),
        (buffer, "first.weight and seen share memory, but are two tensors"),
        (closure, "first.weight shares memory with a tensor that is no attribute of the model"),
        (larger, "base shares memory with first.weight"),
        (of_a_graph, "rows.0 shares memory with first.weight"),
        (expanded, "first.bias has several elements in one place of memory"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_could_not_follow_is_refused(share, line: str) -> None:
    net = Net()
    share(net)
    with pytest.raises(ValueError, match=f"^{line}"):
        FlatModule(net)


@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm"])
@pytest.mark.filterwarnings("ignore")
def test_norms_that_keep_the_weight_as_an_attribute_are_taken(norm: str) -> None:
    layer = getattr(nn.utils, norm)(nn.Linear(4, 3))
    flat = FlatModule(nn.Sequential(layer))
    layer(torch.ones(2, 4)).sum().backward()
    assert flat.gradient.any()


def test_a_tensor_with_two_names_counts_once() -> None:
    net = Net()
    net.second.weight = net.first.weight
    flat = FlatModule(net)
    assert [place.name for place in flat.layout.places] == ["first.weight", "first.bias", "second.bias"]


def test_parameters_and_buffers_of_the_loss_lie_behind_those_of_the_model() -> None:
    loss = nn.Module()
    loss.centres = nn.Parameter(torch.ones(3))
    loss.register_buffer("seen", torch.zeros(2))
    flat = FlatModule(nn.Linear(2, 1), loss=loss)
    assert [place.name for place in flat.layout.places] == ["weight", "bias", "task.centres"]
    assert flat.weights[-3:].tolist() == [1, 1, 1]
    flat.train(False)
    assert not loss.training


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda net: setattr(net, "third", nn.Linear(2, 2)), "third.bias is made, or its requires_grad set"),
        (
            lambda net: setattr(net.first, "weight", nn.Parameter(torch.ones(4, 4))),
            "first.weight is not trained any more",
        ),
        (lambda net: net.first.weight.requires_grad_(False), "first.weight is not trained any more"),
        (lambda net: setattr(net.first.weight, "data", torch.ones(4, 4)), "first.weight: a pass replaces its data"),
        (lambda net: net.zero_grad(), "first.weight: its gradient must be dense"),
    ],
    ids=["new", "another", "frozen", "data", "gradient"],
)
def test_a_module_that_changes_is_told(change, line: str) -> None:
    net = Net()
    flat = FlatModule(net)
    flat.check()
    change(net)
    with pytest.raises(ValueError, match=f"^{line}"):
        flat.check()
