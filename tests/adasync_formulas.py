"""The number of gradients in an update that minimises AdaSync's bound on the error, in closed form."""

import math


def adasync_square_root_k(first_k: float, loss_ratio: float) -> float:
    """K = K_0 sqrt(F_0 / F), not rounded: AdaSync on K-batch-sync, K-async and K-batch-async, where E[T] grows like K.

    It minimises F E[T] + c / K (the bound on the mean squared gradient of an interval) for the constant c whose
    minimum is at K_0 when F = F_0.

    Args:
        first_k: K_0 > 0.
        loss_ratio: F_0 / F > 0.

    Source: adasync.txt, section 6 and appendices D.2, D.3, D.4.
    """
    return first_k * math.sqrt(loss_ratio)


def adasync_quadratic_k(first_k: float, loss_ratio: float, num_workers: int) -> float:
    """The positive root of K^2 + a K - a P = 0 with a = (F_0 / F) K_0^2 / (P - K_0), not rounded: AdaSync on K-sync.

    It minimises F E[T] + c / K as `adasync_square_root_k` does, where E[T] is log(P / (P - K)) and a constant:
    exponential or shifted exponential X. It stays below P for K_0 < P, and is P for K_0 = P.

    Args:
        first_k: K_0, 0 < K_0 <= num_workers.
        loss_ratio: F_0 / F > 0.
        num_workers: P.

    Source: adasync.txt, section 6 and appendix D.1.
    """
    workers_over_a = num_workers * (num_workers - first_k) / (loss_ratio * first_k**2)  # P / a
    return 2.0 * num_workers / (1.0 + math.sqrt(1.0 + 4.0 * workers_over_a))
