"""What a card says of noise, and what follows for it from the ledger and from the card itself.

The noise of all parameters together is that of the event: with sensitivities Delta_k, deviations s_k and, where a
clipping norm is learned, the deviation c of a count that a row moves by at most 1/2,

    sum_k (Delta_k / s_k)^2 + (1 / (2 c))^2 = 1 / sigma^2,

but for the 2^-40 that is planned beyond it (`clipless.plans.plan.Plan.noise_stds`). Under DP-SGD each deviation is
sigma times the clipping norm. How sensitivities are divided among parameters, and how many rows are held back, are in
no ledger: they are what whoever made the card declares.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import hypot, log, sqrt
from typing import Any

from clipless.plans.method import Method
from clipless.privacy.class_scores import leaves_no_sizes
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noisy_counts import scores_event
from sweeper.privacy.card.content import CardContent, CurveNoiseFacts, ScoreNoiseRow
from sweeper.privacy.card.prices import charged_entries
from sweeper.privacy.evaluation.curve_noise import CONFIDENCE, CurveNoise
from sweeper.privacy.evaluation.paid_scores import ScoreNoise, spread_epochs
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.selection import WINNER_TRIAL, same_event
from sweeper.specification.objectives import is_share_of_rows

_STATED = (  # section and name in a configuration, and where a card says it
    ("training", "method", "method"),
    ("training", "batch_size", "sampling", "batch_size"),
    ("training", "clip_norm", "clip_norm"),
    ("training", "gradient_clip_schedule", "clipping", "kind"),
    ("privacy", "relation", "guarantee", "relation"),
    ("privacy", "noise", "noise", "allocation"),
)
_ROUNDED = 2e-5  # of shares and bounds, which have five digits
_HALF_WIDTH = 1.96  # of a 95 % interval, in deviations
_SPARE = 2.0**-30  # relative, of noise beyond that of the event; 2^-40 is planned


def other_parameters(card: CardContent, event: PoissonGaussian) -> str | None:
    """Say where the noise of all parameters together is another than that of the event."""
    sigma = event.noise_multiplier
    if card.method is Method.NON_PRIVATE or not sigma > 0:
        return None
    if not card.parameters:
        return "Expected parameters with their noise, got none"
    if card.method is Method.DP_SGD:
        found = (_unlike_its_clipping(card, place, sigma) for place in range(len(card.parameters)))
        return next((one for one in found if one is not None), None)
    counted = [0.5 / card.count_std] if card.count_std > 0 else []
    signal = hypot(*(one.sensitivity / one.noise_std for one in card.parameters), *counted)
    if 1.0 - _SPARE <= signal * sigma <= 1.0:  # noise is planned with a little more
        return None
    return f"Expected parameters with a noise multiplier of {sigma!r} together, got {1.0 / signal!r}"


def _unlike_its_clipping(card: CardContent, place: int, sigma: float) -> str | None:
    one, field = card.parameters[place], f"parameters.{place}"
    if one.sensitivity != card.clip_norm:
        return f"Expected {field}.sensitivity = clip_norm = {card.clip_norm!r}, got {one.sensitivity!r}"
    if not 1.0 - _SPARE <= sigma * one.sensitivity / one.noise_std <= 1.0:
        return f"Expected {field}.noise_std = {sigma * one.sensitivity!r}, by noise_multiplier, got {one.noise_std!r}"
    return None


def settings_of(card: CardContent) -> dict[str, Any]:
    """Return what the configuration of a card says of its training's batches and noise, where it says it."""
    training = card.config["training"]
    found: dict[str, Any] = {
        "sensitivity_fraction": training.get("sensitivity_fraction") or 1.0,
        "follow_weights": bool(training.get("follow_weights")),
    }
    for section, name, field, *within in _STATED:
        value = card.config[section].get(name)
        if value and (name != "clip_norm" or card.method is Method.DP_SGD):
            value = float(value) if isinstance(value, int) else value  # cards have no whole numbers here
            found[field] = {within[0]: value} if within else value
    return found


def score_noise_of(card: CardContent, ledger: Ledger, classes: int) -> dict[str, Any]:
    """Return what a ledger says of the noise of the scores of a card, by its fields, but for its multiplier.

    Args:
        card: of scores of private rows.
        ledger: what the sweep has spent.
        classes: of the data, 0 where their number is not known: deviations of scores by class do not follow then.
    """
    noise = card.score_noise
    if noise is None:
        return {}
    tests = [row.scores.event.noise_multiplier for row in ledger.tests() if row.trial == card.trial]
    follows: dict[str, Any] = {"std": _deviations(card, noise, tests[:1], classes)}
    charged = [entry.scores.apart for entry in charged_entries(ledger, card.trial) if entry.scores is not None]
    follows |= {"apart": all(charged)} if charged else {}
    if noise.curves is not None and tests:
        follows["curves"] = {"noise_multiplier": tests[0]}
    terms = ledger.selection
    if noise.best_of is not None and terms is not None:
        follows["best_of"] = dict.fromkeys(noise.best_of, terms.repetitions.mean)
    return {"score_noise": follows}


def _deviations(card: CardContent, noise: ScoreNoiseRow, tests: Sequence[float], classes: int) -> Mapping[str, float]:
    """Return the deviations of scores by split, as far as they follow."""
    made = ScoreNoise(
        names=tuple(noise.names),
        noise_multiplier=noise.noise_multiplier,
        test_noise_multiplier=tests[0] if tests else noise.noise_multiplier,
        relation=card.guarantee.relation,
        apart=noise.apart,
        validation=noise.rows["validation"],
        test=noise.rows["test"],
        classes=classes or 2,
        curves=None if noise.curves is None else _curves(noise.curves, card),
    )
    stds = made.stds if classes or not made.form.by_class else {}
    known = noise.curves is not None or tests
    return {split: std for split, std in stds.items() if split == "validation" or known}


def _curves(facts: CurveNoiseFacts, card: CardContent) -> CurveNoise:
    return CurveNoise(
        noise_multiplier=facts.noise_multiplier,
        radii=(0.0,) * facts.radii,
        two_classes=facts.two_classes,
        relation=card.guarantee.relation,
    )


def _other_curves(card: CardContent, noise: ScoreNoiseRow) -> str | None:
    """Say where released curves are of other noise or rows than the scores, or known better than rows that are drawn.

    Shares of so many rows alone are within the bound of Dvoretzky, Kiefer, Wolfowitz and Massart; bands hold for noise
    too, and leave half of their risk to each.
    """
    found, facts = card.curves, noise.curves
    if found is None or facts is None:
        return None if found is None else "Expected curves = None without score_noise.curves, got some"
    stated = (found.confidence, found.noise_multiplier, found.rows, len(found.radii), found.scores is not None)
    expected = (CONFIDENCE, facts.noise_multiplier, noise.rows["test"], facts.radii, facts.two_classes)
    if stated != expected:
        return (
            f"Expected curves of confidence, noise_multiplier, rows, radii and whether of two classes {expected}, by "
            f"score_noise, got {stated}"
        )
    least = sqrt(log(4.0 / (1.0 - CONFIDENCE)) / (2.0 * found.rows)) - _ROUNDED
    columns = zip(found.certified, found.certified_low, found.certified_high, strict=True)
    for share, low, high in columns:
        if min(high, 1.0) - share < min(least, 1.0 - share) or share - max(low, 0.0) < min(least, share):
            return f"Expected curves whose bounds are {least:.3g} from {share!r}, got {low!r} and {high!r}"
    return None


def other_releases(card: CardContent, ledger: Ledger) -> Iterator[str | None]:
    """Yield what a card says of releases of scores that the ledger, its conditions or its epochs contradict."""
    noise, facts = card.score_noise, card.guarantee
    if noise is None:
        return
    epochs, planned = list(noise.epochs), facts.planned_epochs
    if not any(list(spread_epochs(planned, most)) == epochs for most in range(max(len(epochs), 1), planned + 1)):
        yield f"Expected score_noise.epochs spread over {planned} as sweeper spreads them, got {epochs}"
    releases = facts.repeats * len(epochs)
    for paid in (entry.scores for entry in charged_entries(ledger, card.trial)):
        if paid is None or paid.event.steps + paid.kept != releases:
            charged = 0 if paid is None else paid.event.steps + paid.kept
            yield f"Expected score_noise.epochs of {charged} releases, that are charged, got {releases}"
    held = ledger.held
    if held is not None and card.trial == WINNER_TRIAL:
        stated = scores_event(noise.noise_multiplier, releases, facts.relation)
        if held.scores is None or not same_event(held.scores, stated):
            yield f"Expected score_noise of {held.scores}, as each candidate plans, got {stated}"
    told = {split: f"{noise.std[split]:.3g} on {split} rows" for split in ("validation", "test") if split in noise.std}
    yield _other_curves(card, noise)
    conditions = " ".join(card.conditions)
    for split, words in told.items():
        if words not in conditions:
            yield f"Expected conditions to state the noise {words} (score_noise.std.{split}), got others"
    yield from _too_narrow(card, noise, ledger)


def _too_narrow(card: CardContent, noise: ScoreNoiseRow, ledger: Ledger) -> Iterator[str]:
    """Yield which intervals are narrower than what is known: an earlier version wrote them.

    Where noise leaves nothing of the sizes of classes, one release says nothing of a score by class, and all those of
    the ledger together no more than as many with a deviation of 1.
    """
    shown = card.noisy_scores
    if shown is None:
        return
    own = card.guarantee.repeats * len(noise.epochs)
    releases = max(own, sum(event.steps for entry in ledger.entries() for event in entry.charged_scores))
    stated = [("validation", shown.intervals, releases)]
    stated += [("test", shown.test_intervals, 1)] if noise.curves is None else []
    for split, intervals, most in stated:
        if not leaves_no_sizes(noise.std[split], 1):
            continue
        least = min(_HALF_WIDTH / sqrt(most), 1.0)
        for name, (low, high) in intervals.items():
            if not is_share_of_rows(name) and high - low < least:
                yield (
                    f"Expected an interval of {name} on {split} rows as wide as noise of more than half of the rows "
                    f"leaves it, got {low:.3g} to {high:.3g} of an earlier version, which is too narrow; pick the "
                    "model again (noisy_scores)"
                )
