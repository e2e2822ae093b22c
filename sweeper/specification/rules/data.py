"""What a spec must look like for its data: for their numbers of rows and classes, and where rows held back are private.

Released of private rows are shares of rows that each row decides alone (``clipless.privacy.noisy_counts``), recalls and
AUROC (``clipless.privacy.class_scores``). Membership inference reads training rows, attacks draw the starts of all rows
from one generator, certified AUROCs have no bound of what a row moves, and what a plug-in computes is unknown: each is
refused by name.
"""

from collections.abc import Iterator

from clipless.datasets import Evaluation
from clipless.privacy.class_scores import MOST_CLASSES
from sweeper.specification.data import DataSettings
from sweeper.specification.fields.messages import BrokenRule
from sweeper.specification.fields.ranges import largest
from sweeper.specification.left_out import default_delta
from sweeper.specification.objectives import BALANCED, is_paid_score, needs_two_classes, reads_training_rows
from sweeper.specification.search import SearchSettings
from sweeper.specification.settings import PrivacySettings, TrainingSettings

_OF_PIXELS = "/255"  # how radii end that are in levels of a pixel


def broken_data_rules(
    search: SearchSettings, training: TrainingSettings, privacy: PrivacySettings, population: int, classes: int | None
) -> Iterator[BrokenRule]:
    """Yield what does not fit the data; nothing if all is well."""
    if not (privacy.delta < 1 / population or privacy.accept_large_delta):
        expected = f"delta < 1/N = {1 / population:.3g} for N={population} training rows"
        remedy = (
            f"write {default_delta(population):g}, or leave it out: one this large permits publishing a row outright"
        )
        yield BrokenRule("privacy.delta", privacy.delta, expected, remedy)
    batch_size = largest(training.batch_size)
    if not batch_size <= population:
        expected = f"batch_size <= N = {population}, the number of training rows"
        yield BrokenRule("training.batch_size", batch_size, expected, "lower it, or the end of its range")
    if classes is not None:
        yield from _of_classes(search, training, classes)


def _of_classes(search: SearchSettings, training: TrainingSettings, classes: int) -> Iterator[BrokenRule]:
    for kind, names, remedy in (
        ("objective", search.objectives, "use accuracy"),
        ("metric", search.metrics, "use certified@R"),
    ):
        binary = [name for name in names if needs_two_classes(name)]
        if binary and classes != 2:
            expected = f"two classes for the {kind} {binary[0]}, the data have {classes}"
            yield BrokenRule(f"search.{kind}s", None, expected, remedy)
    if BALANCED in search.objectives and classes > MOST_CLASSES:
        expected = f"at most {MOST_CLASSES} classes for the objective {BALANCED}, the data have {classes}"
        yield BrokenRule("search.objectives", None, expected, "use accuracy")
    if classes != 2 and any(loss.name == "tau-bce" for loss in training.loss):
        yield BrokenRule("training.loss", None, f"two classes for tau-bce, the data have {classes}", "use tau-cce")
    for field, numbers in _class_by_class(training):
        if len(numbers) != classes:
            yield BrokenRule(field, list(numbers), f"{classes} numbers, one for each class of the data", "")


def _class_by_class(training: TrainingSettings) -> Iterator[tuple[str, tuple[float, ...]]]:
    if training.class_weights is not None:
        yield "training.class_weights", training.class_weights
    for loss in training.loss:
        priors = loss.parameters.get("priors")
        if isinstance(priors, tuple):
            yield f"training.loss.{loss.name}.priors", priors


def broken_feature_rules(search: SearchSettings, data: DataSettings) -> Iterator[BrokenRule]:
    """Yield radii that are written as those of pixels, where they are in feature units."""
    if data.features is None:
        return
    for section, names in (("objectives", search.objectives), ("metrics", search.metrics)):
        for number, name in enumerate(names):
            if name.endswith(_OF_PIXELS):
                expected = "a radius in units of the features of {encoder}, not one of pixels"
                remedy = f"write a number, such as {name.removesuffix(_OF_PIXELS).partition('@')[0]}@0.5"
                field = f"search.{section}.{number}"
                yield BrokenRule(field, name, expected.format(encoder=data.features.name), remedy)


def broken_reading_rules(
    search: SearchSettings, privacy: PrivacySettings, evaluation: Evaluation | None
) -> Iterator[BrokenRule]:
    """Yield scores of training rows, which no epsilon covers, where an epsilon is to cover what becomes of them."""
    if privacy.account is not None:
        for i, name in enumerate(search.metrics):
            if reads_training_rows([name]):
                expected = "no metric of training rows with privacy.account, none of whose budget covers it"
                yield BrokenRule(f"search.metrics.{i}", name, expected, "leave one of them out")
    if evaluation is Evaluation.EXPLORATORY:
        return
    for i, one in enumerate(search.outcomes):
        if reads_training_rows([one.name]):
            expected = "no constraint on scores of training rows: they choose what is trained next, and no epsilon "
            expected += "covers them"
            remedy = "leave it out; search.metrics shows them"
            yield BrokenRule(f"search.constraints.{i}", search.constraints[i], expected, remedy)


def broken_score_rules(
    search: SearchSettings, privacy: PrivacySettings, evaluation: Evaluation
) -> Iterator[BrokenRule]:
    """Yield what keeps scores of such rows from being paid for; nothing if all is well."""
    if evaluation is not Evaluation.PRIVATE:
        for name in ("score_noise", "curve_noise", "final_scores"):
            given = getattr(privacy, name)
            if given is not None:
                expected = "no {name} without evaluation: private, whose scores it is about"
                yield BrokenRule(f"privacy.{name}", given, expected, "leave it out")
        return
    named = [(f"search.objectives.{i}", name) for i, name in enumerate(search.objectives) if name != "epsilon"]
    named += [(f"search.metrics.{i}", name) for i, name in enumerate(search.metrics)]
    for field, name in named:
        if not is_paid_score(name):
            expected = "accuracy, balanced_accuracy, auroc and certified@R only with evaluation: private, whose scores "
            expected += "are paid for"
            yield BrokenRule(field, name, expected, "leave it out, or declare the rows public if they are")
        if name == BALANCED and privacy.curve_noise is not None:
            expected = "no balanced_accuracy with privacy.curve_noise, whose curves have no recalls"
            yield BrokenRule(field, name, expected, "leave one of them out")
    if search.free_points:
        expected = "no {name} with evaluation: private, where each score is a release of its own"
        yield BrokenRule("search.free_points", True, expected, "leave it out")
    if privacy.final_scores is not None and (not privacy.form.gives_noise or search.repetitions is not None):
        expected = "no {name} without a sweep_epsilon that is divided into slots of explorers and finals"
        yield BrokenRule("privacy.final_scores", privacy.final_scores, expected, "leave it out")
    if privacy.score_noise is None and privacy.form.gives_noise and search.repetitions is not None:
        expected = "{name}, the noise multiplier of the scores, where a private selection and its final share a budget"
        yield BrokenRule(
            "privacy.score_noise", None, expected, "add it; sweeper check shows what scores then cost and tell"
        )
