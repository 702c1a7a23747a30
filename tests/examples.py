"""How many examples Hypothesis tries."""

from hypothesis import settings

CI = 60  # of a test that does not ask for a number of its own, in profile ci


def scaled(in_ci: int) -> settings:
    """So many examples in profile ci, and in proportion in the others, at least 3."""
    return settings(max_examples=max(3, round(in_ci * settings.default.max_examples / CI)))
