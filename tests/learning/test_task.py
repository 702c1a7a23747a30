"""Losses and metrics of every task on networks and data whose answers are known."""

import math
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from syncline.datasets.questions import QuestionSource
from syncline.datasets.text_source import TextSource
from syncline.learning.task import AUXILIARY_WEIGHT, TASKS
from syncline.metrics import METRICS


class Answers(nn.Module):
    """Returns the next of the given answers for every batch; records its inputs."""

    def __init__(self, *answers) -> None:
        super().__init__()
        self.answers = list(answers)
        self.asked: list[tuple] = []

    def forward(self, *asked):
        self.asked.append(asked)
        return self.answers[len(self.asked) - 1]


@dataclass
class Held:
    """A source whose test set is these batches."""

    batches: list[tuple[Tensor, ...]]
    is_random: bool = False

    def take(self, indices, generator):
        raise AssertionError

    def test(self):
        yield from self.batches


@dataclass
class Questions(Held, QuestionSource):
    scored: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def score(self, firsts, lasts):
        self.scored.append((firsts, lasts))
        return 0.25, 0.5


@dataclass
class Text(Held, TextSource):
    characters: int = 1
    words: int = 1
    length: int = 2


def evaluated(name: str, module: nn.Module, source: Held) -> dict[str, float]:
    """The metrics of a task, which come in the order of the table: the first one is what a run is judged by."""
    found = TASKS[name].evaluate(module, source)
    assert tuple(found) == METRICS[name]
    return found


def test_a_second_head_counts_two_fifths_while_learning():
    labels = torch.tensor([0, 2])
    logits, auxiliary = torch.randn(2, 3), torch.randn(2, 3)
    entropy = nn.functional.cross_entropy
    task = TASKS["classification"]
    assert task.loss(Answers(logits), (torch.zeros(2), labels)) == entropy(logits, labels)
    outputs = SimpleNamespace(logits=logits, aux_logits=auxiliary)
    both = task.loss(Answers(outputs), (torch.zeros(2), labels))
    assert both == entropy(logits, labels) + AUXILIARY_WEIGHT * entropy(auxiliary, labels)
    assert AUXILIARY_WEIGHT == 0.4


def test_top_1_top_5_and_log_loss_over_batches_of_unequal_size():
    ranks = [0, 4, 5, 0, 1]  # of the right class among eight
    logits = torch.stack([torch.arange(8, 0, -1).float().roll(3 - rank) for rank in ranks])  # the right class is 3
    labels = torch.full((5,), 3)
    source = Held([(logits[:3], labels[:3]), (logits[3:], labels[3:])])
    found = evaluated("classification", nn.Identity(), source)
    assert (found["accuracy"], found["top5"]) == (2 / 5, 4 / 5)
    assert found["loss"] == pytest.approx(nn.functional.cross_entropy(logits, labels).item())


def test_a_bound_is_the_mean_over_images_not_over_batches():
    source = Held([(torch.zeros(3, 1, 2, 2),), (torch.zeros(1, 1, 2, 2),)])
    module = Answers(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0]))
    assert evaluated("generation", module, source) == {"bound": 4.0}
    loss = TASKS["generation"].loss(Answers(torch.tensor([1.0, 2.0, 6.0])), (torch.zeros(3, 1, 2, 2),))
    assert loss == 3.0


def question_batch(first: list[int], last: list[int], length: int) -> tuple[Tensor, ...]:
    shape = (len(first), length)
    rows = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
    return (*rows, torch.tensor(first), torch.tensor(last))


def test_the_loss_of_an_answer_is_the_mean_of_its_first_and_its_last_token():
    begins, ends = torch.randn(2, 6), torch.randn(2, 6)
    batch = question_batch([1, 0], [3, 0], 6)
    loss = TASKS["qa"].loss(Answers((begins, ends)), batch)
    entropy = nn.functional.cross_entropy
    assert loss == (entropy(begins, batch[3]) + entropy(ends, batch[4])) / 2


def test_all_rows_are_scored_at_once_and_no_padding_can_be_an_answer():
    parts = [(torch.randn(2, 6), torch.randn(2, 6)), (torch.randn(1, 4), torch.randn(1, 4))]
    source = Questions([question_batch([1, 0], [3, 0], 6), question_batch([2], [2], 4)])
    found = evaluated("qa", Answers(*parts), source)
    assert (found["exact_match"], found["f1"]) == (0.25, 0.5)
    ((firsts, lasts),) = source.scored
    for logits, (wide, narrow) in ((firsts, (parts[0][0], parts[1][0])), (lasts, (parts[0][1], parts[1][1]))):
        assert torch.equal(logits[:2], wide)
        assert torch.equal(logits[2:, :4], narrow)
        assert (logits[2:, 4:] == -math.inf).all()
    losses = [TASKS["qa"].loss(Answers(part), batch).item() for part, batch in zip(parts, source.batches, strict=True)]
    assert found["loss"] == pytest.approx((2 * losses[0] + losses[1]) / 3)


def test_clicks_are_ranked_over_the_whole_test_set():
    logits = [torch.tensor([2.0, -1.0, 0.0]), torch.tensor([3.0, 1.0])]
    clicked = [torch.tensor([1.0, 0.0, 1.0]), torch.tensor([1.0, 0.0])]
    source = Held([(torch.zeros(1), torch.zeros(1), part) for part in clicked])
    found = evaluated("ctr", Answers(*logits), source)
    assert found["auc"] == pytest.approx(5 / 6)  # of six pairs one is in the wrong order: 0.0 clicked, 1.0 not
    p = torch.cat(logits).double().sigmoid()
    y = torch.cat(clicked)
    assert found["loss"] == pytest.approx(-(y * p.log() + (1 - y) * (1 - p).log()).mean().item())


def test_text_that_is_guessed_at_random_costs_the_bits_of_its_alphabet():
    """Uniform over 8 symbols: 3 bits each; with 2 words of 5 symbols, a word costs 8^5."""
    targets = torch.randint(0, 8, (2, 5))
    source = Text([(targets, targets)], characters=10, words=2)
    found = evaluated("language", Answers((torch.zeros(2, 5, 8), None)), source)
    assert found["bits_per_character"] == pytest.approx(3.0)
    assert found["word_perplexity"] == pytest.approx(8.0**5, rel=1e-5)  # logits are float32
    assert found["loss"] == pytest.approx(math.log(8))


def test_tokens_have_a_loss_and_its_exponential():
    targets = torch.randint(0, 8, (2, 5))
    source = Text([(targets, targets)])
    found = evaluated("next_token", Answers((torch.zeros(2, 5, 8), None)), source)
    assert found == {"loss": pytest.approx(math.log(8)), "perplexity": pytest.approx(8.0)}


def test_the_state_carries_over_between_pieces_and_padding_does_not_count():
    logits = torch.randn(1, 3, 4)
    pieces = [torch.tensor([[0, 1, 2]]), torch.tensor([[3, -1, -1]])]
    source = Text([(piece.clamp(min=0), piece) for piece in pieces], characters=4, words=1)
    module = Answers((logits, "first state"), (logits, "second state"))
    found = evaluated("language", module, source)
    assert [asked[1] for asked in module.asked] == [None, "first state"]
    nats = -logits.log_softmax(2)
    expected = nats[0, 0, 0] + nats[0, 1, 1] + nats[0, 2, 2] + nats[0, 0, 3]
    assert found["loss"] == pytest.approx(expected.item() / 4)
    assert found["word_perplexity"] == pytest.approx(math.exp(expected.item()))
    only = TASKS["language"].loss(Answers((logits, None)), (pieces[1].clamp(min=0), pieces[1]))
    assert only.item() == pytest.approx(nats[0, 0, 3].item())


class Next(nn.Module):
    """Logits that follow from each symbol alone; refuses windows of more than two."""

    def forward(self, symbols):
        assert symbols.shape[1] <= 2
        return torch.eye(4)[(symbols + 1) % 4] * 9


def test_a_model_without_a_state_sees_windows_as_long_as_those_of_training():
    source = Text([(torch.tensor([[0, 1, 2]]), torch.tensor([[1, 2, 3]]))])
    assert evaluated("language", Next(), source)["loss"] == pytest.approx(math.log(1 + 3 * math.exp(-9)), rel=1e-3)
    loss = TASKS["language"].loss(Next(), (torch.tensor([[0, 1]]), torch.tensor([[1, -1]])))
    assert loss.item() == pytest.approx(math.log(1 + 3 * math.exp(-9)), rel=1e-3)


@pytest.mark.parametrize(
    "outputs",
    [
        lambda logits: {"hidden": torch.zeros(2, 7), "logits": logits},
        lambda logits: {"out": logits},
        lambda logits: (logits, torch.zeros(2, 7)),
        lambda logits: [logits, None],
        lambda logits: SimpleNamespace(loss=None, logits=logits),
    ],
    ids=["mapping", "segmentation", "tuple", "list", "object"],
)
def test_logits_are_found_by_name_or_are_the_first(outputs):
    logits, labels = torch.randn(2, 3), torch.tensor([0, 2])
    loss = TASKS["classification"].loss(Answers(outputs(logits)), (torch.zeros(2), labels))
    assert loss == nn.functional.cross_entropy(logits, labels)
    found = evaluated("classification", Answers(outputs(logits)), Held([(torch.zeros(2), labels)]))
    assert found["accuracy"] == (logits.argmax(1) == labels).float().mean()


@pytest.mark.parametrize(
    ("outputs", "line"),
    [
        ({"scores": torch.zeros(2, 3)}, "must return its outputs as a tensor, .* named logits or .*; got scores"),
        (None, "must return its outputs as a tensor, .*; got NoneType"),
        ((torch.zeros(2, 3), torch.zeros(2, 3)), "returns 2 outputs of one shape: name the logits"),
        (torch.zeros(2, 1), "has 1 outputs a sample, too few for the label 2"),
        (torch.zeros(2), r"must return logits \[B, classes, ...\] for labels \[B, ...\], .*got \[2\] for \[2\]"),
    ],
    ids=lambda value: "",
)
def test_outputs_that_are_no_logits_are_one_line(outputs, line):
    with pytest.raises(ValueError, match=line):
        TASKS["classification"].loss(Answers(outputs), (torch.zeros(2), torch.tensor([0, 2])))


def test_ignored_labels_count_for_no_metric_also_of_every_pixel():
    labels = torch.tensor([[0, -100], [1, 1]])
    logits = torch.zeros(2, 2, 2)
    logits[:, 1] = 2.0  # of class 1
    found = evaluated("classification", Answers(logits), Held([(torch.zeros(2), labels)]))
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["loss"] == pytest.approx(nn.functional.cross_entropy(logits, labels).item())
    with pytest.raises(ValueError, match="every label of the test set is -100"):
        evaluated("classification", Answers(logits), Held([(torch.zeros(2), torch.full((2, 2), -100))]))


def test_a_regression_of_another_number_of_values_is_one_line():
    with pytest.raises(ValueError, match=r"one value for each of the targets \[2\], got \[2, 3\]"):
        TASKS["regression"].loss(Answers(torch.zeros(2, 3)), (torch.zeros(2), torch.zeros(2)))


def test_errors_of_a_regression_are_means_over_all_values():
    outputs, targets = torch.tensor([[1.0, 0.0], [2.0, -1.0]]), torch.tensor([[0.0, 0.0], [2.0, 2.0]])
    found = evaluated("regression", Answers(outputs), Held([(targets, targets)]))
    assert found == {"squared_error": 10 / 4, "absolute_error": 4 / 4}
    assert TASKS["regression"].loss(Answers(outputs), (targets, targets)).item() == 10 / 4
    one = TASKS["regression"].loss(Answers(torch.tensor([[1.0], [3.0]])), (targets, torch.tensor([1.0, 1.0])))
    assert one.item() == 2.0, "one value a sample, as [B, 1] and [B]"
