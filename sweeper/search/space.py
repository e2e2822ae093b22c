"""Configurations that a sweep could try, without a search that learns."""

import contextlib
import logging
from collections.abc import Iterator

from sweeper.records import Scalar
from sweeper.specification.search_space import SearchSpace


def sample(space: SearchSpace, count: int) -> list[dict[str, Scalar]]:
    """Return ``count`` proposals that the sweep could make: those to be tried first, then random ones."""
    import optuna  # not needed where trials run

    with quiet_optuna():
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=space.seed))
    for first in space.first[:count]:
        study.enqueue_trial(first)
    return [space.suggest(study.ask()) for _ in range(count)]


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Keep Optuna from announcing a new study on standard error."""
    logger = logging.getLogger("optuna.storages")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
