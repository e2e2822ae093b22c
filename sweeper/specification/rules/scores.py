"""What a spec must look like where rows held back are private, so that their scores can be released with noise.

Released are shares of rows that each row decides alone (``clipless.privacy.noisy_counts``). AUROCs compare pairs,
membership inference reads training rows, attacks draw the starts of all rows from one generator, and what a plug-in
computes is unknown: each is refused by name.
"""

from collections.abc import Iterator

from clipless.datasets import Evaluation
from sweeper.specification.objectives import is_share_of_rows
from sweeper.specification.rules._base import BrokenRule
from sweeper.specification.search import SearchSettings
from sweeper.specification.settings import PrivacySettings


def broken_score_rules(
    search: SearchSettings, privacy: PrivacySettings, evaluation: Evaluation
) -> Iterator[BrokenRule]:
    """Yield what keeps scores of such rows from being paid for; nothing if all is well."""
    if evaluation is not Evaluation.PRIVATE:
        for name, given in (("score_noise", privacy.score_noise), ("curve_noise", privacy.curve_noise)):
            if given is not None:
                expected = "no {name} without evaluation: private, whose scores it is the noise of"
                yield BrokenRule(f"privacy.{name}", given, expected, "leave it out")
        return
    named = [(f"search.objectives.{i}", name) for i, name in enumerate(search.objectives) if name != "epsilon"]
    named += [(f"search.metrics.{i}", name) for i, name in enumerate(search.metrics)]
    for field, name in named:
        if not is_share_of_rows(name):
            expected = "accuracy and certified@R only with evaluation: private, whose scores are noisy counts of rows"
            yield BrokenRule(field, name, expected, "leave it out, or declare the rows public if they are")
    if search.free_points:
        expected = "no {name} with evaluation: private, where each score is a release of its own"
        yield BrokenRule("search.free_points", True, expected, "leave it out")
    if privacy.score_noise is None:
        expected = "{name}, the noise multiplier of the scores, with evaluation: private"
        yield BrokenRule(
            "privacy.score_noise", None, expected, "add it; sweeper check shows what scores then cost and tell"
        )
