"""The specification of a sweep: what a user writes, validated.

Every mistake is one sentence that names file, field, value and remedy. Mistakes that only the data can show
are found by ``Spec.validate_against`` once the number of training rows is known.

`Spec` has more than fifteen methods, each of a few lines: validators that hand over to ``rules``, or a view of the
sections.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import PrivateAttr, ValidationError, model_validator

from clipless.datasets import Evaluation
from sweeper.errors import SpecError
from sweeper.records import Objective, Scalar
from sweeper.specification.data import DataSettings, mistakes_in_name
from sweeper.specification.dimensions import Dimension, grid_size, list_dimensions, proposal
from sweeper.specification.fields._section import Section, SweepName
from sweeper.specification.fields.messages import (
    BrokenRule,
    bad_value,
    locate,
    locate_each,
    mistake,
    sentences,
    together,
)
from sweeper.specification.fields.nested import with_values
from sweeper.specification.left_out import MAY_LACK, UNSEEN, find_defaults
from sweeper.specification.objectives import radii
from sweeper.specification.rules.budget import broken_budget_rules, broken_space_rules, broken_stage_rules
from sweeper.specification.rules.data import (
    broken_data_rules,
    broken_feature_rules,
    broken_reading_rules,
    broken_score_rules,
)
from sweeper.specification.rules.selection import broken_selection_rules
from sweeper.specification.search import SKETCH, SKETCH_SHARE, SearchSettings
from sweeper.specification.search_space import SearchSpace
from sweeper.specification.settings import (
    AUTO,
    DeploymentSettings,
    ModelSettings,
    PrivacySettings,
    ResourceSettings,
    TrainingSettings,
)
from sweeper.specification.stages import StagePlan, default_plans, plans_of_both_ends, stage_plans
from sweeper.specification.yaml_file import parse_mapping, read_text

DEFAULT_TRIALS = 16


class Spec(Section):
    """A sweep as specified; see ``sweeper schema`` for every key.

    It is long, of more than fifteen methods, because each fact that follows from several sections is one.
    """

    name: Annotated[str, SweepName()]
    data: DataSettings
    model: ModelSettings
    training: TrainingSettings = TrainingSettings()
    privacy: PrivacySettings
    search: SearchSettings = SearchSettings()
    resources: ResourceSettings = ResourceSettings()
    deployment: DeploymentSettings = DeploymentSettings()

    _source: str = PrivateAttr("the spec")
    _overrides: Mapping[str, Any] = PrivateAttr(default_factory=dict)
    _left_out: tuple[str, ...] = PrivateAttr(())
    _text: str | None = PrivateAttr(None)

    @classmethod
    def from_yaml(cls, path: str | Path, overrides: Mapping[str, Any] | None = None) -> "Spec":
        """Read a spec from a YAML file.

        Args:
            path: of the file.
            overrides: values by dotted name instead of the file's, ``{"training.epochs": 5}``; ``None`` leaves a key
                out.

        Raises:
            SpecError: unreadable, or mistakes in it, each in one sentence.
        """
        text = read_text(Path(path))
        content = with_values(parse_mapping(text, str(path)), overrides or {})
        spec = cls.from_mapping(content, str(path), overrides)
        spec._text = None if overrides else text
        return spec

    @classmethod
    def from_mapping(
        cls, content: Mapping[str, Any], source: str = "the spec", overrides: Mapping[str, Any] | None = None
    ) -> "Spec":
        """Validate a spec given as a nested mapping; ``source`` names it in messages.

        ``overrides`` are the values in it, by dotted name, that the source does not have. Where the content leaves to
        the data what it may leave to them, values for data of an ordinary size stand in, until
        `sweeper.planning.defaults.complete` has seen the data.

        Raises:
            SpecError: mistakes in it, each in one sentence.
        """
        left_out = {one.field: one.value for one in find_defaults(content, UNSEEN)}
        try:
            spec = cls.model_validate(with_values(content, left_out))
        except ValidationError as error:
            data = content.get("data")
            name = data.get("name") if isinstance(data, Mapping) else None
            raise SpecError(*sentences(error, source, cls, overrides or {}), *mistakes_in_name(name)) from None
        spec._left_out = tuple(left_out)
        spec._source = source
        spec._overrides = dict(overrides or {})
        return spec

    @model_validator(mode="after")
    def _sections_that_agree(self) -> Self:
        self._refused(broken_selection_rules(self.search, self.privacy, self.data, self.dimensions))
        budget = broken_stage_rules(self.search, self.training, self.privacy, self.data.evaluation)
        self._refused((*budget, *broken_budget_rules(self.training, self.privacy), *self._scores_that_cannot_be_paid()))
        reading = broken_reading_rules(self.search, self.privacy, self.data.evaluation)
        self._refused((*broken_feature_rules(self.search, self.data), *reading))
        self._refused(broken_space_rules(self.search, self.dimensions, self.explorers))
        locate(lambda _: self.first, None, "search.first")
        return self

    def _scores_that_cannot_be_paid(self) -> Iterable[BrokenRule]:
        known = self.data.evaluation  # left out, the data set says it
        return () if known is None else broken_score_rules(self.search, self.privacy, known)

    def _refused(self, broken: Iterable[BrokenRule]) -> None:
        """Raise every broken rule at once; those that come later are not looked at, for these may explain them."""
        found = [bad_value(rule.expected, path=rule.field, got=rule.got, remedy=rule.remedy) for rule in broken]
        if found:
            raise together(found)

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Every value that a trial needs, fixed or open."""
        return list_dimensions(self.model, self.training, self.privacy)

    @property
    def first(self) -> tuple[dict[str, Scalar], ...]:
        """The configurations to try first, as values of open slots by name."""
        dimensions = self.dimensions
        return locate_each(lambda one: proposal(dimensions, one), self.search.first)

    @property
    def space(self) -> SearchSpace:
        """What the search chooses from."""
        return SearchSpace(dimensions=self.dimensions, first=self.first, seed=self.search.seed, source=self._source)

    @property
    def source(self) -> str:
        """Where the spec came from, for messages and to resolve relative paths."""
        return self._source

    @property
    def overrides(self) -> Mapping[str, Any]:
        """The values that were set beside the source, by dotted name; ``None`` where one was left out."""
        return self._overrides

    @property
    def text(self) -> str:
        """The YAML file that says just this, comments and all, if it was read from one; `to_yaml` otherwise."""
        return self.to_yaml() if self._text is None else self._text

    @property
    def left_out(self) -> tuple[str, ...]:
        """The dotted names of what the spec leaves to its data; what stands there is no more than an example."""
        return self._left_out

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
        if self.stages:
            return sum(stage.trials for stage in self.stages)
        if self.search.trials is not None:
            return self.search.trials
        size = grid_size(self.dimensions)
        return DEFAULT_TRIALS if size is None else min(DEFAULT_TRIALS, size)

    @property
    def explorers(self) -> int:
        """The number of configurations that the search proposes by itself; later stages promote the best of them."""
        return self.rehearsals or (self.stages[0].trials if self.stages else self.trials)

    @property
    def spending(self) -> str:
        """The way in which the sweep spends, by the name of its module in `sweeper.privacy.spending`."""
        selecting = None if self.search.repetitions is None else self.privacy.form.selecting
        return selecting or self.privacy.budget

    @property
    def stages(self) -> tuple[StagePlan, ...]:
        """How the budget of the sweep is divided, from the first trial to the last; none without slots."""
        if not self.privacy.form.gives_noise or self.search.repetitions is not None:
            return ()
        if self.privacy.stages is not None:
            return stage_plans(self.privacy.stages)
        finals = self.privacy.last_trials
        if self.has_low_end:
            return plans_of_both_ends()
        if self.rehearsals:
            return (StagePlan(finals, 1.0),)
        if self.search.trials is not None:
            return default_plans(self.search.trials, finals)
        size = grid_size(self.dimensions)
        counts = range(max(DEFAULT_TRIALS, finals + 1), finals, -1) if size != 1 else ()
        plans = (default_plans(count, finals) for count in counts)
        return next((plan for plan in plans if size is None or plan[0].trials <= size), default_plans(finals, finals))

    @property
    def rehearsals(self) -> int:
        """How many configurations are trained on public or synthetic rows before the first trial, 0 for none."""
        return self._tried if self._rehearse else 0

    @property
    def has_low_end(self) -> bool:
        """Whether a small training comes before the final, for points of the front at small epsilons.

        With ``privacy.finals: auto``, and left out where a sketch is rehearsed on: scores of private rows are few, and
        none of the final's is at a small epsilon.
        """
        wanted = AUTO if self.privacy.finals is None and self.sketch_share else self.privacy.finals
        return wanted == AUTO and self.privacy.stages is None and self.rehearsals > 0

    @property
    def sketch_share(self) -> float:
        """What a private sketch to rehearse on has of the budget's signal; 0 without one."""
        return SKETCH_SHARE if self._rehearse == SKETCH else 0.0

    @property
    def _tried(self) -> int:
        """How many configurations are tried if they are rehearsed."""
        return self.search.trials or min(DEFAULT_TRIALS, grid_size(self.dimensions) or DEFAULT_TRIALS)

    @property
    def _rehearse(self) -> bool | str:
        """Whether configurations are rehearsed, and on what.

        Left out, ``search.rehearse`` is on where the budget is cut into slots, the spec gives no stages and there is
        something to choose: on validation rows where they are public, on a sketch where those of a table are private
        and more configurations are tried than trained.
        """
        if self.search.rehearse is not None:
            return self.search.rehearse
        fits = self.privacy.form.gives_noise and self.privacy.stages is None and self.search.repetitions is None
        if not fits or grid_size(self.dimensions) == 1:
            return False
        usual = Evaluation.PUBLIC if self.data.path is None else Evaluation.PRIVATE
        evaluation = self.data.evaluation or usual
        if evaluation is Evaluation.PRIVATE and self.data.is_table:
            return SKETCH if self._tried > self.privacy.last_trials else False
        return evaluation is Evaluation.PUBLIC

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
            "block": data.block,
            "blocks": data.blocks,
            "splits": None if data.splits is None else data.splits.splitting(),
            "preparation": data.preparation(),
            "features": None if data.features is None else data.features.declaration(self._beside(data.features.file)),
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
        return self.with_values({f"search.{key}": value for key, value in changes.items() if value is not None})

    def with_concurrent(self, concurrent: int) -> "Spec":
        """Return the spec with another number of processes at once, as ``--concurrent`` asks for.

        Raises:
            SpecError: not a number of processes.
        """
        return self.with_values({"resources.concurrent": concurrent})

    def with_values(self, given: Mapping[str, Any]) -> "Spec":
        """Return the spec with other values by dotted name, as if its file said them.

        Raises:
            SpecError: the changed spec is not valid.
        """
        if not given:
            return self
        return Spec.from_mapping(with_values(self.to_plain(), given), self._source, {**self._overrides, **given})

    def to_plain(self) -> dict[str, Any]:
        """Return the spec as JSON values, defaults filled in, without what it leaves to its data.

        ``from_mapping`` reads it back.
        """
        content = self.model_dump(mode="json", exclude_none=True)
        if not content["deployment"]:
            del content["deployment"]
        return with_values(content, dict.fromkeys(self._left_out))

    def to_yaml(self) -> str:
        """Return the spec as YAML, defaults filled in; ``from_yaml`` reads it back."""
        return yaml.safe_dump(self.to_plain(), sort_keys=False, allow_unicode=True)

    def digest(self) -> str:
        """Return a hash of everything that the spec says."""
        return hashlib.sha256(json.dumps(self.to_plain(), sort_keys=True).encode()).hexdigest()[:16]

    def mistaken(self, expected: str, field: str, value: Any = None, remedy: str = "") -> SpecError:
        """Return the error for a mistake that was found after reading."""
        return mistake(self._source, expected, field, value, remedy, overrides=self._overrides)

    def validate_against(self, population: int, classes: int | None = None) -> None:
        """Find the mistakes that depend on the data.

        ``population`` is N, the public number of training rows (units, when a unit column is declared).

        Raises:
            SpecError: delta >= 1/N without ``accept_large_delta``, a batch larger than N, auroc or a loss on
                the wrong number of classes, class weights or priors for another number of classes.
        """
        broken = broken_data_rules(self.search, self.training, self.privacy, population, classes)
        found = [self.mistaken(rule.expected, rule.field, rule.got, rule.remedy) for rule in broken]
        if found:
            raise SpecError(*(str(one) for one in found))


def schema() -> dict[str, Any]:
    """Return the JSON schema of a spec, for editors; it requires nothing that a spec may leave to its data."""
    made = Spec.model_json_schema()
    for section in (made, *made["$defs"].values()):
        if "required" in section:
            section["required"] = [name for name in section["required"] if name not in MAY_LACK]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def chosen_by_results(spec: Spec) -> tuple[str, ...]:
    """Return what results choose of a sweep that its price takes as fixed before them; nothing where it is fixed.

    These are costs of trials that a sampler proposes which learns from trials before.
    """
    is_fixed = spec.privacy.sweep_epsilon is not None or spec.search.repetitions is not None
    return spec.space.open_costs if spec.search.learns and spec.trials > 1 and not is_fixed else ()
