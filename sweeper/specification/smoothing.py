"""The section ``search.smoothing``: how smoothed certificates are made, few draws at each epoch, many for the front.

What is left out follows from the names of the objectives and metrics: sigma is the largest radius among them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from clipless.certificates.smoothed import MOST_DRAWS
from sweeper.specification.fields._section import ONE_COUNT, ONE_POSITIVE, Section
from sweeper.specification.fields.fields import Number
from sweeper.specification.objectives import smoothed_radius

_DRAWS = Number(integer=True, at_least=1, at_most=MOST_DRAWS, fixed=True)


class SmoothingSettings(Section):
    """How a model is smoothed, and how carefully that is measured.

    ``sigma`` is in units of radii; left out, the largest radius of ``smoothed@R``.
    """

    sigma: Annotated[float, ONE_POSITIVE] | None = None
    alpha: Annotated[float, Number(above=0, below=0.5, fixed=True)] = 0.001
    draws: Annotated[int, _DRAWS] = 100
    rows: Annotated[int, ONE_COUNT] = 500
    test_draws: Annotated[int, _DRAWS] = 1000
    test_rows: Annotated[int, ONE_COUNT] = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothingPlan:
    """How all smoothed certificates of a sweep are made.

    Attributes:
        names: ``smoothed@R`` of objectives and metrics.
        sigma: standard deviation of the noise, in units of radii.
        alpha: probability, for each row, that its certificate is wrong by the chance of the draws.
        draws: that are counted for each validation row.
        rows: of the validation rows, at most.
        test_draws: likewise for test rows.
        test_rows: likewise.
        seed: of the noise, public.
    """

    names: tuple[str, ...]
    sigma: float
    alpha: float
    draws: int
    rows: int
    test_draws: int
    test_rows: int
    seed: int


def plan_smoothing(names: Sequence[str], settings: SmoothingSettings | None, seed: int) -> SmoothingPlan | None:
    """Return how smoothed certificates are made, ``None`` where none of the names is one."""
    radii = {name: exact for name in names if (exact := smoothed_radius(name)) is not None}
    if not radii:
        return None
    chosen = settings or SmoothingSettings()
    given = chosen.model_dump() | {"sigma": chosen.sigma or float(max(radii.values()))}
    return SmoothingPlan(names=tuple(radii), seed=seed, **given)
