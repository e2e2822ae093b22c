"""What a card says of scores: their noise, tables by class, released curves and smoothed certificates."""

from collections.abc import Iterable, Iterator

from clipless.privacy.events import Relation
from sweeper.privacy.card.content import CardContent, ClassTable, ScoreNoiseRow, SmoothedTable
from sweeper.records import ReleasedCurves
from sweeper.rounding import exactly, round_up
from sweeper.specification.objectives import is_share_of_rows

_SHOWN_RADII = 8  # of a released curve, in words


def class_table(classes: ClassTable | None) -> Iterator[str]:
    """Yield how public test rows were decided by class, and a warning where nearly all got one answer."""
    if classes is None:
        return
    if classes.warning:
        yield f"> **Nearly constant.** {classes.warning}."
    constant = classes.constant_answer
    compared = (
        "" if constant is None else f" The majority-class baseline has an accuracy of {number(constant)} on them."
    )
    yield f"Balanced accuracy on test rows: {number(classes.balanced_accuracy)}, the mean of the recalls.{compared}"
    columns = zip(classes.names, classes.rows, classes.decided, classes.correct, strict=True)
    rows = [
        (name, str(count), str(decided), _share(correct, count), _share(correct, decided))
        for name, count, decided, correct in columns
    ]
    yield table(("class", "test rows", "decided for it", "recall", "precision"), rows)


def curves_in_words(curves: ReleasedCurves | None) -> Iterator[str]:
    """Yield what was released of curves of private test rows, with its bounds."""
    if curves is None:
        return
    yield (
        f"The test column is read off curves that were released once, with noise multiplier "
        f"{curves.noise_multiplier:g} for all of them. Each lies between its bounds everywhere at once with a "
        f"confidence of {100 * curves.confidence:g} %, noise and the choice of the {curves.rows} rows included."
    )
    every = max(1, (len(curves.radii) - 1) // _SHOWN_RADII)
    columns = zip(curves.radii, curves.certified, curves.certified_low, curves.certified_high, strict=True)
    rows = [
        (f"certified at {number(radius)}" if radius else "accuracy", *map(number, found))
        for radius, *found in [*columns][::every]
    ]
    scores = curves.scores
    if scores is not None:
        low, area, high = map(number, scores.auroc)
        rows.append(("AUROC", area, low, high))
    yield table(("on test rows", "value", "at least", "at most"), rows)
    if scores is not None:
        yield (
            f"Hosmer-Lemeshow statistic {number(scores.hosmer_lemeshow)} over {len(scores.group_rows)} groups, "
            f"p-value {scores.p_value:.2g} against calibrated models under the same noise."
        )


def smoothed_in_words(facts: SmoothedTable | None) -> Iterator[str]:
    """Yield how smoothed certificates were made."""
    if facts is None:
        return
    yield (
        f"Smoothed certificates of the test column: sigma {facts.sigma:g}, alpha {facts.alpha:g} for each row, "
        f"{facts.draws} draws counted after {facts.selection_draws} that chose the class, on {facts.rows} "
        f"rows. The smoothed classifier was certified for the right class on {facts.correct} of them, and abstained "
        f"on {facts.abstained}. They are no certificates of the saved model by itself."
    )


def noise_of_scores(card: CardContent) -> Iterator[str]:
    """Yield how noisy scores of private rows are, and what they cost."""
    noise, facts = card.score_noise, card.guarantee
    if noise is None:
        return
    own, std = noise.of_the_trial, noise.std
    together = (
        "A row is in one split only, so that training and scores together cost the larger of their prices"
        if noise.apart and facts.relation is Relation.ADD_OR_REMOVE_ONE
        else "A neighbouring data set may differ in two splits, so that training and scores together cost their "
        "composition"
    )
    yield (
        f"Scores ({', '.join(noise.names)}) were released as counts with Gaussian noise: of multiplier "
        f"{noise.noise_multiplier:.4g} on validation rows, a standard deviation of {std['validation']:.3g} of a "
        f"score, and of multiplier {test_multiplier(noise):.4g} on test rows, a standard deviation of "
        f"{std['test']:.3g}{_of_curves(noise)}{_of_classes(noise)}. "
        f"The {own.steps} releases of validation scores that this trial planned"
        f"{of_each(facts.trainings)} cost the validation rows epsilon {round_up(own.epsilon)} at delta "
        f"{exactly(facts.delta)}. {together}: *The price* holds both."
    )


def test_multiplier(noise: ScoreNoiseRow) -> float:
    """Return the noise multiplier of a release on test rows: that of their curves, or what their deviation says.

    Counts of both splits have one sensitivity, so that the deviations of these counts are as the multipliers.
    """
    if noise.curves is not None:
        return noise.curves.noise_multiplier
    std, rows = noise.std, noise.rows
    counts = {split: std[split] * rows[split] for split in ("validation", "test")}
    return noise.noise_multiplier * counts["test"] / counts["validation"]


def _of_classes(noise: ScoreNoiseRow) -> str:
    named = [name for name in noise.names if not is_share_of_rows(name)]
    return f"; {' and '.join(named)} have more, in proportion to one over the size of a class" if named else ""


def _of_curves(noise: ScoreNoiseRow) -> str:
    return "" if noise.curves is None else ", read off a curve"


def _share(part: int, whole: int) -> str:
    return number(part / whole) if whole else "none"


def of_each(trainings: int) -> str:
    """Return that numbers are of several trainings, empty for one."""
    return f" in its {trainings} trainings together" if trainings > 1 else ""


def number(value: float) -> str:
    """Return a number with four significant digits."""
    return f"{value:.4g}"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table as Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
