"""What exports say of a model, in sentences that follow from its card; what only people know is copied or not known."""

from clipless.datasets import Evaluation
from clipless.datasets.metadata import units_word
from clipless.plans.method import Method
from clipless.privacy.events import Relation
from sweeper.privacy.card.content import CardContent, ExposureFacts
from sweeper.privacy.card.person import group_epsilon
from sweeper.privacy.card.scores import test_multiplier
from sweeper.privacy.card.text import unproven_of
from sweeper.rounding import exactly, round_down, round_up

NOT_KNOWN = "Not known; {} of the spec would say it."
_METHODS = {
    Method.CLIPLESS: "each row's contribution is bounded in the backward pass by sensitivities that follow from the "
    "Lipschitz constants of network and loss (Bethune et al. 2024, arXiv 2305.16202)",
    Method.LIP_DP_SGD: "likewise by Lipschitz constants, relative to the norm of the row's own input of each layer",
    Method.DP_SGD: "each row's gradient is formed and clipped (Abadi et al. 2016, arXiv 1607.00133)",
    Method.NON_PRIVATE: "nothing bounds a row's contribution, and no noise is added: this model has no privacy",
}

_SCORED = {
    Evaluation.PUBLIC: "computed on public rows",
    Evaluation.PRIVATE: "releases of private rows, with noise that is in the price",
    Evaluation.EXPLORATORY: "of the same people and were not paid for",
}


def said(card: CardContent, field: str) -> str:
    """Return what people have said in a field of ``deployment``, or that it is not known and where it would stand."""
    return " ".join((card.deployment.get(field) or NOT_KNOWN.format(f"deployment.{field}")).split())


def price_that_holds(card: CardContent) -> tuple[float, bool]:
    """Return the epsilon of releasing this model after its sweep, and whether it was fixed before any row was read."""
    facts = card.guarantee
    if facts.selected is not None:
        return facts.selected, True
    if facts.price is not None:
        return facts.price.epsilon, facts.price.fixed
    return facts.chosen_afterwards.epsilon, False


def exposure_that_holds(card: CardContent) -> ExposureFacts:
    """Return what the price that holds means to a person."""
    of_winner = None if card.winner is None else card.winner.exposure
    return of_winner or card.exposure.chosen_afterwards


def risk(card: CardContent) -> str:
    """Return what an attacker finds at the price that holds, in one sentence."""
    return qualify(card, exposure_that_holds(card).risk.in_words())


def qualify(card: CardContent, sentence: str) -> str:
    """Return a sentence on what follows from the price, as one that depends on it where that is not proven."""
    return sentence if card.winner is None else card.winner.to_price().qualify(sentence)


def claim(card: CardContent) -> str:
    """Return the claim in one paragraph."""
    facts, (epsilon, fixed) = card.guarantee, price_that_holds(card)
    mark = "Exploratory: nothing is claimed, and what follows is no guarantee. " if card.exploratory else ""
    when = "fixed before any row was read" if fixed else "of everything that the sweep charged"
    own = facts.fixed_in_advance.epsilon
    return (
        f"{mark}({round_up(epsilon)}, {facts.delta!r})-differential privacy for the model as it was chosen in its "
        f"sweep, a price {when}. The training alone, had its configuration and epoch been fixed in advance, costs "
        f"epsilon {round_up(own)} at the same delta.{_doubt(card)}"
    )


def _doubt(card: CardContent) -> str:
    """Return that the price is not proven, behind a space, where results steered the sweep."""
    doubt = unproven_of(card)
    return f" {doubt}" if doubt else ""


def unit(card: CardContent) -> str:
    """Return what one privacy unit is."""
    name = card.guarantee.unit
    return "one row" if name == "row" else f"one group of rows that share `{name}`"


def adjacency(card: CardContent) -> str:
    """Return which data sets are adjacent."""
    facts = card.guarantee
    change = {
        Relation.ADD_OR_REMOVE_ONE: "by adding or removing {}",
        Relation.REPLACE_ONE: "by replacing {}",
    }[facts.relation].format(unit(card))
    return (
        f"Adjacent data sets differ {change} of the training data (relation `{facts.relation.value}`, distance 1). "
        f"There are {facts.population} training {units_word(facts.unit)}; the number is public."
    )


def data_domain(card: CardContent) -> str:
    """Return the data that are protected."""
    facts = card.guarantee
    return (
        f"Every data set of the declared form of `{card.data.name}`: {units_word(facts.unit)} within the "
        "ranges, categories and classes that were declared for it. Rows held back are "
        f"{card.data.evaluation.value}."
    )


def unprotected(card: CardContent) -> list[str]:
    """Return what the model's papers tell without noise."""
    return list(card.public)


def tuning(card: CardContent) -> str:
    """Return how hyperparameters were chosen, and whether that is in the price."""
    facts, (_, fixed) = card.guarantee, price_that_holds(card)
    winner = "" if card.winner is None else card.winner.statement
    if facts.selected is not None:
        accounted = "The loss of tuning is accounted: the winner was selected privately, at the price of the selection."
    elif fixed:
        accounted = "The loss of tuning is accounted: a budget fixed before any row was read covers every look."
    else:
        accounted = (
            "The loss of tuning is accounted by the composition of every training that was charged, as if their "
            f"number, noise and length had been fixed in advance.{_doubt(card)}"
        )
    return f"Configurations were chosen by a sweep, `{card.sweep}`. {accounted} {winner} {_outside(card)}".replace(
        "  ", " "
    )


def _outside(card: CardContent) -> str:
    """Return what is said of releases outside of the sweep."""
    account = card.account
    if account is None:
        return (
            "Choices made outside this sweep (earlier sweeps on the same data, ranges tried by hand, exploration "
            "before it) are not accounted."
        )
    return (
        f"Earlier and later sweeps on the same data are accounted beside this price: everything that is ever released "
        f"through account `{account.name}` costs epsilon {exactly(account.epsilon)} at delta {account.delta!r} "
        "together, unless its owner raises it. What was released or tried outside of it is not accounted."
    )


def composition(card: CardContent) -> str:
    """Return how losses were composed."""
    facts, advance = card.guarantee, card.guarantee.fixed_in_advance
    times = facts.trainings * facts.repeats
    trained = "trained once" if times == 1 else f"trained {times} times"
    return (
        f"{advance.steps} steps of the Poisson-subsampled Gaussian mechanism up to epoch {card.epoch} of "
        f"{facts.planned_epochs}, {trained}, composed by the smaller of two upper "
        "bounds: Renyi differential privacy (autodp) and pessimistic privacy loss distributions (dp-accounting). "
        "Trainings of the sweep are composed likewise; `ledger.jsonl` has each, and `sweeper verify` computes all "
        "prices again from it."
    )


def post_processing(card: CardContent) -> str:
    """Return what was done after noise."""
    made = card.made_from
    free = f"The weights are the {made} of released weights. " if made else ""
    scored = _SCORED[card.data.evaluation]
    return (
        f"{free}Steps of the optimiser, projections onto the constraints of the network, averages and the choice of "
        f"the epoch read noisy sums only. Scores are {scored}."
    )


def mechanisms(card: CardContent) -> list[str]:
    """Return the mechanisms of the training and of scores of private rows, one sentence each."""
    found = [
        f"Gaussian mechanism with noise multiplier {card.noise.noise_multiplier!r} on sums over Poisson samples of "
        f"rate {card.sampling.sampling_rate!r}; {_METHODS[card.method]}."
    ]
    noise = card.score_noise
    if noise is None:
        return found
    curves = ", read off curves of certified accuracy, and with two classes of both, that are released together"
    tested = test_multiplier(noise)
    return [
        *found,
        f"Scores of private validation rows: Gaussian mechanism, multiplier {noise.noise_multiplier!r}, for each epoch "
        f"that is scored. Of private test rows: multiplier {tested!r} for each point{curves * bool(noise.curves)}.",
    ]


def implementation(card: CardContent) -> list[str]:
    """Return how the mechanisms are implemented, and what that leaves uncovered, one sentence each."""
    versions = card.versions
    is_secure = card.noise.secure_generator
    drawn = "a secure generator (AES-256-CTR)" if is_secure else "an injected generator, without guarantee"
    return [
        f"Implemented by Sweeper {versions['sweeper']} (clipless, torch {versions['torch']}); batches and noise come "
        f"from {drawn}.",
        "Timing: nothing is queried interactively under differential privacy; the time of training is not protected.",
        "Floating point: sums of contributions are added without rounding. Noise is drawn in double precision, and "
        "noisy sums are rounded so coarsely that they differ from exact noise by a probability below 1e-7 for a "
        "billion numbers (against Mironov 2012); delta does not include that.",
        "Platform: what an observer of the training machine could see (timing, memory, batches, gradients before the "
        "noise) is not covered.",
    ]


def attacks(card: CardContent) -> list[str]:
    """Return what audits attained, one sentence each."""
    found = [
        f"{one.kind} audit: attained epsilon {round_down(one.attained, 3)} of the "
        f"{round_up(one.epsilon)} claimed at delta {one.delta!r}, at confidence {one.confidence!r}"
        f"{'; this CONTRADICTS the claim' if one.contradicted else ''}."
        for one in card.audits
    ]
    return found or ["Not known: no audit has attacked this training; `sweeper audit` does."]


def several_rows(card: CardContent) -> list[str]:
    """Return what several rows of one person cost, one sentence each."""
    several = units_word(card.guarantee.unit)
    return [
        qualify(card, f"A person with {one.rows} {several}: epsilon {group_epsilon(one)} at the same delta.")
        for one in exposure_that_holds(card).groups
    ]
