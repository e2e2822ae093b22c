"""The audit of a step within a stack: how far can one row, or one of a neighbour's, move what is summed for a member?

The training is put between two neighbours of its shape, with other weights and smaller sensitivities, and the sums that
`clipless.stacks` computes are compared. A row that is left out moves them by its sensitivity at most. What neighbours
draw moves them by nothing: sums are exact, and a row that two members draw would else move one of them by more than its
own contribution. So whatever a neighbour's rows move is added to a whole sensitivity.

Shape letters: M members.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np
import torch
from torch import Tensor

from clipless.audits.audited_training import AuditedTraining
from clipless.audits.one_run import adapt_plan
from clipless.audits.placement import JOINED, KINKED, FixedPlacement, make_kinked_rows
from clipless.audits.planted import PATTERNS, shares
from clipless.datasets import Split
from clipless.errors import UnsupportedError
from clipless.plans.plan import Plan
from clipless.stacks.member_training import FixedFeatures, MemberTraining
from clipless.stacks.stack import RunningStack

_ROWS = 12  # of a member
_PASSES = 2
_POPULATION = 4 * _ROWS + KINKED
_PLACE, _MEMBERS = 1, 3
_BROKEN = 100.0  # by which weights are multiplied, so that every bound is wrong
_WILD = (float("nan"), float("inf"), 1e38, 0.0)  # what neighbours' rows become

Sums = dict[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class MemberSums:
    """Sums of one member.

    Attributes:
        plan: of the member.
        full: the sums of a batch.
        fewer: with single rows left out.
        changed: after the neighbours drew other rows; None where that was not looked at.
        joined: of rows at kinks, after an empty row has joined in front.
        apart: what those rows and the empty one add up to apart.
    """

    plan: Plan
    full: Sums
    fewer: list[Sums]
    changed: Sums | None
    joined: Sums
    apart: Sums


def stacked_sums(
    training: AuditedTraining, batches: int, generator: np.random.Generator
) -> Iterator[tuple[MemberSums, ...]]:
    """Yield the sums of the members of a stack, of one batch each.

    Args:
        training: of the member in the middle; the neighbours have no less noise and smaller sensitivities.
        batches: how many; every second one with weights that break all bounds.
        generator: of the rows.
    """
    for number, wild in zip(range(batches), cycle(_WILD), strict=False):
        plans = _plans(training)
        stack = _stack(training, plans, _rows(training, generator, wild), broken=number % 2 == 0)
        left, own, right, other = (torch.arange(_ROWS) + part * _ROWS for part in range(4))
        full = _sums(stack, [left, own, right])
        fewer = [
            _sums(stack, [drawn[torch.arange(_ROWS) != row] for drawn in (left, own, right)])
            for row in (0, int(generator.integers(1, _ROWS)))
        ]
        changed = _sums(stack, [other[: _ROWS // 2], own, other])
        empty, kinked = torch.tensor([4 * _ROWS]), torch.arange(_ROWS) + 4 * _ROWS + JOINED
        joined, own_sums, alone = (
            _sums(stack, [rows, rows, rows]) for rows in (torch.cat([empty, kinked]), kinked, empty)
        )
        yield tuple(
            MemberSums(
                plan,
                full[m],
                [sums[m] for sums in fewer],
                changed[m] if m == _PLACE else None,
                joined[m],
                {name: own_sums[m][name] + alone[m][name] for name in own_sums[m]},
            )
            for m, plan in enumerate(plans)
        )


def _rows(training: AuditedTraining, generator: np.random.Generator, wild: float) -> Split:
    """Return rows of the member, of both neighbours, those that take the neighbours' place, and some at kinks."""
    count, data = 4 * _ROWS, training.rows
    chosen = torch.from_numpy(generator.integers(len(data), size=count)).to(data.x.device)
    share_B = shares(count, str(generator.choice(PATTERNS)), generator) * 10.0 ** generator.uniform(0.0, 4.0)
    x = data.x[chosen] * share_B.view(-1, *[1] * (data.x.dim() - 1)).to(data.x)
    x[3 * _ROWS :: 2] = wild
    seed = torch.Generator().manual_seed(int(generator.integers(2**31)))
    kinked = make_kinked_rows(training.model, data, seed)
    return Split(torch.cat([x, kinked.x]), torch.cat([data.y[chosen], kinked.y]))


def _plans(training: AuditedTraining) -> list[Plan]:
    """Return the plans of all members; shares are powers of two, so that each is a plan of the same network."""
    plan, found = adapt_plan(training.plan, _POPULATION), []
    for place in range(_MEMBERS):
        share = 1.0 if place == _PLACE else 0.5 ** (1 + place)
        deltas = {name: share * delta for name, delta in plan.sensitivities.items()}
        found.append(replace(plan, sensitivity_fraction=share * plan.sensitivity_fraction, sensitivities=deltas))
    return found


def _stack(training: AuditedTraining, plans: Sequence[Plan], data: Split, *, broken: bool) -> RunningStack:
    rows, features, trainings = -(-_ROWS // _PASSES), FixedFeatures(data), []
    for place, plan in enumerate(plans):
        model = training.copy_model()
        trainings.append(MemberTraining(training.member(model, plan), data, rows, features))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_((1.0 if place == _PLACE else -1.0) * (_BROKEN if broken else 1.0))
    for one in trainings:  # their entries were copied before the weights changed
        one.entries["weights"] = torch.cat([p.detach().flatten() for p in one.parameters.values()])
    try:
        stack = RunningStack(trainings, rows)
    except UnsupportedError:  # such a stack is refused; its sums are looked at all the same
        return RunningStack(trainings, rows, slotted=False)
    for places in stack.places:
        if places.slots is not None:
            places.slots = FixedPlacement(max(places.slots.count, len(data)))
    return stack


def _sums(stack: RunningStack, draws: Sequence[Tensor]) -> list[Sums]:
    """Return the sums of each member."""
    found = stack.sums([drawn.to(stack.device) for drawn in draws])
    return [{name: sums[m] for name, sums in found.items()} for m in range(len(draws))]
