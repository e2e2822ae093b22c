"""What the sections of a spec demand of each other: a budget for the whole sweep, one price for each trial, a space."""

from collections.abc import Iterator, Sequence

from clipless.datasets import Evaluation
from clipless.plans.method import Method
from sweeper.specification.dimensions import Dimension, grid_size
from sweeper.specification.fields.messages import BrokenRule
from sweeper.specification.fields.ranges import Choices, Range
from sweeper.specification.search import SKETCH, Sampler, SearchSettings
from sweeper.specification.settings import PrivacySettings, TrainingSettings


def broken_stage_rules(
    search: SearchSettings, training: TrainingSettings, privacy: PrivacySettings, evaluation: Evaluation | None
) -> Iterator[BrokenRule]:
    """Yield what keeps the budget of a sweep from being kept; nothing if all is well.

    ``evaluation`` is None where the data set says it.
    """
    if search.rehearse:
        yield from _of_rehearsals(search, privacy, evaluation)
    yield from _of_form(privacy)
    if privacy.form.gives_noise:
        yield from _of_slots(search, training, privacy)


def _of_rehearsals(
    search: SearchSettings, privacy: PrivacySettings, evaluation: Evaluation | None
) -> Iterator[BrokenRule]:
    if search.repetitions is not None:
        expected = "no {name} under selection: private, whose candidates all come from one prior"
        yield BrokenRule("search.rehearse", search.rehearse, expected, "leave it out")
    elif not privacy.form.gives_noise:
        expected = "no {name} without the slots of privacy.sweep_epsilon, whose noise they have"
        yield BrokenRule("search.rehearse", search.rehearse, expected, "leave it out, or add sweep_epsilon")
    if search.rehearse is True and evaluation not in (None, Evaluation.PUBLIC):
        expected = "no {name} without evaluation: public, for they are trained on validation rows"
        yield BrokenRule("search.rehearse", True, expected, f"leave it out, or set it to {SKETCH}")


def _of_form(privacy: PrivacySettings) -> Iterator[BrokenRule]:
    form = privacy.form
    for name in form.refused:
        if (given := getattr(privacy, name)) is not None:
            shown = None if name == "stages" else given
            yield BrokenRule(f"privacy.{name}", shown, f"no {{name}} {form.because}", form.remedy)


def _of_slots(search: SearchSettings, training: TrainingSettings, privacy: PrivacySettings) -> Iterator[BrokenRule]:
    methods = training.method.values if isinstance(training.method, Choices) else (training.method,)
    if Method.NON_PRIVATE.value in methods:
        expected = "private methods with sweep_epsilon: a trial without privacy fits no budget"
        yield BrokenRule("training.method", Method.NON_PRIVATE.value, expected, "leave it out")
    if search.trials is not None and isinstance(privacy.finals, int) and privacy.finals > search.trials:
        expected = f"at most {search.trials} finals, the number of configurations that are tried"
        yield BrokenRule("privacy.finals", privacy.finals, expected, "lower it")
    if search.repetitions is not None or privacy.stages is None:
        return
    if privacy.finals is not None:
        expected = "no {name} beside stages, whose last one says how many there are"
        yield BrokenRule("privacy.finals", privacy.finals, expected, "leave it out")
    *first, last = privacy.stages
    for i, stage in enumerate(first):
        if stage.share is None:
            expected = "a share of the budget for every stage but the last, which takes what is left"
            yield BrokenRule(f"privacy.stages.{i}.share", None, expected, "add it, such as 0.1")
        if privacy.stages[i + 1].trials > stage.trials:
            expected = f"at most {stage.trials} trials in a stage that takes up the best of {stage.trials}"
            yield BrokenRule(f"privacy.stages.{i + 1}.trials", privacy.stages[i + 1].trials, expected, "lower it")
    total = sum(stage.share or 0.0 for stage in first)
    if last.share is not None and abs(total + last.share - 1.0) > 1e-9:
        expected = "no share for the last stage, which takes what is left"
        yield BrokenRule(f"privacy.stages.{len(first)}.share", last.share, expected, "leave it out")
    if not total < 1.0:
        expected = f"shares that leave something for the last stage, but these are {total:g} together"
        yield BrokenRule("privacy.stages", None, expected, "lower them")
    count = sum(stage.trials for stage in privacy.stages)
    if search.trials not in (None, count):
        expected = f"no other number of trials than the {count} of privacy.stages"
        yield BrokenRule("search.trials", search.trials, expected, "leave it out, or leave out privacy.stages")


_COUPLED = ("privacy.epsilon", "privacy.noise_multiplier", "training.epochs")


def broken_budget_rules(training: TrainingSettings, privacy: PrivacySettings) -> Iterator[BrokenRule]:
    """Yield what keeps a trial from having one end and one price; nothing if all is well."""
    values = (privacy.epsilon, privacy.noise_multiplier, training.epochs)
    given = [field for field, value in zip(_COUPLED, values, strict=True) if value is not None]
    if privacy.form.gives_noise:
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
