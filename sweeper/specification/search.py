"""The section ``search`` of a spec: which configurations are tried, and how long."""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from clipless.certificates.radii import MOST_DRAWS
from clipless.privacy.accounting.private_selection import LARGEST_MEAN, LEAST_MEAN, Repetitions
from sweeper.errors import UnexpectedValueError
from sweeper.specification.constraints import OutcomeConstraint, parse_constraint
from sweeper.specification.fields._section import ONE_COUNT, ONE_POSITIVE, Section
from sweeper.specification.fields.fields import FieldType, Name, Number
from sweeper.specification.fields.messages import bad_value, locate_each
from sweeper.specification.objectives import (
    MOST,
    meaning,
    metric_list,
    objective_list,
    reached_without_privacy,
    smoothed_radius,
)
from sweeper.specification.plugins import (
    SAMPLERS,
    SCHEDULERS,
    built_in_schedulers,
    check_sampler,
    check_scheduler,
    installed,
)

MLFLOW = "mlflow:"  # in front of the name of an experiment
DEFAULT_MEAN = 10.0  # trials under private selection
SELECTION_SHARE = 0.35  # of the budget's signal, for the candidates of a private selection in it
NO_SCHEDULER = "none"
SKETCH = "sketch"  # rows to rehearse on that are drawn from a private sketch of the training rows
SKETCH_SHARE = 0.1  # of the budget's signal, for that sketch
_DRAWS = Number(integer=True, at_least=1, at_most=MOST_DRAWS, fixed=True)


class Sampler(enum.Enum):
    """What proposes configurations."""

    TPE = "tpe"
    GP = "gp"
    NSGA2 = "nsga2"
    NSGA3 = "nsga3"
    QUASI_RANDOM = "quasi-random"
    RANDOM = "random"
    GRID = "grid"


class Selection(enum.Enum):
    """How the model that leaves a sweep is chosen, which decides what that costs."""

    NONE = "none"
    PRIVATE = "private"


class RehearsalKind(FieldType):
    """Whether configurations are rehearsed on public rows, or ``sketch``: on rows drawn from a private sketch."""

    def parse(self, value: Any) -> bool | str:
        """Return the value."""
        if isinstance(value, bool):
            return value
        if value == SKETCH:
            return SKETCH
        raise bad_value(f"{{name}} true, false or {SKETCH}")

    def json_schema(self) -> dict[str, Any]:
        """A truth value, or that word."""
        return {"anyOf": [{"type": "boolean"}, {"const": SKETCH}]}


class Prior(enum.Enum):
    """Configurations that did well on public data, by name and version; `sweeper.planning.prior` has them."""

    NONE = "none"
    TABLES = "tables-1"


_ADAPTIVE = (Sampler.TPE, Sampler.GP, Sampler.NSGA2, Sampler.NSGA3)


class SamplerName(FieldType):
    """A sampler of this package, or the name of an installed plug-in."""

    own = Name(names=Sampler, fixed=True)

    def parse(self, value: Any) -> Sampler | str:
        """Return the member, or the name of the plug-in."""
        chosen = _own_or_plugin(value, self.own, SAMPLERS, check_sampler)
        return chosen if isinstance(chosen, Sampler) else str(chosen)

    def json_schema(self) -> dict[str, Any]:
        """One of this package's, or of those that are installed here."""
        return {"enum": [*self.own.known(), *installed(SAMPLERS)]}


class SchedulerName(FieldType):
    """A scheduler of this package, the name of an installed plug-in, or ``none``."""

    @property
    def own(self) -> Name:
        """The names of this package."""
        return Name(names=(NO_SCHEDULER, *built_in_schedulers()), fixed=True)

    def parse(self, value: Any) -> str:
        """Return the name."""
        return str(_own_or_plugin(value, self.own, SCHEDULERS, check_scheduler))

    def json_schema(self) -> dict[str, Any]:
        """One of this package's, or of those that are installed here."""
        return {"enum": [*self.own.known(), *installed(SCHEDULERS)]}


def _own_or_plugin(value: Any, own: Name, group: str, check: Callable[[str], str]) -> Any:
    if isinstance(value, str) and value not in own.known() and (plugins := installed(group)):
        try:
            return check(value)
        except UnexpectedValueError as error:
            expected = error.expected if value in plugins else f"{{name}} {' or '.join(own.known())}, or a plug-in"
            raise bad_value(expected, remedy=error.remedy) from None
    return own.parse(value)


class EarlierSweep(FieldType):
    """The folder of a sweep, or ``mlflow:NAME``, an experiment in the store that tracks this sweep."""

    def parse(self, value: Any) -> str:
        """Return the text."""
        if isinstance(value, str) and value.removeprefix(MLFLOW).strip():
            return value
        raise bad_value(f"the folder of an earlier sweep, or {MLFLOW}NAME of an MLflow experiment")

    def json_schema(self) -> dict[str, Any]:
        """A text."""
        return {"type": "string", "minLength": 1}


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


class SearchSettings(Section):
    """Which configurations are tried, and how long.

    ``trials``, those that are trained or, where they are, rehearsed; left out: 16, or all if there are fewer.
    """

    objectives: Annotated[tuple[str, ...], BeforeValidator(objective_list)] = ("epsilon", "accuracy")
    metrics: Annotated[tuple[str, ...], BeforeValidator(metric_list)] = ()
    constraints: tuple[str, ...] = Field(default=(), strict=False)
    smoothing: SmoothingSettings | None = None
    without_privacy: Annotated[dict[str, float], BeforeValidator(reached_without_privacy)] = Field(default_factory=dict)
    sampler: Annotated[Sampler | str, SamplerName()] = Sampler.TPE
    scheduler: Annotated[str, SchedulerName()] = NO_SCHEDULER
    eta: Annotated[int, Number(integer=True, at_least=2, fixed=True)] = 3
    grace: Annotated[int, ONE_COUNT] = 1
    brackets: Annotated[int, ONE_COUNT] = 1
    trials: Annotated[int, ONE_COUNT] | None = None
    rehearse: Annotated[bool | str, RehearsalKind()] | None = None
    repeats: Annotated[int, ONE_COUNT] = 1
    hours: Annotated[float, ONE_POSITIVE] | None = None
    trial_hours: Annotated[float, ONE_POSITIVE] | None = None
    free_points: bool | None = None
    seed: Annotated[int, Number(integer=True, at_least=0, below=2**32, fixed=True)] = 0
    first: tuple[dict[str, Any], ...] = Field(default=(), strict=False)
    prior: Annotated[Prior, Name(names=Prior, fixed=True)] | None = None
    warm_start: Annotated[str, EarlierSweep()] | None = None
    selection: Annotated[Selection, Name(names=Selection, fixed=True)] = Selection.NONE
    selection_mean: Annotated[float, Number(at_least=LEAST_MEAN, at_most=LARGEST_MEAN, fixed=True)] | None = None
    selection_share: Annotated[float, Number(above=0, below=1, fixed=True)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _sampler_of_a_selection(cls, content: Any) -> Any:
        """Draw candidates at random where the spec does not say."""
        private = isinstance(content, Mapping) and content.get("selection") == Selection.PRIVATE.value
        return {"sampler": Sampler.RANDOM.value, **content} if private else content

    @model_validator(mode="after")
    def _metrics_beside_objectives(self) -> Self:
        objectives = {meaning(name) for name in self.objectives}

        def check(name: str) -> None:
            if meaning(name) in objectives:
                raise bad_value("no metric that is an objective", remedy="leave it out")

        locate_each(check, self.metrics, "metrics")
        return self

    @model_validator(mode="after")
    def _smoothing_that_is_used(self) -> Self:
        if self.smoothing is not None and self.smoothed is None:
            expected = "no {name} without smoothed@R among objectives or metrics"
            raise bad_value(expected, path="smoothing", got=None, remedy="leave it out, or add smoothed@0.5")
        return self

    @property
    def smoothed(self) -> SmoothingPlan | None:
        """How smoothed certificates are made, ``None`` where no objective or metric is one."""
        return plan_smoothing([*self.objectives, *self.metrics], self.smoothing, self.seed)

    @model_validator(mode="after")
    def _warm_start_for_a_sampler_that_learns(self) -> Self:
        if self.warm_start is not None and isinstance(self.sampler, Sampler) and not self.learns:
            expected = f"a sampler that learns from outcomes, which {self.sampler.value} does not"
            raise bad_value(expected, path="warm_start", got=self.warm_start, remedy="leave it out or use tpe")
        return self

    @property
    def learns(self) -> bool:
        """Whether the sampler learns from outcomes; a plug-in may."""
        return not isinstance(self.sampler, Sampler) or self.sampler in _ADAPTIVE

    @property
    def has_prior(self) -> bool:
        """Whether the first configuration is one that did best on public data, which others have to be better than."""
        return self.prior not in (None, Prior.NONE)

    @property
    def outcomes(self) -> tuple[OutcomeConstraint, ...]:
        """The constraints, each under the name that its value is recorded by."""
        return tuple(parse_constraint(text, self._recorded) for text in self.constraints)

    @property
    def _recorded(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("epsilon", "accuracy", *self.objectives, *self.metrics)))

    @model_validator(mode="after")
    def _constraints_that_can_be_read(self) -> Self:
        if len(self.constraints) > MOST:
            raise bad_value(f"at most {MOST} constraints", path="constraints", got=None)

        def check(text: str) -> None:
            try:
                parse_constraint(text, self._recorded)
            except UnexpectedValueError as error:
                raise bad_value(error.expected, remedy=error.remedy) from None

        locate_each(check, self.constraints, "constraints")
        return self

    @property
    def repetitions(self) -> Repetitions | None:
        """The distribution of the number of trials under ``selection: private``, ``None`` without it."""
        if self.selection is not Selection.PRIVATE:
            return None
        return Repetitions(mean=self.selection_mean or DEFAULT_MEAN)

    @model_validator(mode="after")
    def _selection_that_is_used(self) -> Self:
        for name in ("selection_mean", "selection_share"):
            given = getattr(self, name)
            if given is not None and self.selection is not Selection.PRIVATE:
                raise bad_value("no {name} without selection: private", path=name, got=given)
        return self
