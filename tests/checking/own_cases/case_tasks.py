"""Tasks of the cases of test_own_cases.py; each docstring has its kind, and the public report of such a one."""

import torch
from torch import nn
from torch.nn import functional as F


class Ordinary:
    """Cross-entropy."""

    def loss(self, module, batch):
        x, y = batch
        return F.cross_entropy(module(x), y)

    def evaluate(self, module, source):
        return self.scored(module, source)

    @staticmethod
    def scored(module, source, of=lambda outputs: outputs):
        right, loss, size = 0, 0.0, 0
        for x, y in source.test():
            logits = of(module(x))
            right += int((logits.argmax(1) == y).sum())
            loss += F.cross_entropy(logits, y, reduction="sum").item()
            size += len(y)
        return {"accuracy": right / size, "loss": loss / size}


def attacked(module, x, y):
    """Samples that are moved to where their loss is larger."""
    x = x.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(F.cross_entropy(module(x), y), x)
    return (x + 0.05 * slope.sign()).detach()


# Right.


class MixUp(Ordinary):
    """Random numbers: a task that mixes samples, whatever the model is."""

    def loss(self, module, batch):
        x, y = batch
        share, order = torch.distributions.Beta(0.5, 0.5).sample(), torch.randperm(len(x))
        logits = module(share * x + (1 - share) * x[order])
        return share * F.cross_entropy(logits, y) + (1 - share) * F.cross_entropy(logits, y[order])


class Huber:
    """Real targets: another loss than the square."""

    def loss(self, module, batch):
        x, y = batch
        return F.huber_loss(module(x)[:, 0], y)

    def evaluate(self, module, source):
        found = [F.huber_loss(module(x)[:, 0], y, reduction="none") for x, y in source.test()]
        return {"accuracy": 0.0, "loss": float(torch.cat(found).mean())}


class Proxies(nn.Module):
    """Loss: it has a weight of its own, which trains. 4uiiurz1/pytorch-adacos#10"""

    def __init__(self, classes=10):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, classes))

    def of(self, features):
        return 10 * F.linear(F.normalize(features), F.normalize(self.weight))

    def loss(self, module, batch):
        x, y = batch
        return F.cross_entropy(self.of(module(x)), y)

    def evaluate(self, module, source):
        return Ordinary.scored(module, source, of=self.of)


class RunningNorms(nn.Module):
    """Loss: it has a buffer that moves. deepinsight/insightface#2007"""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(1))

    def loss(self, module, batch):
        x, y = batch
        logits = module(x)
        norms = logits.detach().norm(dim=1)
        self.mean.lerp_(norms.mean(), 0.1)
        return (F.cross_entropy(logits, y, reduction="none") * norms / self.mean).mean()

    def evaluate(self, module, source):
        return Ordinary.scored(module, source)


class Attack(Ordinary):
    """Loss: the gradient of the input makes other samples. open-mmlab/mmpretrain#1730"""

    def loss(self, module, batch):
        x, y = batch
        return F.cross_entropy(module(attacked(module, x, y)), y)


class Penalty(Ordinary):
    """Loss: it adds what the model keeps. sktime/sktime#10928"""

    def loss(self, module, batch):
        return super().loss(module, batch) + module.penalty


class LeavesEvaluation(Ordinary):
    """Loss: it leaves the model in evaluation mode, which a loop sets back. wkentaro/pytorch-fcn#56"""

    def loss(self, module, batch):
        x, y = batch
        logits = module.train()(x)
        with torch.no_grad():
            target = module.eval()(x).softmax(1)
        return F.cross_entropy(logits, y) + 0.1 * F.cross_entropy(logits, target)


class LeavesTraining(Ordinary):
    """Evaluation: it sets training mode for dropout, and leaves it. fartashf/vsepp#4"""

    def evaluate(self, module, source):
        return self.scored(module.train(), source)


class Recalibrates(Ordinary):
    """Evaluation: it takes the statistics of batch norm anew from the test, and leaves them. pytorch/pytorch#5766"""

    def evaluate(self, module, source):
        module.bn.reset_running_stats()
        module.train()
        for x, _ in source.test():
            module(x)
        return self.scored(module.eval(), source)


class AttacksTest(Ordinary):
    """Evaluation: with autograd switched on. BorealisAI/advertorch#79"""

    def evaluate(self, module, source):
        found = []
        for x, y in source.test():
            with torch.enable_grad():
                moved = attacked(module, x, y)
            found.append(module(moved).argmax(1) == y)
        return {"accuracy": float(torch.cat(found).float().mean()), "loss": 0.0}


# Broken.


class RunningLoss(Ordinary):
    """State: a moving average of the loss is a Python number. sangmichaelxie/doremi#8"""

    average = 1.0

    def loss(self, module, batch):
        found = super().loss(module, batch)
        self.average = 0.9 * self.average + 0.1 * found.item()
        return found / self.average


class DropsGradients(Ordinary):
    """Gradients: `module.zero_grad()` within the loss drops them. open-mmlab/mmpretrain#1730"""

    def loss(self, module, batch):
        x, y = batch
        x = x.clone().requires_grad_(True)
        F.cross_entropy(module(x), y).backward()
        module.zero_grad()
        return F.cross_entropy(module((x + 0.05 * x.grad.sign()).detach()), y)


class NeverReset(Ordinary):
    """Evaluation: it counts over all evaluations so far. Lightning-AI/torchmetrics#637"""

    def __init__(self):
        self.right = self.size = 0

    def evaluate(self, module, source):
        for x, y in source.test():
            self.right += int((module(x + self.size).argmax(1) == y).sum())
            self.size += len(y)
        return {"accuracy": self.right / self.size, "loss": 0.0}


class NoAutograd(Ordinary):
    """Evaluation: gradients without `enable_grad`. Lightning-AI/pytorch-lightning#19910"""

    def evaluate(self, module, source):
        for x, y in source.test():
            attacked(module, x, y)
        return {"accuracy": 0.0, "loss": 0.0}


class OtherMetrics(Ordinary):
    """Evaluation: other metrics than its file declares."""

    def evaluate(self, module, source):
        return {"acc": self.scored(module, source)["accuracy"]}
