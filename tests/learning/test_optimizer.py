"""The flat optimizers against torch.optim on the same gradients, in every bit."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from syncline.learning.optimizer import OPTIMIZERS, Averaged, InParts, Optimizer
from syncline.learning.rmsprop import RmsProp
from syncline.learning.sgd import Sgd

SIZES: list[tuple[int, ...]] = [(7, 3, 3), (5,), (1,), (33, 17)]  # odd ones: vector code has tails
N = 630

Options = dict[str, Any]
Torch = Callable[[list[nn.Parameter], float], torch.optim.Optimizer]

unit = st.one_of(st.just(0.0), st.floats(0.01, 0.9999))  # in [0, 1)
decays = st.one_of(st.just(0.0), st.floats(1e-6, 0.1))
epsilons = st.floats(-10, 0).map(lambda exponent: 10**exponent)


@st.composite
def sgds(draw: st.DrawFn) -> tuple[Options, Torch]:
    momentum, weight_decay = draw(unit), draw(decays)
    nesterov = momentum > 0 and draw(st.booleans())
    ours = {"name": "sgd", "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
    return ours, lambda parameters, rate: torch.optim.SGD(
        parameters, rate, momentum, weight_decay=weight_decay, nesterov=nesterov, foreach=False
    )


@st.composite
def rmsprops(draw: st.DrawFn) -> tuple[Options, Torch]:
    alpha, eps, momentum, weight_decay = draw(unit), draw(epsilons), draw(unit), draw(decays)
    ours = {"name": "rmsprop", "alpha": alpha, "eps": eps, "momentum": momentum, "weight_decay": weight_decay}
    return ours, lambda parameters, rate: torch.optim.RMSprop(
        parameters, rate, alpha, eps, weight_decay, momentum, foreach=False
    )


@st.composite
def adams(draw: st.DrawFn) -> tuple[Options, Torch]:
    beta1, beta2, eps, weight_decay = draw(unit), draw(unit), draw(epsilons), draw(decays)
    name, theirs = draw(st.sampled_from([("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]))
    ours = {"name": name, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    return ours, lambda parameters, rate: theirs(
        parameters, rate, (beta1, beta2), eps=eps, weight_decay=weight_decay, foreach=False
    )


PLAIN: list[Options] = [
    {"name": "sgd", "momentum": 0.0, "weight_decay": 0.01},
    {"name": "sgd", "momentum": 0.9, "weight_decay": 0.01},
    {"name": "sgd", "momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
    {"name": "sgd", "momentum": 0.9, "weight_decay": 0.01, "form": "lr_inside"},
    {"name": "delayed_nesterov", "momentum": 0.9, "delay": 3, "weight_decay": 0.01},
    {"name": "rmsprop", "alpha": 0.9, "eps": 1e-8, "momentum": 0.0, "weight_decay": 0.0},
    {"name": "rmsprop", "alpha": 0.9, "eps": 1e-8, "momentum": 0.9, "weight_decay": 0.01},
    {"name": "rmsprop", "alpha": 0.9, "eps": 1.0, "momentum": 0.0, "weight_decay": 0.0, "form": "tensorflow"},
    {"name": "rmsprop", "alpha": 0.9, "eps": 1.0, "momentum": 0.9, "weight_decay": 0.01, "form": "tensorflow"},
    {"name": "adam", "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01},
    {"name": "adamw", "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01},
]
PLAIN += [options | {"average_decay": 0.9} for options in PLAIN if options["name"] in ("sgd", "adam")]
every_optimizer = pytest.mark.parametrize("options", PLAIN, ids=lambda options: "-".join(map(str, options.values())))


def build(name: str, average_decay: float | None = None, **options: Any) -> Optimizer:
    made = OPTIMIZERS[name](**options)
    return made if average_decay is None else Averaged(made, average_decay)


def gradients(steps: int, seed: int = 0) -> Sequence[Tensor]:
    """[n] each, of several sizes; some elements are exactly 0."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(steps, N, generator=generator) * torch.logspace(-4, 2, N)
    return drawn.mul_(torch.rand(N, generator=generator) > 0.05).unbind()


def start() -> Tensor:
    return torch.randn(N, generator=torch.Generator().manual_seed(99))


def bits(tensor: Tensor) -> Tensor:
    return tensor.detach().view(torch.int32)


@given(st.one_of(sgds(), rmsprops(), adams()), st.integers(3, 10), st.booleans(), st.floats(0, 0.5))
@scaled(150)
def test_it_equals_torch_in_every_bit(
    pair: tuple[Options, Torch], steps: int, in_place: bool, second_rate: float
) -> None:
    options, make = pair
    weights = start()
    parameters = [
        nn.Parameter(part.clone().view(size))
        for part, size in zip(weights.split([torch.Size(size).numel() for size in SIZES]), SIZES, strict=True)
    ]
    theirs, ours = make(parameters, 0.1), build(**options)
    for step, gradient in enumerate(gradients(steps)):
        theirs.param_groups[0]["lr"] = rate = 0.1 if step < steps // 2 else second_rate
        for parameter, part in zip(parameters, gradient.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = part.view(parameter.shape).clone()
        theirs.step()
        following = weights if in_place else torch.empty_like(weights)
        ours.step(weights, gradient, rate, out=following)
        weights = following
        expected = torch.cat([parameter.detach().view(-1) for parameter in parameters])
        assert torch.equal(bits(weights), bits(expected))


def run(optimizer: Optimizer, weights: Tensor, steps: Sequence[Tensor]) -> Tensor:
    for gradient in steps:
        optimizer.step(weights, gradient.clone(), 0.1, out=weights)
    return weights


@every_optimizer
def test_what_it_writes_does_not_depend_on_where(options: Options) -> None:
    """In place, and from version to version, where the previous version stays as it was."""
    in_place, by_version = build(**options), build(**options)
    weights, version = start(), start()
    for gradient in gradients(6):
        before = version.clone()
        following = torch.full_like(version, torch.nan)
        by_version.step(version, gradient.clone(), 0.1, out=following)
        assert torch.equal(bits(version), bits(before))
        run(in_place, weights, [gradient])
        assert torch.equal(bits(weights), bits(following))
        assert torch.equal(bits(in_place.evaluated(weights)), bits(by_version.evaluated(following)))
        version = following


@every_optimizer
@pytest.mark.parametrize("at", [0, 4])
def test_saved_and_loaded_it_continues_in_every_bit(options: Options, at: int) -> None:
    import safetensors.torch

    given = gradients(8)
    straight, broken_off, restored = build(**options), build(**options), build(**options)
    expected, weights = run(straight, start(), given), run(broken_off, start(), given[:at])
    state = broken_off.state_dict()
    on_disk = safetensors.torch.load(safetensors.torch.save(state))
    assert on_disk.keys() == state.keys()
    assert all(torch.equal(on_disk[name], tensor) for name, tensor in state.items())
    restored.load_state_dict(state)
    evaluated = broken_off.evaluated(weights).clone()
    run(
        broken_off, weights.clone(), given[at:]
    )  # the loaded state is a copy: steps of the first optimizer do not change it
    assert torch.equal(bits(restored.evaluated(weights)), bits(evaluated))
    run(restored, weights, given[at:])
    assert torch.equal(bits(weights), bits(expected))
    assert torch.equal(bits(restored.evaluated(weights)), bits(straight.evaluated(expected)))


@every_optimizer
def test_loading_a_state_without_steps_resets_it(options: Options) -> None:
    given = gradients(4)
    used = build(**options)
    run(used, start(), given)
    used.load_state_dict(build(**options).state_dict())
    assert torch.equal(bits(run(used, start(), given)), bits(run(build(**options), start(), given)))


@every_optimizer
def test_past_the_first_step_it_allocates_nothing(options: Options) -> None:
    optimizer, weights, size = build(**options), torch.zeros(10_000), 4 * 10_000
    gradient = torch.ones_like(weights)
    optimizer.step(weights, gradient, 0.1, out=weights)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        optimizer.step(weights, gradient, 0.1, out=weights)
        torch.empty(10_000)  # that the profiler would see it
    allocated = [event.self_cpu_memory_usage for event in profiled.key_averages() if event.self_cpu_memory_usage > 0]
    assert sum(allocated) < 1.1 * size
    assert sum(allocated) >= size


def test_every_name_is_tested() -> None:
    assert {options["name"] for options in PLAIN} == set(OPTIMIZERS)


def test_the_two_forms_of_momentum_differ_only_after_the_rate_changes():
    """MXNet keeps the rate inside the buffer: at constant rate it is torch's, after a drop old gradients count more."""
    weights = {form: torch.zeros(3, dtype=torch.float64) for form in ("torch", "lr_inside")}
    optimizers = {form: Sgd(0.9, 0.0, form) for form in weights}
    for step in range(6):
        for form, optimizer in optimizers.items():
            optimizer.step(
                weights[form], torch.ones(3, dtype=torch.float64), 0.1 if step < 4 else 0.01, out=weights[form]
            )
        same = torch.allclose(weights["torch"], weights["lr_inside"], rtol=0, atol=1e-12)
        assert same is (step < 4)
    # by hand: b = 3.439 after four steps; then torch moves by 0.01 (0.9 b + 1), MXNet by 0.9 * 0.1 b + 0.01
    b, moved = 3.439, 0.1 * (1 + 1.9 + 2.71 + 3.439)
    torch_form = moved + 0.01 * (0.9 * b + 1) + 0.01 * (0.9 * (0.9 * b + 1) + 1)
    inside = 0.09 * b + 0.01
    assert weights["torch"][0].item() == pytest.approx(-torch_form, abs=1e-12)
    assert weights["lr_inside"][0].item() == pytest.approx(-(moved + inside + 0.9 * inside + 0.01), abs=1e-12)


@given(st.integers(1, 5), st.floats(0.01, 0.99))
def test_delayed_nesterov_moves_in_n_steps_as_nesterov_does_with_their_mean(delay: int, momentum: float) -> None:
    """In between it moves without momentum."""
    delayed, nesterov = (
        build("delayed_nesterov", momentum=momentum, delay=delay, weight_decay=0.0),
        Sgd(momentum, 0.0, nesterov=True),
    )
    weights, expected = start().double(), start().double()
    for part in range(4):
        given = [gradient.double() for gradient in gradients(delay, seed=part)]
        for gradient in given[:-1]:
            before = weights.clone()
            delayed.step(weights, gradient.clone(), 0.1, out=weights)
            assert torch.allclose(weights, before - 0.1 / delay * gradient, rtol=1e-12)
        delayed.step(weights, given[-1].clone(), 0.1, out=weights)
        nesterov.step(expected, torch.stack(given).mean(0), 0.1, out=expected)
        assert torch.allclose(weights, expected, rtol=1e-12)


@scaled(30)
@given(
    st.one_of(sgds(), rmsprops(), adams()).map(lambda drawn: drawn[0]) | st.sampled_from(PLAIN),
    st.none() | st.floats(0.1, 0.99),
    st.lists(st.integers(1, N - 1), max_size=4, unique=True),
    st.data(),
)
def test_steps_of_parts_in_any_order_are_the_step_of_the_whole(
    options: Options, average_decay: float | None, cuts: list[int], data: st.DataObject
) -> None:
    """In every bit, and so is what is evaluated; a state is restored in between."""
    edges = [0, *sorted(cuts), N]
    places = [slice(begin, end) for begin, end in pairwise(edges)]

    def make() -> Optimizer:
        return build(**options | {"average_decay": average_decay})

    whole, parts = make(), InParts(lambda place: make(), places)
    torch.manual_seed(0)
    weights = torch.randn(N)
    ours = weights.clone()
    for rate in (0.1, 0.03, 0.01):
        gradient = torch.randn(N)
        for place in data.draw(st.permutations(places)):
            parts.step_part(place, ours, gradient.clone(), rate, out=ours)
        whole.step(weights, gradient, rate, out=weights)
        assert torch.equal(ours, weights)
        assert torch.equal(parts.evaluated(ours), whole.evaluated(weights))
        restored = InParts(lambda place: make(), places)
        restored.load_state_dict({name: tensor.clone() for name, tensor in parts.state_dict().items()})
        parts = restored


@given(
    st.floats(0, 0.99),
    st.floats(-10, 0).map(lambda exponent: 10**exponent),
    st.one_of(st.just(0.0), st.floats(0.1, 0.99)),
    st.one_of(st.just(0.0), st.floats(1e-5, 0.1)),
    st.integers(5, 20),
)
def test_rmsprop_in_tensorflows_form_equals_the_formula_of_apply_rmsprop(
    alpha: float, eps: float, momentum: float, weight_decay: float, steps: int
) -> None:
    """TensorFlow 1's, in float64."""
    generator = np.random.default_rng(0)
    expected = generator.standard_normal(50)
    weights = torch.from_numpy(expected.copy())
    mean_square, moving = np.ones(50), np.zeros(50)
    ours = RmsProp(alpha, eps, momentum, weight_decay, form="tensorflow")
    for step, gradient in enumerate(generator.standard_normal((steps, 50))):
        rate = 0.045 * 0.94**step
        ours.step(weights, torch.from_numpy(gradient.copy()), rate, out=weights)
        gradient += weight_decay * expected
        mean_square = alpha * mean_square + (1 - alpha) * gradient**2
        moving = momentum * moving + rate * gradient / np.sqrt(mean_square + eps)
        expected = expected - moving
        np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-10, atol=1e-13)
