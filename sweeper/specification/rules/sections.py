"""What the sections of a spec demand of each other."""

from collections.abc import Iterator, Sequence

from clipless.plans.method import Method
from sweeper.specification.dimensions import Dimension, grid_size
from sweeper.specification.fields.ranges import Choices, Range
from sweeper.specification.rules._base import BrokenRule
from sweeper.specification.search import Sampler, SearchSettings
from sweeper.specification.settings import PrivacySettings, TrainingSettings

_COUPLED = ("privacy.epsilon", "privacy.noise_multiplier", "training.epochs")


def broken_budget_rules(training: TrainingSettings, privacy: PrivacySettings) -> Iterator[BrokenRule]:
    """Yield what keeps a trial from having one end and one price; nothing if all is well."""
    values = (privacy.epsilon, privacy.noise_multiplier, training.epochs)
    given = [field for field, value in zip(_COUPLED, values, strict=True) if value is not None]
    if privacy.in_slots:
        yield from _noise_of_slots(given)
    elif len(given) != 2:
        missing = " or ".join(field for field in _COUPLED if field not in given)
        expected = f"exactly two of {', '.join(_COUPLED[:2])} and {_COUPLED[2]}, which give the third"
        remedy = f"leave one of {', '.join(given)} out" if len(given) > 2 else f"add {missing}"
        yield BrokenRule("", None, f"{expected}; got {', '.join(given) or 'none of them'}", remedy)
    methods = training.method.values if isinstance(training.method, Choices) else (training.method,)
    if Method.NON_PRIVATE.value in methods and training.epochs is None:
        yield BrokenRule(
            "training.epochs", None, "{name} where a trial may be non-private: no budget ends it", "add it"
        )


def _noise_of_slots(given: Sequence[str]) -> Iterator[BrokenRule]:
    for field in given:
        if field != "training.epochs":
            expected = "no {name} with sweep_epsilon, which gives every trial its noise"
            yield BrokenRule(field, None, expected, "leave it out, or set privacy.accounting: filter")
    if "training.epochs" not in given:
        yield BrokenRule("training.epochs", None, "{name} with sweep_epsilon, which gives the noise alone", "add it")


def broken_space_rules(search: SearchSettings, dimensions: Sequence[Dimension], trials: int) -> Iterator[BrokenRule]:
    """Yield what keeps a search space from holding as many configurations as are asked for.

    ``trials`` are those that the sampler is asked for: all, or those of the first stage.
    """
    size = grid_size(dimensions)
    if search.trials is not None and size is not None and trials > size:
        expected = f"trials <= {size}, the number of configurations in the search space"
        remedy = "lower it or open a hyperparameter: the same configuration twice costs privacy twice"
        yield BrokenRule("search.trials", search.trials, expected, remedy)
    if search.sampler is Sampler.GRID and size is None:
        endless = [one.name for one in dimensions if isinstance(one.space, Range) and one.space.size() is None]
        expected = "a list or whole numbers for every open hyperparameter of a grid"
        yield BrokenRule(endless[0], None, expected, "list its values, or use quasi-random")
    if len(search.first) > trials:
        yield BrokenRule(
            "search.first", len(search.first), f"at most {trials} configurations, the number of trials", ""
        )
