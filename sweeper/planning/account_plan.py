"""What a sweep plans to take from the account of its data: every release, by the rows that it reads."""

from dataclasses import replace
from functools import partial

from clipless.datasets import Dataset, Evaluation
from clipless.datasets.splits import Splitting
from clipless.privacy.accounting.gaussian_filter import GaussianFilter
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.gaussian import GaussianCost
from sweeper.account.account import Account
from sweeper.account.balance import Balance
from sweeper.account.blocks import (
    digest_dataset,
    digest_read_blocks,
    digest_sides,
    digest_table,
    digest_units,
    digest_whole,
    split_in_text,
)
from sweeper.account.cost import NOTHING, event_cost, rounded_up, scores_cost, total
from sweeper.account.draws import draw_of_selection
from sweeper.account.entries import Side
from sweeper.account.rules import Reservation
from sweeper.errors import AccountError
from sweeper.planning.configurations import ESTIMATED_CONFIGURATIONS, find_all_plannable, plan_configuration
from sweeper.planning.sweep_plan import PlannedAccount, SweepPlan
from sweeper.privacy.claims import AccountClaim
from sweeper.privacy.pricing import price
from sweeper.specification.addresses import find_account
from sweeper.specification.fields.messages import mistake

NO_ACCOUNT = "No account adds this sweep to others: what they release from the same rows comes on top of its price."


def check_paid(plan: SweepPlan) -> None:
    """Refuse an account that could not answer for what a sweep shows of its rows.

    Raises:
        SpecError: results on its rows leave unpaid.
    """
    if plan.account is not None and plan.claim.exploratory:
        expected = "no account for a sweep that looks at private rows without paying: no budget covers that"
        remedy = "leave it out, or pay for what is looked at (evaluation: private, ranges from public sources)"
        raise mistake(
            plan.spec.source,
            expected,
            "privacy.account",
            plan.account.address.name,  # readers may not know where it lies
            remedy,
            overrides=plan.spec.overrides,
        )


def plan_account(plan: SweepPlan, data: Dataset, splitting: Splitting) -> PlannedAccount | None:
    """Return what a sweep plans to take from the account that its spec names, ``None`` where it names none.

    ``splitting`` says the side of each row.
    """
    if plan.privacy.account is None:
        return None
    split = split_in_text(splitting, data.metadata.name) if data.metadata.split_by_row else None
    return PlannedAccount(
        address=find_account(plan.privacy.account, plan.spec.source),
        unit=data.metadata.unit,
        split=split,
        events=_events(plan, data),
        filter_epsilon=plan.spending.decided_epsilon,
        selection=plan.spending.selection,
    )


def state_account(plan: SweepPlan) -> SweepPlan:
    """Return the plan with a claim of what holds for this sweep and all others on the same rows together.

    Raises:
        RecordError: there is no such account, or its store cannot be read.
    """
    claim, planned = plan.claim, plan.account
    if planned is None:
        return replace(plan, claim=replace(claim, conditions=(*claim.conditions, NO_ACCOUNT)))
    balance = Account(planned.address).balance()
    account = AccountClaim(planned.address.name, balance.epsilon, balance.delta)
    return replace(plan, claim=replace(claim, conditions=(*claim.conditions, account.condition), account=account))


def _events(plan: SweepPlan, data: Dataset) -> dict[Side, tuple[PoissonGaussian, ...]]:
    """Return every release that a sweep plans, by the side that it reads; those that a filter admits are not known."""
    planned = plan.spending.plan_releases(plan.shared.noise, partial(_dearest_events, plan, data))
    return {Side(split): events for split, events in planned.items()}


def _dearest_events(plan: SweepPlan, data: Dataset) -> tuple[list[PoissonGaussian], list[PoissonGaussian]]:
    """Return what all trials spend on training rows, and on scores, if each is as dear as the dearest of the first few.

    Had they the mean of these, a sweep would run into the end of its account where later sweeps took what it lacked.
    """
    shared = plan.shared
    found = find_all_plannable(
        shared, plan.trials, lambda one: plan_configuration(shared, data, one)[1], ESTIMATED_CONFIGURATIONS
    )
    plans = {one.event(): one for one, _ in found}
    dearest = max(plans, key=lambda event: 0.0 if len(plans) == 1 else price([event], plan.privacy.delta).epsilon)
    longest = max(plans.values(), key=lambda one: one.epochs)
    return plan.expected_events([plans[dearest]])[0], plan.expected_events([longest])[1]


def planned_costs(plan: PlannedAccount, delta: float, balance: Balance) -> dict[Side, GaussianCost]:
    """Return what a sweep plans to take from an account, by the side of its own split that each release reads."""
    if plan.filter_epsilon is not None:
        square = GaussianFilter(plan.filter_epsilon, delta).budget.square
        slack = balance.budget.slack * square / balance.budget.square
        return dict.fromkeys(plan.events, rounded_up(GaussianCost(square, slack)))
    given = balance.terms
    costs = {
        side: total((event_cost if side is Side.TRAINING else scores_cost)(event, *given) for event in events)
        for side, events in plan.events.items()
    }
    selection = {} if plan.selection is None else draw_of_selection(plan.selection).costs(*given)
    return {
        side: total([costs.get(side, NOTHING), selection.get(side, NOTHING)])
        for side in Side
        if side in costs or side in selection
    }


def make_reservation(
    plan: SweepPlan, data: Dataset, account: Account, *, sweep: str, title: str, spender: str
) -> Reservation:
    """Return what a sweep asks of its account, under its id and the title that people know it by.

    Raises:
        AccountError: its plan names none, or a block has the name of all rows.
    """
    if plan.account is None:
        raise AccountError(f"Expected a sweep that names an account, got {plan.name} without (privacy.account)")
    blocks = (data.raw or data).blocks
    return Reservation(
        sweep=sweep,
        title=title,
        spender=spender,
        unit=plan.account.unit,
        relation=plan.privacy.relation,
        costs=planned_costs(plan.account, plan.privacy.delta, account.balance()),
        split=plan.account.split,
        sides=digest_sides(account.key, data),
        blocks=digest_dataset(account.key, data),
        table=digest_table(account.key, data),
        read=digest_read_blocks(account.key, data),
        whole=digest_whole(account.key, data),
        units=digest_units(account.key, data),
        cut=None if blocks is None else blocks.column,
        has_public_rows=data.metadata.evaluation is Evaluation.PUBLIC,
    )
