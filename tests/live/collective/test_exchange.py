"""What a member sends in a step, with a group of one."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import HashStore  # type: ignore[attr-defined]

from syncline.learning.flat import FlatModule
from syncline.live.collective import exchange
from syncline.live.collective.exchange import AllReduce, Overlapped
from syncline.live.collective.process_group import Group


@pytest.fixture(autouse=True)
def _group_of_one() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Elements of each all-reduce so far."""
    sent = list[int]()
    for name in ("all_reduce", "start_all_reduce"):
        own = getattr(exchange, name)

        def counted(tensor: Tensor, group: Group, own: Callable[[Tensor, Group], object] = own) -> object:
            sent.append(tensor.numel())
            return own(tensor, group)

        monkeypatch.setattr(exchange, name, counted)
    return sent


def network() -> FlatModule:
    """21 elements: weights of 12 and 3, batch norm of 3 and 3; with 6 of its buffers and 2 extra ones beside them."""
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    return FlatModule(module, num_extra=2)


@pytest.mark.parametrize("averages_weights", [False, True])
@pytest.mark.parametrize(("bucket", "parts"), [(8, [8, 8, 5]), (7, [7, 7, 7]), (100, [21])])
def test_an_overlapped_step_sends_each_element_once_and_the_last_part_takes_along_what_is_beside(
    averages_weights: bool, bucket: int, parts: list[int], sizes: list[int]
) -> None:
    flat = network()
    overlapped = Overlapped(flat, averages_weights, 4 * bucket)
    for turn in range(3):
        sizes.clear()
        flat.gradient.zero_()
        overlapped.begin(None)
        flat.module(torch.randn(5, 4)).square().sum().backward()
        overlapped.complete()
        flat.extra.copy_(torch.tensor([0.5, float(turn)]))
        expected = (flat.with_weights if averages_weights else flat.with_gradient).clone()
        assert overlapped.average(None, turn) == [0.5, turn]
        assert sizes == [*parts[:-1], parts[-1] + 8]
        assert torch.equal(flat.with_weights if averages_weights else flat.with_gradient, expected)


@pytest.mark.parametrize(("per_tensor", "expected"), [(False, [29]), (True, [12, 3, 3, 3, 8])])
def test_a_step_is_one_all_reduce_or_one_a_tensor(per_tensor: bool, expected: list[int], sizes: list[int]) -> None:
    AllReduce(network(), averages_weights=False, per_tensor=per_tensor).average(None, 0)
    assert sizes == expected
