"""Metrics beside the objectives: what attacks reach on a model, and what they learn of its training rows.

Accuracy under attack is measured on every validation row, the same that accuracy and certificates are measured on, so
that ``certified@R <= attacked@R <= accuracy`` must hold; where it does not, a certificate is wrong and nothing is
reported. Membership inference reads training rows, and its scores are releases: only of published rows, or where
everything is marked exploratory. Metrics of plug-ins get a copy of the model and validation rows, or training rows
under the same condition.

Shape letters: B rows.
"""

from collections.abc import Mapping, Sequence

import torch

from clipless.attacks import PGD, AutoAttack, EvasionAttack, threshold_attack
from clipless.datasets import Evaluation, Metadata, Split
from clipless.evaluation import attacked_accuracy
from clipless.losses import Loss
from clipless.network import Network
from sweeper.errors import RefutedError, SpecError
from sweeper.records import MEMBERSHIP
from sweeper.specification.objectives import (
    AUTOATTACKED,
    attack_radius,
    attack_radius_text,
    is_share_of_rows,
    radius,
    radius_text,
    reads_training_rows,
)
from sweeper.specification.plugins import find_metric, is_metric
from sweeper.specification.search import SmoothingPlan
from sweeper.trials.smoothed import SmoothedScorer

MEMBERSHIP_ROWS = 5000  # of each split, at most


class TrialMetrics:
    """The attacks, smoothed certificates and plug-in metrics of one trial.

    Args:
        names: metrics of the spec; certificates of the models themselves are not computed here.
        loss: of the training; small ones give members away.
        seed: public; chooses the rows of membership inference where there are more than `MEMBERSHIP_ROWS`.
        smoothing: how smoothed certificates are made.

    Raises:
        SpecError: metrics that would release unpaid scores.
    """

    def __init__(
        self,
        names: Sequence[str],
        declared: Metadata,
        loss: Loss,
        *,
        seed: int,
        smoothing: SmoothingPlan | None = None,
    ) -> None:
        check_metrics(names, declared)
        self._smoothed = SmoothedScorer(names, declared, smoothing)
        self._attacked = tuple(name for name in names if attack_radius(name) is not None)
        self._membership = tuple(name for name in names if name in MEMBERSHIP)
        self._own = {name: find_metric(name) for name in names if is_metric(name)}
        self._declared, self._gain, self._loss, self._seed = declared, declared.input_gain, loss, seed

    def compute(
        self, model: Network, scores: Mapping[str, float], *, train: Split, validation: Split
    ) -> dict[str, float]:
        """Attack and measure one model.

        Args:
            model: under attack; it stays as it is.
            scores: accuracy and certificates of this model on ``validation``, certificates at every attacked radius
                among them.
            train: the rows that it was trained on, read for membership inference and by plug-ins that say so only.
            validation: rows of the same kind that it has not seen.

        Raises:
            RefutedError: an attack succeeded where a certificate says that none can.
            SpecError: a plug-in returned no finite number.
        """
        found = {name: self._accuracy_under(name, model, scores, validation) for name in self._attacked}
        found |= self._smoothed(model, validation)[0]
        if self._membership:
            members, others = (some_rows(split, self._seed) for split in (train, validation))
            score = threshold_attack(model, self._loss, members, others)
            known = {"membership-auroc": score.auroc, "membership-advantage": score.advantage}
            found |= {name: known[name] for name in self._membership}
        for name, metric in self._own.items():
            rows = train if metric.reads_training_rows else validation
            found[name] = metric.compute(name, model, rows, self._declared)
        return found

    def _accuracy_under(self, name: str, model: Network, scores: Mapping[str, float], validation: Split) -> float:
        attack: EvasionAttack = AutoAttack() if name.startswith(AUTOATTACKED) else PGD()
        attacked = attacked_accuracy(model, validation, str(attack_radius_text(name)), self._gain, attack=attack)
        certified = next(value for other, value in scores.items() if _certifies(other, name))
        if not certified <= attacked <= scores["accuracy"]:
            raise RefutedError(
                f"Expected certified <= {name} <= accuracy on the same rows, got {certified!r}, {attacked!r} and "
                f"{scores['accuracy']!r}; neither number can be trusted: report the configuration of this trial"
            )
        return attacked


def check_metrics(names: Sequence[str], declared: Metadata, source: str = "the spec") -> None:
    """Refuse metrics that would release unpaid scores, and attacks that are not installed.

    Raises:
        SpecError: a metric that is no certified accuracy on private evaluation rows, or membership inference on
            training rows that are not published, unless everything is marked exploratory.
        clipless.errors.UnsupportedError: AutoAttack without the toolbox that it needs.
    """
    said = f"evaluation: {declared.evaluation.value} on {declared.name} (search.metrics in {source})"
    remedy = "set data.evaluation: exploratory, which marks everything as without guarantee"
    unpaid = next((name for name in names if not is_share_of_rows(name)), None)
    if unpaid is not None and declared.evaluation is Evaluation.PRIVATE:
        raise SpecError(
            f"Expected certificates alone as metrics of private evaluation rows, whose scores are paid for as noisy "
            f"counts, got {unpaid} with {said}; leave it out, or {remedy}"
        )
    reading = next((name for name in names if reads_training_rows([name])), None)
    if reading is not None and not declared.training_is_open:
        raise SpecError(
            f"Expected published training rows for {reading}, which releases a score of them, got {said}; leave it "
            f"out, or {remedy}"
        )
    if any(name.startswith(AUTOATTACKED) for name in names):
        AutoAttack.check_installed()


def some_rows(split: Split, seed: int) -> Split:
    """Return at most `MEMBERSHIP_ROWS` rows, chosen by the seed alone and kept in order."""
    if len(split.y) <= MEMBERSHIP_ROWS:
        return split
    order_B = torch.randperm(len(split.y), generator=torch.Generator().manual_seed(seed))
    chosen_B = order_B[:MEMBERSHIP_ROWS].sort().values.to(split.y.device)
    return Split(split.x[chosen_B], split.y[chosen_B])


def _certifies(name: str, attacked: str) -> bool:
    return radius_text(name) is not None and radius(name) == attack_radius(attacked)
