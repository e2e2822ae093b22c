"""What a spec must look like where it gives a budget for the whole sweep."""

from collections.abc import Iterator

from clipless.datasets import Evaluation
from clipless.plans.method import Method
from clipless.privacy.events import Relation
from sweeper.specification import stages
from sweeper.specification.fields.ranges import Choices
from sweeper.specification.rules._base import BrokenRule
from sweeper.specification.search import SearchSettings
from sweeper.specification.settings import PrivacySettings, TrainingSettings


def broken_stage_rules(
    search: SearchSettings, training: TrainingSettings, privacy: PrivacySettings, evaluation: Evaluation | None
) -> Iterator[BrokenRule]:
    """Yield what keeps the budget of a sweep from being kept; nothing if all is well.

    ``evaluation`` is None where the data set says it.
    """
    if search.rehearse:
        yield from _of_rehearsals(search, privacy, evaluation)
    match privacy.budget:
        case stages.COMPOSITION:
            yield from _without_budget(privacy)
        case stages.FILTER:
            yield from _of_filter(privacy)
        case _:
            yield from _of_slots(search, training, privacy)


def _of_rehearsals(
    search: SearchSettings, privacy: PrivacySettings, evaluation: Evaluation | None
) -> Iterator[BrokenRule]:
    if search.repetitions is not None:
        expected = "no {name} under selection: private, whose candidates all come from one prior"
        yield BrokenRule("search.rehearse", True, expected, "leave it out")
    elif not privacy.in_slots:
        expected = "no {name} without the slots of privacy.sweep_epsilon, whose noise they have"
        yield BrokenRule("search.rehearse", True, expected, "leave it out, or add sweep_epsilon")
    if evaluation not in (None, Evaluation.PUBLIC):
        expected = "no {name} without evaluation: public, for they are trained on validation rows"
        yield BrokenRule("search.rehearse", True, expected, "leave it out")


def _without_budget(privacy: PrivacySettings) -> Iterator[BrokenRule]:
    for name in ("stages", "finals", "spare_epochs", "accounting"):
        if (given := getattr(privacy, name)) is not None:
            shown = None if name == "stages" else given
            expected = "no {name} without sweep_epsilon, the budget that is divided"
            yield BrokenRule(f"privacy.{name}", shown, expected, "add sweep_epsilon, or leave it out")


def _of_filter(privacy: PrivacySettings) -> Iterator[BrokenRule]:
    for name in ("stages", "finals", "spare_epochs"):
        if (given := getattr(privacy, name)) is not None:
            shown = None if name == "stages" else given
            expected = "no {name} with accounting: filter, which takes trials as long as they fit"
            yield BrokenRule(f"privacy.{name}", shown, expected, "leave it out")
    if privacy.relation is not Relation.ADD_OR_REMOVE_ONE:
        expected = "relation add-or-remove-one with accounting: filter, which adds up Renyi divergences"
        yield BrokenRule("privacy.relation", privacy.relation.value, expected, "use accounting: slots")


def _of_slots(search: SearchSettings, training: TrainingSettings, privacy: PrivacySettings) -> Iterator[BrokenRule]:
    methods = training.method.values if isinstance(training.method, Choices) else (training.method,)
    if Method.NON_PRIVATE.value in methods:
        expected = "private methods with sweep_epsilon: a trial without privacy fits no budget"
        yield BrokenRule("training.method", Method.NON_PRIVATE.value, expected, "leave it out")
    if search.trials is not None and privacy.finals is not None and privacy.finals > search.trials:
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
