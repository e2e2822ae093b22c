"""The specification of a sweep: what a user writes, validated.

Every mistake is one sentence that names file, field, value and remedy. Mistakes that only the data can show
are found by ``Spec.validate_against`` once the number of training rows is known.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import PrivateAttr, ValidationError, model_validator

from clipless.plans.method import Method
from sweeper.errors import SpecError
from sweeper.records import Objective
from sweeper.spec.data import DataSettings
from sweeper.spec.dimensions import Dimension, grid_size, list_dimensions, proposal
from sweeper.spec.fields._section import Section, SweepName
from sweeper.spec.fields.messages import bad_value, locate, sentence, show
from sweeper.spec.fields.ranges import Choices, Range, Scalar, largest
from sweeper.spec.objectives import needs_two_classes, radii
from sweeper.spec.score_rules import broken_score_rules
from sweeper.spec.search import Sampler, SearchSettings
from sweeper.spec.selection_rules import check_private_selection
from sweeper.spec.settings import ModelSettings, PrivacySettings, ResourceSettings, TrainingSettings
from sweeper.spec.yaml_file import read_mapping

_COUPLED = ("privacy.epsilon", "privacy.noise_multiplier", "training.epochs")
DEFAULT_TRIALS = 16


class Spec(Section):
    """A sweep as specified; see ``sweeper schema`` for every key."""

    name: Annotated[str, SweepName()]
    data: DataSettings
    model: ModelSettings
    training: TrainingSettings = TrainingSettings()
    privacy: PrivacySettings
    search: SearchSettings = SearchSettings()
    resources: ResourceSettings = ResourceSettings()

    _source: str = PrivateAttr("the spec")

    @classmethod
    def from_yaml(cls, path: str | Path) -> "Spec":
        """Read a spec from a YAML file.

        Raises:
            SpecError: unreadable, or any mistake in it, in one sentence.
        """
        return cls.from_mapping(read_mapping(Path(path)), source=str(path))

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any], source: str = "the spec") -> "Spec":
        """Validate a spec given as a nested mapping; ``source`` names it in messages.

        Raises:
            SpecError: any mistake in it, in one sentence.
        """
        try:
            spec = cls.model_validate(dict(content))
        except ValidationError as error:
            raise SpecError(sentence(error, source, cls)) from None
        spec._source = source
        return spec

    @model_validator(mode="after")
    def _two_of_three(self) -> Self:
        values = (self.privacy.epsilon, self.privacy.noise_multiplier, self.training.epochs)
        given = [field for field, value in zip(_COUPLED, values, strict=True) if value is not None]
        if len(given) != 2:
            expected = f"exactly two of {', '.join(_COUPLED[:2])} and {_COUPLED[2]}, which give the third"
            remedy = f"leave one of {', '.join(given)} out" if len(given) > 2 else "add " + _missing(given)
            raise bad_value(f"{expected}; got {', '.join(given) or 'none of them'}", got=None, remedy=remedy)
        return self

    @model_validator(mode="after")
    def _epochs_without_privacy(self) -> Self:
        method = self.training.method
        methods = method.values if isinstance(method, Choices) else (method,)
        if Method.NON_PRIVATE.value in methods and self.training.epochs is None:
            expected = "{name} where a trial may be non-private: no budget ends it"
            raise bad_value(expected, path="training.epochs", got=None, remedy="add it")
        return self

    @model_validator(mode="after")
    def _conditions_of_private_selection(self) -> Self:
        check_private_selection(self.search, self.privacy, self.data, self.dimensions)
        return self

    @model_validator(mode="after")
    def _scores_that_can_be_paid(self) -> Self:
        if self.data.evaluation is not None:  # left out, the data set says it
            for field, got, expected, remedy in broken_score_rules(self.search, self.privacy, self.data.evaluation):
                raise bad_value(expected, path=field, got=got, remedy=remedy)
        return self

    @model_validator(mode="after")
    def _enough_to_try(self) -> Self:
        trials, size = self.search.trials, grid_size(self.dimensions)
        if trials is not None and size is not None and trials > size:
            remedy = "lower it or open a hyperparameter: the same configuration twice costs privacy twice"
            expected = f"trials <= {size}, the number of configurations in the search space"
            raise bad_value(expected, path="search.trials", got=trials, remedy=remedy)
        if self.search.sampler is Sampler.GRID and size is None:
            remedy = "list its values, or use quasi-random"
            ranges = [
                dimension.name
                for dimension in self.dimensions
                if isinstance(dimension.space, Range) and dimension.space.size() is None
            ]
            expected = "a list or whole numbers for every open hyperparameter of a grid"
            raise bad_value(expected, path=ranges[0], got=None, remedy=remedy)
        if len(self.search.first) > self.trials:
            expected = f"at most {self.trials} configurations, the number of trials"
            raise bad_value(expected, path="search.first", got=len(self.search.first))
        locate(lambda _: self.first, None, "search.first")
        return self

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Every value that a trial needs, fixed or open."""
        return list_dimensions(self.model, self.training, self.privacy)

    @property
    def first(self) -> tuple[dict[str, Scalar], ...]:
        """The configurations to try first, as values of open slots by name."""
        dimensions = self.dimensions
        return tuple(
            locate(lambda one: proposal(dimensions, one), partial, str(i))
            for i, partial in enumerate(self.search.first)
        )

    @property
    def source(self) -> str:
        """Where the spec came from, for messages and to resolve relative paths."""
        return self._source

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The axes of the front."""
        return tuple(Objective.named(name) for name in self.search.objectives)

    @property
    def radii(self) -> tuple[str, ...]:
        """The radii to certify, of objectives and metrics, as written."""
        return radii([*self.objectives, *map(Objective.named, self.search.metrics)])

    @property
    def trials(self) -> int:
        """The number of trials to run; under private selection, which draws it, the mean rounded up."""
        if self.search.repetitions is not None:
            return ceil(self.search.repetitions.mean)
        if self.search.trials is not None:
            return self.search.trials
        size = grid_size(self.dimensions)
        return DEFAULT_TRIALS if size is None else min(DEFAULT_TRIALS, size)

    def data_options(self, data_dir: Path | None = None) -> dict[str, Any]:
        """Return the arguments of ``clipless.datasets.load``; a file beside the spec comes first."""
        data = self.data
        options = {
            "source": data.name or self._beside(data.path),
            "data_dir": data_dir,
            "target": data.target,
            "ranges": self._beside(data.ranges),
            "evaluation": data.evaluation,
            "unit": None if data.unit == "row" else data.unit,
            "classes": data.classes,
            "splits": None if data.splits is None else data.splits.splitting(),
            "preparation": data.preparation(),
        }
        return {key: value for key, value in options.items() if value is not None}

    def _beside(self, name: str | None) -> Path | None:
        if name is None:
            return None
        beside = Path(self._source).parent / name
        return beside if beside.is_file() else Path(name)

    def with_search(self, **changes: Any) -> "Spec":
        """Return the spec with other keys of ``search``, as ``--trials`` and ``--seed`` ask for.

        Raises:
            SpecError: the changed spec is not valid.
        """
        content = self.to_plain()
        content["search"] |= {key: value for key, value in changes.items() if value is not None}
        return Spec.from_mapping(content, self._source)

    def to_plain(self) -> dict[str, Any]:
        """Return the spec as JSON values, defaults filled in; ``from_mapping`` reads it back."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_yaml(self) -> str:
        """Return the spec as YAML, defaults filled in; ``from_yaml`` reads it back."""
        return yaml.safe_dump(self.to_plain(), sort_keys=False, allow_unicode=True)

    def digest(self) -> str:
        """Return a hash of everything that the spec says."""
        return hashlib.sha256(json.dumps(self.to_plain(), sort_keys=True).encode()).hexdigest()[:16]

    def mistaken(self, expected: str, field: str, value: Any = None, remedy: str = "") -> SpecError:
        """Return the error for a mistake that was found after reading."""
        got = "" if value is None else f", got {field.rpartition('.')[2]}={show(value)}"
        return SpecError(f"Expected {expected}{got} ({field} in {self._source})" + (f"; {remedy}" if remedy else ""))

    def validate_against(self, population: int, classes: int | None = None) -> None:
        """Find the mistakes that depend on the data.

        Args:
            population: N, the number of training rows (units, when a unit column is declared); a public
                number.
            classes: number of classes, if known.

        Raises:
            SpecError: delta >= 1/N without ``accept_large_delta``, a batch larger than N, auroc or a loss on
                the wrong number of classes, class weights or priors for another number of classes.
        """
        privacy, batch_size = self.privacy, largest(self.training.batch_size)
        if not (privacy.delta < 1 / population or privacy.accept_large_delta):
            expected = f"delta < 1/N = {1 / population:.3g} for N={population} training rows"
            remedy = "it permits publishing a row outright: lower it, or set accept_large_delta: true"
            raise self.mistaken(expected, "privacy.delta", privacy.delta, remedy)
        if not batch_size <= population:
            expected = f"batch_size <= N = {population}, the number of training rows"
            raise self.mistaken(expected, "training.batch_size", batch_size, "lower it, or the end of its range")
        if classes is not None:
            self._check_classes(classes)

    def _check_classes(self, classes: int) -> None:
        for kind, names, remedy in (
            ("objective", self.search.objectives, "use accuracy"),
            ("metric", self.search.metrics, "use certified@R"),
        ):
            binary = [name for name in names if needs_two_classes(name)]
            if binary and classes != 2:
                expected = f"two classes for the {kind} {binary[0]}, the data have {classes}"
                raise self.mistaken(expected, f"search.{kind}s", remedy=remedy)
        if classes != 2 and any(loss.name == "tau-bce" for loss in self.training.loss):
            raise self.mistaken(
                f"two classes for tau-bce, the data have {classes}", "training.loss", remedy="use tau-cce"
            )
        for field, numbers in self._of_each_class():
            if len(numbers) != classes:
                raise self.mistaken(f"{classes} numbers, one for each class of the data", field, list(numbers))

    def _of_each_class(self) -> Iterator[tuple[str, tuple[float, ...]]]:
        """Yield what is declared class by class, under its field."""
        if self.training.class_weights is not None:
            yield "training.class_weights", self.training.class_weights
        for loss in self.training.loss:
            priors = loss.parameters.get("priors")
            if isinstance(priors, tuple):
                yield f"training.loss.{loss.name}.priors", priors


def schema() -> dict[str, Any]:
    """Return the JSON schema of a spec, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Spec.model_json_schema()}


def _missing(given: list[str]) -> str:
    return " or ".join(field for field in _COUPLED if field not in given)
