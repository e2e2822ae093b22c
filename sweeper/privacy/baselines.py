"""What scores are compared with: a constant prediction, and what others reached without privacy.

Labels of public validation and test rows say how much a constant prediction gets right; those of private rows would be
an unpaid release, so that there the share that their owner declares, the counts of classes that a private sketch of the
training rows released, or else the number of classes, has to do. A score of a training without noise is a release of
its training rows: none is computed here, the one that a spec gives is taken as public.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import hypot, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

from clipless.datasets import Evaluation
from sweeper.records import ClassCounts, Interval
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


_LEAST_TOTAL = 3.0  # times the noise of a sum of counts, below which nothing is known of shares
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

    def with_sketch(self, sketch: "Sketch | None") -> "Baselines":
        """Return them with the share of the most frequent class in a private sketch, where no other is known."""
        if sketch is None or self.majority:
            return self
        counts = [max(sums[0], 0.0) for sums in sketch.sums]
        if not sum(counts) > 0.0:
            return self
        shares = dict.fromkeys(("validation", "test"), max(counts) / sum(counts))
        interval = _largest_share(counts, sketch.event.noise_multiplier, self.rows.get("validation", 0))
        return replace(self, majority=shares, majority_source=MajoritySource.SKETCH, majority_interval=interval)

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

    def ends(self, name: str, split: str = "validation") -> Interval | None:
        """Return the ends of what a constant prediction reaches, one number twice where it is known without noise.

        A score is no better for sure below the first, and better beyond the second.
        """
        reached = self.constant(name, split)
        if reached is None or self.majority_interval is None or name in (AUROC, BALANCED):
            return None if reached is None else (reached, reached)
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
        low, high = self.ends(name, known) or (reached, reached)
        if low < high:
            return f"the majority-class baseline reaches {reached:.3f} [{low:.3f}, {high:.3f}], by the private sketch"
        return f"the majority-class baseline reaches {least}{reached:.3f}{rows}"

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
            f"Accuracy says little here: the majority-class baseline reaches {share:.3f}. "
            f"Use search.objectives: [epsilon, {better}]."
        )


def _largest_share(counts: Sequence[float], noise: float, rows: int) -> Interval:
    """Return the 95 % interval of the share of the most frequent class, by counts with noise of this deviation.

    The ends of all classes hold together (Bonferroni): the largest share lies between the largest of both. Its sampling
    error is that of so many rows, if any.
    """
    total, classes = sum(counts), len(counts)
    if total < _LEAST_TOTAL * noise * sqrt(classes):
        return 1 / classes, 1.0
    z = NormalDist().inv_cdf(1.0 - 0.025 / classes)
    lows, highs = [], []
    for count in counts:
        share = count / total
        half = z * hypot(
            noise / total * sqrt((1.0 - share) ** 2 + (classes - 1) * share**2),
            sqrt(share * (1.0 - share) / rows) if rows else 0.0,
        )
        lows.append(share - half)
        highs.append(share + half)
    return max(*lows, 1 / classes), min(max(highs), 1.0)


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
