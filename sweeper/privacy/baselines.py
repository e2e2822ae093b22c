"""What scores are compared with: a constant prediction, and what others reached without privacy.

Labels of public validation and test rows say how much a constant prediction gets right; those of private rows would be
an unpaid release, so that there the share that their owner declares, the counts of classes that a private sketch of the
training rows released, or else the number of classes, has to do. A score of a training without noise is a release of
its training rows: none is computed here, the one that a spec gives is taken as public.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

from clipless.datasets import Evaluation
from sweeper.records import ClassCounts, Interval
from sweeper.rounding import in_brackets
from sweeper.specification.objectives import (
    AUROC,
    BALANCED,
    attack_radius_text,
    auroc_radius_text,
    is_share_of_rows,
    recall_text,
    smoothed_radius_text,
)

if TYPE_CHECKING:
    from clipless.datasets import Dataset
    from clipless.sketches.release import Sketch


class MajoritySource(enum.StrEnum):
    """Where the share of the most frequent class is known from."""

    ROWS = "rows"  # labels of rows that are public or exploratory
    DECLARED = "declared"  # the ranges file
    SKETCH = "sketch"  # counts of a private sketch of the training rows


_FAR = 0.05  # from the interval of a sketched share: a declared one that is off by less is rounded
_RARE = 0.85  # share of the most frequent class from which accuracy says little
GIVEN = "What was reached without privacy, as the spec gives it: {scores}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """What a score has to beat, and what it may come near to."""

    classes: tuple[str, ...] = ()  # names of the classes
    # share of the rows that are of the most frequent class, by split: of private rows as declared or sketched, or none
    majority: Mapping[str, float] = field(default_factory=dict)
    majority_source: MajoritySource | None = None  # None where no share is known, and in earlier records
    majority_interval: Interval | None = None  # 95 %, of a share that is known with noise
    declared: float | None = None  # in the ranges file, where the sketch contradicts it
    # rows by split, or privacy units of several rows: a public number, of private ones too
    rows: Mapping[str, int] = field(default_factory=dict)
    # what was reached without privacy, by objective, as the spec gives it
    without_privacy: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, data: "Dataset", without_privacy: Mapping[str, float] | None = None) -> "Baselines":
        """Return the baselines of a data set.

        Guarantees:
            Labels are read where validation and test rows are public or exploratory, and nowhere else; how many there
            are is public everywhere (`clipless.datasets.metadata.counts_fact`).
        """
        declared = data.metadata
        open_ = declared.evaluation in (Evaluation.PUBLIC, Evaluation.EXPLORATORY)
        splits = {"validation": data.validation, "test": data.test}
        shares = {
            name: float(split.y.bincount(split.weights()).max()) / len(split)
            for name, split in splits.items()
            if open_ and len(split)
        }
        if not open_ and declared.largest_share is not None:
            shares = dict.fromkeys(("validation", "test"), declared.largest_share)
        return cls(
            classes=declared.classes,
            majority=shares,
            majority_source=(MajoritySource.ROWS if open_ else MajoritySource.DECLARED) if shares else None,
            rows={name: len(split) for name, split in splits.items()},
            without_privacy=dict(without_privacy or {}),
        )

    def with_sketch(self, sketch: "Sketch | None", population: int) -> "Baselines":
        """Return them with the share of the most frequent class in a private sketch, where none or another is declared.

        ``population`` is how many rows, or units, it counts. The interval is for new rows, as those of scores are.
        Where the noise of the sum of all counts is not far below it, nothing is known of shares. A declared share is
        contradicted by one that is far from it: a class that no row has is misspelt.
        """
        declared = self.majority.get("validation") if self.majority_source is MajoritySource.DECLARED else None
        if sketch is None or (self.majority and declared is None):
            return self
        counts = [sums[0] for sums in sketch.sums]  # negative ones too: without these the total would be too large
        interval = _largest_share(counts, sketch.event.noise_multiplier, population)
        if interval is None or (declared is not None and interval[0] - _FAR <= declared <= interval[1] + _FAR):
            return self
        shares = dict.fromkeys(("validation", "test"), min(max(counts) / sum(counts), 1.0))
        known = replace(self, majority=shares, majority_source=MajoritySource.SKETCH, majority_interval=interval)
        return replace(known, declared=declared)

    @property
    def public_facts(self) -> tuple[str, ...]:
        """Sentences for the privacy card: what is taken as public here."""
        scores = ", ".join(f"{name} {value:g}" for name, value in self.without_privacy.items())
        return (GIVEN.format(scores=scores),) if scores else ()

    def constant(self, name: str, split: str = "validation") -> float | None:
        """Return what a constant prediction reaches, None where that is not known.

        A constant prediction has every radius: the share holds for certified and smoothed accuracy, and under attack.
        Where labels are private it is the least share that the most frequent of so many classes can have.
        """
        if name == AUROC:
            return 0.5
        if name == BALANCED and self.classes:
            return 1 / len(self.classes)
        others = (attack_radius_text(name), smoothed_radius_text(name))
        if not (is_share_of_rows(name) or any(text is not None for text in others)) or not self.classes:
            return None
        return max(self.majority.get(split, 0.0), 1 / len(self.classes))

    def constants(self, names: Iterable[str]) -> dict[str, float]:
        """Return what a constant prediction reaches on validation rows, by the names of which that is known."""
        return {name: reached for name in names if (reached := self.constant(name)) is not None}

    def ends(self, name: str, split: str = "validation") -> Interval | None:
        """Return the ends of what a constant prediction reaches, one number twice where it is known without noise.

        A score is no better for sure below the first, and better beyond the second.
        """
        reached = self.constant(name, split)
        return self.interval(name, split) or (None if reached is None else (reached, reached))

    def interval(self, name: str, split: str = "validation") -> Interval | None:
        """Return the 95 % interval of what a constant prediction reaches, None where it has no noise."""
        reached = self.constant(name, split)
        if reached is None or self.majority_interval is None or name in (AUROC, BALANCED):
            return None
        low, high = self.majority_interval
        return min(low, reached), max(high, reached)

    def in_words(self, name: str, split: str = "validation") -> str:
        """Return what a constant prediction reaches on rows of a split, empty where that is not known.

        >>> Baselines(classes=("no", "yes")).in_words("accuracy")
        'the majority-class baseline reaches at least 0.500'
        """
        known = split if split in self.majority else "validation"
        reached = self.constant(name, known)
        if reached is None:
            return ""
        least = "" if known in self.majority or name in (AUROC, BALANCED) else "at least "
        rows = f" on {known} rows" if known in self.majority and name not in (AUROC, BALANCED) else ""
        interval = self.interval(name, known)
        rows = rows if interval is None else f", by the private sketch{self.contradiction}"
        rows = ", as the ranges file declares" if rows and self.majority_source is MajoritySource.DECLARED else rows
        return f"the majority-class baseline reaches {least}{reached:.3f}{in_brackets(interval)}{rows}"

    @property
    def contradiction(self) -> str:
        """Say, behind a space, that the ranges file declares another share than the sketch has; empty where not."""
        if self.declared is None:
            return ""
        return f" (the ranges file declares {self.declared:.3f}: perhaps a class is misspelt)"

    def advice(self, objectives: Iterable[str]) -> str:
        """Say that accuracy tells little where nearly all rows are of one class, empty where others are objectives.

        >>> known = Baselines(classes=("no", "yes"), majority={"validation": 0.9})
        >>> known.advice(["epsilon", "accuracy"])
        'Accuracy says little here: the majority-class baseline reaches 0.900. Use search.objectives: [epsilon, auroc].'
        >>> known.advice(["epsilon", "accuracy", "auroc"])
        ''
        """
        names, share = set(objectives), self.majority.get("validation", 0.0)
        by_class = any(name in (AUROC, BALANCED) or recall_text(name) or auroc_radius_text(name) for name in names)
        if share < _RARE or by_class or not any(map(is_share_of_rows, names)):
            return ""
        better = AUROC if len(self.classes) == 2 else BALANCED
        return (
            f"Accuracy says little here: the majority-class baseline reaches "
            f"{share:.3f}{in_brackets(self.majority_interval)}"
            f"{f', by the private sketch{self.contradiction}' if self.declared is not None else ''}. "
            f"Use search.objectives: [epsilon, {better}]."
        )


def _largest_share(counts: Sequence[float], noise: float, rows: int) -> Interval | None:
    """Return the 95 % interval of the share of the most frequent class, by counts with noise of this deviation.

    A share p of the total S is one that the count c of its class does not reject: c - p S has mean 0 and variance
    noise^2 ((1 - p)^2 + (K - 1) p^2), and the sampling error of so many rows (Fieller 1954), for it is that among new
    rows of the same kind. The intervals of all K classes hold together (Bonferroni), so that the largest share lies
    between the largest of both ends. None where the noise of S is not far below it: nothing is known of shares.
    """
    total, classes = sum(counts), len(counts)
    square = NormalDist().inv_cdf(1.0 - 0.025 / classes) ** 2
    hidden, sampled = square * noise**2, square * total**2 / rows
    if total <= 0.0 or total**2 <= hidden * classes:
        return None
    a = total**2 + sampled - hidden * classes
    ends = []
    for count in counts:
        b, c = 2.0 * (count * total - hidden) + sampled, count**2 - hidden
        half = sqrt(max(b**2 - 4.0 * a * c, 0.0))
        ends.append(((b - half) / (2.0 * a), (b + half) / (2.0 * a)))
    low, high = (max(each) for each in zip(*ends, strict=True))
    return min(max(low, 1 / classes), 1.0), min(high, 1.0)


def warning(counts: ClassCounts, classes: Sequence[str] = ()) -> str:
    """Say that a classifier nearly always gives one answer, empty where it does not."""
    if not counts.is_nearly_constant:
        return ""
    label, share = counts.most_decided
    name = classes[label] if label < len(classes) else str(label)
    present = sum(rows > 0 for rows in counts.rows)
    return (
        f"It gives nearly every row the same answer: {name!r} for {100 * share:.1f} % of the test rows. Its balanced "
        f"accuracy is {100 * counts.balanced_accuracy:.1f} %, that of the majority-class baseline {100 / present:.1f} %"
    )
