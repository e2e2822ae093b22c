"""The privacy card in words: Markdown from the facts of a card, with nothing added but explanation."""

from collections.abc import Iterable, Iterator
from math import exp

from clipless.datasets import Evaluation
from clipless.datasets.metadata import units_word
from clipless.plans.method import Method
from clipless.privacy.events import Relation
from sweeper.privacy.card.content import (
    AuditRow,
    CardContent,
    ClippingFacts,
    EventPrice,
    Guarantee,
    ScheduledClipping,
)
from sweeper.privacy.card.person import basis_in_words, filing_in_words, person_in_words, person_table
from sweeper.privacy.card.scores import (
    class_table,
    curves_in_words,
    noise_of_scores,
    number,
    of_each,
    smoothed_in_words,
    table,
)
from sweeper.privacy.claims import EXPLORATORY
from sweeper.privacy.pricing import OWN_EPSILON, prices_by_release
from sweeper.records import described
from sweeper.rounding import exactly, in_brackets, round_down, round_up
from sweeper.specification.fields.nested import flatten
from sweeper.specification.objectives import radius

_RELATIONS = {
    Relation.ADD_OR_REMOVE_ONE: "{unit} is added to or removed from the training data",
    Relation.REPLACE_ONE: "{unit} of the training data is replaced by another",
}
_EVALUATIONS = {
    Evaluation.PUBLIC: "declared public: scores on them cost nothing.",
    Evaluation.PRIVATE: "private: each score on them is a release of its own, with noise. *The price* covers these "
    "releases; an epsilon of this training alone does not.",
    Evaluation.EXPLORATORY: "of the same people and looked at without paying for it: this card claims no guarantee.",
}


def markdown(card: CardContent) -> str:
    """Return the card as Markdown."""
    title = f"# Privacy card: {card.sweep}, trial {card.trial}, epoch {card.epoch}"
    title += f", {card.made_from}" if card.made_from else ""
    mark = [f"> **{EXPLORATORY.upper()}.** The numbers below are not a privacy guarantee; see *Not guaranteed*."]
    blocks = [title, *(mark * card.exploratory), *_guarantee(card), *_cost(card), *_mechanism(card), *_rest(card)]
    return "\n\n".join([*blocks, *filing_in_words(card)]) + "\n"


def prices_in_words(facts: Guarantee) -> str:
    """Return both epsilons of a point in one line: its price, and its own epsilon."""
    at, price = f"at delta {exactly(facts.delta)}", facts.price
    if facts.selected is not None:
        return f"Price: epsilon {round_up(facts.selected)} {at}."
    own = f"{OWN_EPSILON}: {round_up(facts.fixed_in_advance.epsilon)}"
    if price is None:
        return f"The price is not known; its {own}."
    return f"Price: epsilon {round_up(price.epsilon)} {at}; its {own}."


def _guarantee(card: CardContent) -> Iterator[str]:
    facts = card.guarantee
    advance, afterwards, delta = facts.fixed_in_advance, facts.chosen_afterwards, facts.delta
    epochs, unit = facts.planned_epochs, facts.unit
    change = _RELATIONS[facts.relation].format(unit=_unit(unit))
    yield "## The guarantee"
    holds = advance.epsilon if facts.selected is None else facts.selected
    yield from _of_one_training(card) if facts.selected is None else _of_the_winner(facts, facts.selected)
    if card.made_from:
        yield (
            f"The weights are {described(card.made_from)}. They are computed from weights that training had "
            f"released up to epoch {card.epoch} and from nothing else of the training rows, so that they cost what "
            f"the last of these, epoch {card.epoch}, costs."
        )
    yield (
        f"In words: when {change}, the probability of any outcome of the training grows by a factor of at "
        f"most e^epsilon ({_factor(holds)} for the first number), plus {delta!r} at most. The relation is "
        f"`{facts.relation.value}`; the privacy unit is {_unit(unit)}; "
        f"N = {facts.population} training {units_word(unit)}, a number taken as public."
    )
    yield table(
        ("epsilon at delta " + f"{delta!r}", "RDP (autodp)", "PLD (dp-accounting)", "claimed"),
        [
            (f"epoch {card.epoch}, fixed in advance", *_accountants(advance)),
            (f"chosen among {epochs} epochs", *_accountants(afterwards)),
        ],
    )
    yield "Both accountants compute upper bounds independently; the smaller one is claimed." + _crosscheck(advance)
    yield from _person(card)
    yield _audited(card.audits)


def _person(card: CardContent) -> Iterator[str]:
    yield from (f"**For a person**: {person_in_words(card)}", table(*person_table(card)), basis_in_words(card))


def _audited(audits: Iterable[AuditRow]) -> str:
    """Return in one line what attacks on the claim of the training, and on that of the sweep, attained."""
    found = [
        f"the {one.kind} audit attained epsilon {round_down(one.attained, 3)} of the "
        f"{round_up(one.epsilon)} claimed at delta {one.delta!r}"
        f"{', which **contradicts the claim**' if one.contradicted else ''}"
        for one in audits
    ]
    if not found:
        return "Audits: none; nothing has attacked these claims."
    return f"Audits: {'; '.join(found)}. These are lower bounds: they can refute a claim, not prove it."


def _of_one_training(card: CardContent) -> Iterator[str]:
    facts = card.guarantee
    advance, afterwards, delta = facts.fixed_in_advance, facts.chosen_afterwards, facts.delta
    epochs = facts.planned_epochs
    yield (
        f"**({round_up(advance.epsilon)}, {delta!r})-differential privacy** for this model, "
        f"if its configuration and epoch {card.epoch} were fixed before training."
    )
    yield (
        f"**({round_up(afterwards.epsilon)}, {delta!r})-differential privacy** if the epoch was chosen "
        f"among the {epochs} planned ones, or training was stopped, after looking at scores: then all "
        f"planned epochs count{_of_repeats(facts.repeats)}.{_of_trainings(facts.trainings)}"
    )
    if facts.ended_early is not None:
        yield (
            f"**The second number is the one that holds here**: this trial was ended early after looking at scores "
            f"({facts.ended_early or 'no reason was recorded'}), so its last epoch was chosen by them and costs the "
            f"epsilon of all {epochs} planned epochs{of_each(facts.trainings)}."
        )
    yield _of_the_price(card)


def _of_the_price(card: CardContent) -> str:
    """Return what holds for a model that was chosen by scores."""
    facts, unproven = card.guarantee, unproven_of(card)
    chosen = "If the configuration was chosen among the trials of the sweep by their scores, neither number holds"
    price = facts.price
    if price is None:
        return f"{chosen}: *The price* does."
    return (
        f"**({round_up(price.epsilon)}, {exactly(facts.delta)})-differential privacy** is the price of this model. "
        f"{chosen}: this one does, see *The price*.{f' **{unproven}**' if unproven else ''}"
    )


def unproven_of(card: CardContent) -> str:
    """Return that the price of a model is not proven, empty where nothing is known to break it."""
    return "" if card.winner is None else card.winner.unproven or ""


def _of_the_winner(facts: Guarantee, selected: float) -> Iterator[str]:
    yield (
        f"**({round_up(selected)}, {exactly(facts.delta)})-differential privacy** for this model together with "
        "all epochs of its trial, which was selected privately: it is the best of a secret random number of "
        "independent trials, and nothing of the others was released."
    )
    yield (
        f"One such training by itself costs epsilon {round_up(facts.chosen_afterwards.epsilon)} for all its "
        "epochs; that is not the price of this model, whose scores chose it."
    )


def _of_repeats(repeats: int) -> str:
    return f", those of all {repeats} repeats, whose mean scores were looked at" if repeats > 1 else ""


def _of_trainings(trainings: int) -> str:
    if trainings == 1:
        return ""
    return (
        f" This trial was begun {trainings} times, because a training was lost and could not go on; its points may "
        "come from any of these trainings, and all that the ledger charges for them counts."
    )


def _cost(card: CardContent) -> Iterator[str]:
    yield "## The price"
    prices = prices_by_release({question: answer.to_price() for question, answer in card.ledger.items()})
    rows = [
        (
            what,
            round_up(price.epsilon) if price.released else "not released",
            exactly(price.delta),
            price.in_words,
        )
        for what, price in prices.items()
    ]
    yield table(("what leaves", "price, epsilon", "delta", "why"), rows)


def _mechanism(card: CardContent) -> Iterator[str]:
    sampling, noise, facts = card.sampling, card.noise, card.guarantee
    generator = (
        "the secure generator (AES-256-CTR, never logged)" if noise.secure_generator else "an injected generator"
    )
    method = card.method
    yield "## The mechanism"
    if method is Method.NON_PRIVATE:
        yield "None: trained without noise and without any bound on what one row contributes. Epsilon is infinite."
        return
    before = sampling.preliminary_steps
    statistics = f", {before} of them releases of statistics of the inputs." if before else "."
    shared = "the same on every entry" if method is Method.DP_SGD else f"allocated `{noise.allocation}`"
    yield "\n".join(
        [
            "- Sampling: Poisson; each row joins each batch with probability q = "
            f"{sampling.sampling_rate:.6g}, expected batch {sampling.batch_size:g}; "
            f"{sampling.steps_per_epoch} steps per epoch, {facts.fixed_in_advance.steps} steps up "
            f"to this epoch{statistics} Sums are divided by the expected batch.",
            f"- Noise: Gaussian, noise multiplier {noise.noise_multiplier:.6g} for the composition over "
            f"all parameters, {shared}; batches and noise come from {generator}.",
            f"- Sensitivity: {_sensitivity(method, card)}",
        ]
    )
    rows = [(f"`{p.name}`", f"{p.sensitivity:.6g}", f"{p.noise_std:.6g}") for p in card.parameters]
    yield table(("parameter", "sensitivity of the sum", "standard deviation of its noise"), rows)


def _sensitivity(method: Method, card: CardContent) -> str:
    if method is Method.DP_SGD:
        return (
            f"the whole gradient of each example is clipped to norm {card.clip_norm:g} before the sum "
            f"(`{method.value}`); this bounds all parameters together."
        )
    fraction = card.sensitivity_fraction
    clipping = (
        "the analytic worst case, so that no gradient of a correct Lipschitz network is clipped"
        if fraction == 1
        else f"{fraction:g} of the analytic worst case, so larger contributions are clipped to it"
    )
    normalised = (
        ", after each contribution was divided by the norm of the example's own input of the layer"
        if method is Method.LIP_DP_SGD
        else ""
    )
    moving = []
    if card.follow_weights:
        moving.append("Each step follows the weights released by the steps before, and the noise with it.")
    if card.clipping.kind != "constant":
        moving.append(_moving_norm(card.clipping, card.count_std))
    if card.freezing is not None:
        layers, after = card.freezing.layers, card.freezing.after
        moving.append(
            f"After a share of {after:g} of the steps, the first {layers} of the layers with weights are not trained, "
            "and the noise of a step is shared among the others."
        )
    if moving:
        moving.append("The table states the largest values.")
    return (
        "the contribution of one example to each parameter's summed gradient is limited in the backward pass, "
        f"at {clipping}{normalised} (`{method.value}`). {' '.join(moving)}".rstrip()
    )


def _moving_norm(clipping: ClippingFacts, count_std: float) -> str:
    if isinstance(clipping, ScheduledClipping):
        return f"The clipping norm falls on a public {clipping.kind} schedule, and the noise with it."
    return (
        f"The clipping norm follows the {clipping.quantile:g} quantile of the norms, by a count that each step "
        f"releases with noise of standard deviation {count_std:.6g} (one row moves it by at most 1/2); that "
        "release is part of the composition."
    )


def _rest(card: CardContent) -> Iterator[str]:
    data, scores = card.data, card.scores
    yield "## The data"
    yield f"Training data: {data.name}. Validation and test rows are {_EVALUATIONS[data.evaluation]}"
    yield from noise_of_scores(card)
    yield "Taken as public, without payment:"
    yield _bullets(card.public)
    yield "## Not guaranteed"
    yield _bullets(card.conditions)
    yield "## Scores and configuration"
    test, noisy = scores.test or {}, card.noisy_scores
    intervals = {} if noisy is None else noisy.intervals
    test_intervals = (noisy and noisy.test_intervals) or scores.test_intervals or {}
    rows = [
        (
            name,
            number(value) + in_brackets(intervals.get(name)),
            _score(test.get(name)) + in_brackets(test_intervals.get(name)),
        )
        for name, value in scores.validation.items()
        if name != "epsilon"
    ]
    yield table(("objective", "validation", "test"), rows)
    if scores.doubt:
        yield f"**{scores.doubt}.**"
    yield from class_table(card.classes)
    yield from curves_in_words(card.curves)
    yield from smoothed_in_words(card.smoothed)
    certified = any(radius(name) is not None for name in scores.validation)
    radii = f"Radii are in {data.radius_unit}. " if certified else ""
    yield f"{radii}The point was chosen on validation, never on the test column."
    if card.score_noise is not None:
        exceeds = ", so that a certified accuracy may exceed the accuracy" if certified else ""
        yield f"Every score is an estimate from releases with the noise stated above{exceeds}."
    if test_intervals:
        yield "In brackets are 95 % intervals for new rows of the same kind."
    if (repeats := card.guarantee.repeats) > 1:
        yield (
            f"The validation column holds means over {repeats} trainings of this configuration; the model, and the "
            "test column, are those of the first one, which was not chosen."
        )
    yield table(("setting", "value"), [(name, f"`{value}`") for name, value in flatten(card.config).items()])
    if card.model:
        yield f"Model file: `{card.model}`."


def _unit(unit: str) -> str:
    return "one row" if unit == "row" else f"one group of rows that share `{unit}`"


def _score(value: float | None) -> str:
    return "not computed" if value is None else number(value)


def _factor(epsilon: float) -> str:
    return round_up(exp(epsilon), 3) if epsilon < 50 else "astronomically large"


def _accountants(priced: EventPrice) -> tuple[str, ...]:
    bounds = (priced.rdp, priced.pld, priced.epsilon)
    return tuple("none" if bound is None else round_up(bound) for bound in bounds)


def _crosscheck(priced: EventPrice) -> str:
    if priced.rdp is not None:
        return ""
    return " Under this relation RDP has no rule for Poisson sampling, so the cross-check is absent."


def _bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
