"""Tasks: the loss of a mini-batch and the metrics of the test set.

Shape legend: B samples, T symbols, L tokens. datasets/batch_source.py describes the tensors of a batch, metrics.py the
metrics.
"""

import inspect
import math
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.datasets.batch_source import IGNORED_LABEL, Batch, BatchSource
from syncline.datasets.questions import QuestionSource
from syncline.datasets.text_source import TextSource
from syncline.learning.scoring import auc

LOGITS = ("logits", "out", "output", "prediction_logits")  # names of what a model returns
LARGEST_EXPONENT = 700.0  # of a perplexity
AUXILIARY_WEIGHT = 0.4  # of Inception's second head (torchvision's and TF-Slim's training scripts)


class Task(Protocol):
    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Mean over the samples of the batch, in nats; the module is in training mode."""

    def evaluate(self, module: nn.Module, source: BatchSource) -> dict[str, float]:
        """The task's METRICS on the test set; the module is in evaluation mode, without autograd."""


def num_counted(task: Task, batch: Batch) -> int:
    """Over how many samples or labels of a batch the task's loss is a mean; of a task of the user's own its samples."""
    if isinstance(task, Classification):
        return int((batch[-1] != IGNORED_LABEL).sum())
    return int((batch[-1] >= 0).sum()) if isinstance(task, NextToken) else len(batch[0])


class Classification:
    """Cross-entropy; a second head (`aux_logits`) is weighted by AUXILIARY_WEIGHT.

    Labels of IGNORED_LABEL count nowhere. Logits [B, K, ...] of labels [B, ...] may have further axes.
    """

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        outputs = module(images)
        loss = F.cross_entropy(_fitting(logits_of(outputs), labels), labels)
        auxiliary = None if isinstance(outputs, Tensor) else _named(outputs, "aux_logits")
        return loss if auxiliary is None else loss + AUXILIARY_WEIGHT * F.cross_entropy(auxiliary, labels)

    def evaluate(self, module: nn.Module, source: BatchSource) -> dict[str, float]:
        correct = within_5 = size = 0
        loss = 0.0
        for images, labels in source.test():
            logits = _fitting(logits_of(module(images)), labels)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            best = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels.unsqueeze(1)  # [B, 5, ...]
            correct += int(best[:, 0].sum())
            within_5 += int(best.sum())
            size += int((labels != IGNORED_LABEL).sum())
        if not size:
            raise ValueError(f"every label of the test set is {IGNORED_LABEL}, which is ignored")
        return {"accuracy": correct / size, "top5": within_5 / size, "loss": loss / size}


def logits_of(outputs: Any) -> Tensor:
    """What a model returns for its logits: a tensor, or one of several outputs: by its name, or the first one.

    Raises:
        ValueError: there is no tensor of such a name, or others could be meant as well.
    """
    if isinstance(outputs, Tensor):
        return outputs
    for name in LOGITS:
        if (found := _named(outputs, name)) is not None:
            return found
    if isinstance(outputs, tuple | list) and outputs and isinstance(outputs[0], Tensor):
        if alike := sum(isinstance(each, Tensor) and each.shape == outputs[0].shape for each in outputs[1:]):
            rule = f"name the logits {LOGITS[0]} and a second head aux_logits, or let a task of your own weigh them"
            raise ValueError(f"the model returns {1 + alike} outputs of one shape: {rule}")
        return outputs[0]
    given = ", ".join(map(str, outputs)) if isinstance(outputs, Mapping) else type(outputs).__name__
    rule = f"a tensor, a tuple that begins with it, or one named {' or '.join(LOGITS)}"
    raise ValueError(f"the model must return its outputs as {rule}; got {given}")


def _named(outputs: Any, name: str) -> Tensor | None:
    found = outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)
    return found if isinstance(found, Tensor) else None


def _fitting(logits: Tensor, labels: Tensor) -> Tensor:
    """The logits. Raises ValueError: they do not fit the labels."""
    if logits.ndim < 2 or (*logits.shape[:1], *logits.shape[2:]) != labels.shape:
        rule = "the model must return logits [B, classes, ...] for labels [B, ...], one whole number each"
        raise ValueError(f"{rule}, got {list(logits.shape)} for {list(labels.shape)}")
    if logits.device.type == "cpu" and labels.numel() and int(labels.max()) >= logits.shape[1]:
        raise ValueError(f"the model has {logits.shape[1]} outputs a sample, too few for the label {int(labels.max())}")
    return logits


class Generation:
    """The module returns a bound on each image's negative log-likelihood."""

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        (pixels,) = batch
        bounds: Tensor = module(pixels)  # [B]
        return bounds.mean()

    def evaluate(self, module: nn.Module, source: BatchSource) -> dict[str, float]:
        bounds = torch.cat([module(pixels) for (pixels,) in source.test()])
        return {"bound": bounds.double().mean().item()}


class QuestionAnswering:
    """Mean of the cross-entropies of the first and the last token (Devlin et al. 2019, section 4.2)."""

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        tokens, mask, types, first, last = batch
        firsts, lasts = module(tokens, mask, types)  # [B, L] each
        return (F.cross_entropy(firsts, first) + F.cross_entropy(lasts, last)) / 2

    def evaluate(self, module: nn.Module, source: BatchSource) -> dict[str, float]:
        assert isinstance(source, QuestionSource)
        loss, size = 0.0, 0
        firsts, lasts = [], []
        for tokens, mask, types, first, last in source.test():
            begins, ends = module(tokens, mask, types)
            total = F.cross_entropy(begins, first, reduction="sum") + F.cross_entropy(ends, last, reduction="sum")
            loss += total.item() / 2
            size += len(tokens)
            firsts.append(begins.float().cpu())
            lasts.append(ends.float().cpu())
        exact_match, f1 = source.score(_stack(firsts), _stack(lasts))
        return {"f1": f1, "exact_match": exact_match, "loss": loss / size}


def _stack(rows: list[Tensor]) -> Tensor:
    """Batches [B, L], of different L -> [W, largest L], padded with -inf."""
    width = max(part.shape[1] for part in rows)
    return torch.cat([F.pad(part, (0, width - part.shape[1]), value=-math.inf) for part in rows])


class ClickThrough:
    """Log loss of the clicks."""

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        counts, rows, clicked = batch
        return F.binary_cross_entropy_with_logits(module(counts, rows), clicked)

    def evaluate(self, module: nn.Module, source: BatchSource) -> dict[str, float]:
        parts = [(module(counts, rows), clicked) for counts, rows, clicked in source.test()]
        logits, clicked = (torch.cat(column) for column in zip(*parts, strict=True))
        loss = F.binary_cross_entropy_with_logits(logits.double(), clicked.double())
        return {"auc": auc(logits, clicked), "loss": loss.item()}


class NextToken:
    """Cross-entropy of the next symbol, a byte or a token. Targets of -1 are ignored.

    A module whose forward takes a second argument is recurrent: `forward(symbols, state) -> (logits, state)`, and the
    test text is one sequence to it. Any other one maps symbols to logits, windows as long as those of training.
    """

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        symbols, following = batch
        logits = logits_of(module(symbols))  # [B, T, V]
        return F.cross_entropy(logits.flatten(0, 1), following.flatten(), ignore_index=-1)

    def evaluate(self, module: nn.Module, source: BatchSource) -> dict[str, float]:
        assert isinstance(source, TextSource)
        nats, size, state = 0.0, 0, None
        is_recurrent = _takes_state(module)
        for symbols, following in source.test():
            if is_recurrent:
                logits, state = module(symbols, state)
            else:
                windows = torch.split(symbols, source.length, dim=1)
                logits = torch.cat([logits_of(module(window)) for window in windows], dim=1)
            predicted = F.cross_entropy(logits.flatten(0, 1), following.flatten(), ignore_index=-1, reduction="sum")
            nats += predicted.item()
            size += int((following >= 0).sum())
        return self._metrics(nats, size, source)

    def _metrics(self, nats: float, size: int, source: TextSource) -> dict[str, float]:
        """Of so many symbols, together so many nats."""
        return {"loss": nats / size, "perplexity": math.exp(min(nats / size, LARGEST_EXPONENT))}


class Language(NextToken):
    """The same of bytes, by characters and words."""

    def _metrics(self, nats: float, size: int, source: TextSource) -> dict[str, float]:
        return {
            "bits_per_character": nats / math.log(2) / source.characters,
            "word_perplexity": math.exp(min(nats / source.words, LARGEST_EXPONENT)),
            "loss": nats / size,
        }


def _takes_state(module: nn.Module) -> bool:
    kinds = [parameter.kind for parameter in inspect.signature(module.forward).parameters.values()]
    return len(kinds) > 1 or kinds == [inspect.Parameter.VAR_POSITIONAL]


class Regression:
    """Mean squared error. A target of one value may come as [B], the outputs as [B, 1]."""

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        samples, targets = batch
        return F.mse_loss(_like(logits_of(module(samples)), targets), targets)

    def evaluate(self, module: nn.Module, source: BatchSource) -> dict[str, float]:
        squares = distances = 0.0
        size = 0
        for samples, targets in source.test():
            apart = _like(logits_of(module(samples)), targets).double() - targets.double()
            squares += apart.square().sum().item()
            distances += apart.abs().sum().item()
            size += targets.numel()
        return {"squared_error": squares / size, "absolute_error": distances / size}


def _like(outputs: Tensor, targets: Tensor) -> Tensor:
    """In the targets' shape. Raises ValueError: they have not as many values."""
    if outputs.numel() != targets.numel() or len(outputs) != len(targets):
        rule = "the model must return one value for each of the targets"
        raise ValueError(f"{rule} {list(targets.shape)}, got {list(outputs.shape)}")
    return outputs.reshape(targets.shape)


TASKS: dict[str, Task] = {
    "classification": Classification(),
    "generation": Generation(),
    "qa": QuestionAnswering(),
    "ctr": ClickThrough(),
    "language": Language(),
    "next_token": NextToken(),
    "regression": Regression(),
}
