"""What a spec must look like for private selection: the conditions of its price that can be read off beforehand.

The price (`clipless.privacy.accounting.selection_price`) is that of the best of a secret random number of independent
candidates, each of them the same random experiment: draw a configuration from one fixed prior, train it at the cost
of one event. Whatever lets one candidate know of another, or gives them different events, is refused here by name.
What can only be seen while trials run is in ``sweeper/privacy/selection.py``.
"""

from collections.abc import Iterator, Sequence

from clipless.datasets import Evaluation
from clipless.plans.method import Method
from clipless.privacy.events import Relation
from sweeper.specification.data import DataSettings
from sweeper.specification.dimensions import Dimension
from sweeper.specification.fields.messages import BrokenRule
from sweeper.specification.objectives import reads_training_rows
from sweeper.specification.search import NO_SCHEDULER, Sampler, SearchSettings
from sweeper.specification.settings import PrivacySettings
from sweeper.specification.stages import USUAL_SPENDING

EVENT_DIMENSIONS = (
    "training.method",
    "training.epochs",
    "training.batch_size",
    "privacy.epsilon",
    "privacy.noise_multiplier",
    "model.standardise",
    "model.input_quantile",
)
"""Dimensions that can change what one training spends: noise, sampling rate, steps, releases before the first step."""

_UNDER = "under selection: private"


def broken_selection_rules(
    search: SearchSettings, privacy: PrivacySettings, data: DataSettings, dimensions: Sequence[Dimension]
) -> Iterator[BrokenRule]:
    """Yield what private selection cannot price; nothing without ``selection: private``."""
    if search.repetitions is not None:
        yield from _of_search(search)
        yield from _of_budget(search, privacy)
        yield from _of_events(privacy, dimensions)
        yield from _of_scores(search, data)


def _of_search(search: SearchSettings) -> Iterator[BrokenRule]:
    if search.sampler is not Sampler.RANDOM:
        name = search.sampler.value if isinstance(search.sampler, Sampler) else search.sampler
        expected = f"sampler random {_UNDER}, whose candidates are drawn independently from one fixed prior"
        yield BrokenRule("search.sampler", name, expected, "set sampler: random")
    if search.scheduler != NO_SCHEDULER:
        expected = f"scheduler none {_UNDER}, whose candidates all train to their end"
        yield BrokenRule("search.scheduler", search.scheduler, expected, "leave it out")
    if search.trials is not None:
        expected = f"no {{name}} {_UNDER}, where their number is drawn at random"
        yield BrokenRule("search.trials", search.trials, expected, "give its mean, selection_mean, instead")
    if search.first:
        expected = f"no configurations to try {{name}} {_UNDER}, whose candidates all come from one prior"
        yield BrokenRule("search.first", None, expected, "leave them out")
    for name in ("hours", "trial_hours"):
        if (limit := getattr(search, name)) is not None:
            expected = f"no {{name}} {_UNDER}: a time limit looks at how long training takes"
            yield BrokenRule(f"search.{name}", limit, expected, "leave it out")
    if search.repeats != 1:
        expected = f"repeats = 1 {_UNDER}, which prices candidates, not means of them"
        yield BrokenRule("search.repeats", search.repeats, expected, "leave it out")
    if search.seed != 0:
        expected = f"no {{name}} {_UNDER}, which draws configurations and initial weights from secret randomness"
        yield BrokenRule("search.seed", search.seed, expected, "leave it out")


def _of_budget(search: SearchSettings, privacy: PrivacySettings) -> Iterator[BrokenRule]:
    """Yield what the budget of a selection and its final cannot hold."""
    if privacy.sweep_epsilon is None:
        if search.selection_share is not None:
            expected = "no {name} without privacy.sweep_epsilon, the budget that is divided"
            yield BrokenRule(
                "search.selection_share", search.selection_share, expected, "add sweep_epsilon, or leave it out"
            )
        return
    if privacy.form.selecting is None:
        expected = f"accounting {USUAL_SPENDING} {_UNDER}, whose price is fixed beforehand"
        yield BrokenRule("privacy.accounting", privacy.accounting, expected, "leave it out")
    if privacy.stages is not None:
        expected = f"no {{name}} {_UNDER}, whose budget is that of the candidates and of one final"
        yield BrokenRule("privacy.stages", None, expected, "divide it by search.selection_share")
    if privacy.finals not in (None, 1):
        expected = f"one final {_UNDER}, which has one winner"
        yield BrokenRule("privacy.finals", privacy.finals, expected, "leave it out")


def _of_events(privacy: PrivacySettings, dimensions: Sequence[Dimension]) -> Iterator[BrokenRule]:
    if privacy.relation is not Relation.ADD_OR_REMOVE_ONE:
        expected = f"relation add-or-remove-one {_UNDER}, where two accountants check each other"
        yield BrokenRule("privacy.relation", privacy.relation.value, expected, "leave it out")
    for dimension in dimensions:
        if dimension.name in EVENT_DIMENSIONS and dimension.space is not None:
            expected = f"one value for {{name}} {_UNDER}, whose candidates all spend the same"
            yield BrokenRule(dimension.name, dimension.space.to_plain(), expected, "give one value")
        elif dimension.value == Method.NON_PRIVATE.value and dimension.name == "training.method":
            yield BrokenRule(
                dimension.name, dimension.value, f"a private method {_UNDER}", "use clipless, lip-dp-sgd or dp-sgd"
            )


def _of_scores(search: SearchSettings, data: DataSettings) -> Iterator[BrokenRule]:
    if data.evaluation is Evaluation.EXPLORATORY:
        expected = f"scores that are public or paid for {_UNDER}, which is a guarantee"
        yield BrokenRule(
            "data.evaluation", data.evaluation.value, expected, "declare the rows public, or leave selection out"
        )
    for i, one in enumerate(search.outcomes if data.evaluation is Evaluation.PRIVATE else ()):
        if one.name != "epsilon":
            expected = f"no constraint on scores of private rows {_UNDER}: the luck of their noise would meet it"
            remedy = "make it the first objective, or leave it out"
            yield BrokenRule(f"search.constraints.{i}", search.constraints[i], expected, remedy)
    for i, name in enumerate(search.metrics):
        if reads_training_rows([name]):
            expected = f"no metric of training rows {_UNDER}: it is no part of what a candidate spends"
            yield BrokenRule(f"search.metrics.{i}", name, expected, "leave it out")
