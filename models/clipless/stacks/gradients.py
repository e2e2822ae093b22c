"""The losses and gradients of one pass of a stack, and the test of such a pass before it is taken.

Shape letters: M members, B rows of a member in a pass, R = M B rows of all, K logits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from clipless.losses import Loss, MultilabelBCE, TauBCE, TauCCE
from clipless.plans.method import Method
from clipless.plans.placement import Placement, needs_slots
from clipless.row_independence import Watch, deterministic_convolutions
from clipless.scalars import Scalar
from clipless.stacks.forward import GuardedPass, StackedNetwork
from clipless.stacks.member_training import MemberTraining
from clipless.training.placing import form_of, make_targets

# Of the form T l(z / T), so that rows of any temperatures pass one loss of temperature 1.
_SCALED = (TauCCE, TauBCE, MultilabelBCE)


class StackedLoss:
    """The losses of the members, the rows of one behind those of the other, the same number for each."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        self._losses = losses
        first = losses[0]
        self._same = all(type(loss) is type(first) and loss == first for loss in losses)
        self._unscaled: Loss | None = None
        if isinstance(first, _SCALED):
            unscaled = replace(first, temperature=1.0)
            alike = all(type(one) is type(first) and replace(one, temperature=1.0) == unscaled for one in losses)
            self._unscaled = unscaled if alike else None

    def __call__(self, logits_RK: Tensor, target_R: Tensor) -> Tensor:
        """Return (R,) losses."""
        if self._same:
            return self._losses[0](logits_RK, target_R)
        if self._unscaled is not None:
            temperatures = [one.temperature for one in self._losses if isinstance(one, _SCALED)]
            by_member = torch.tensor(temperatures, dtype=logits_RK.dtype, device=logits_RK.device)
            temperature_R = by_member.repeat_interleave(len(logits_RK) // len(temperatures))
            return temperature_R * self._unscaled(logits_RK / temperature_R[:, None], target_R)
        parts = zip(self._losses, *(t.chunk(len(self._losses)) for t in (logits_RK, target_R)), strict=True)
        return torch.cat([loss(logits, target) for loss, logits, target in parts])


@final
class StackedGradients:
    """Adds up the guarded gradients of a pass, member by member.

    Args:
        trainings: the members.
        network: of all of them.
    """

    def __init__(self, trainings: Sequence[MemberTraining], network: StackedNetwork) -> None:
        self._trainings, self._network, self._first = trainings, network, trainings[0]
        self._loss = StackedLoss([one.member.loss for one in trainings])
        self._normalise = self._first.member.plan.method is Method.LIP_DP_SGD

    def add(
        self,
        x: Tensor,
        y: Tensor,
        counts_R: Tensor,
        sensitivities: Sequence[Mapping[str, Scalar]],
        totals: Mapping[str, Tensor],
        watch: Watch | None = None,
    ) -> None:
        """Add the gradients of the rows that count to the totals.

        Args:
            x: (R, ...) rows, those of one member one behind the other.
            y: (R, ...) targets.
            counts_R: whether each counts.
            sensitivities: of each member, by parameter.
            totals: (M, *shape) float64 by parameter.
            watch: see `clipless.row_independence`.
        """
        exact = self._first.member.exact_norms
        guarded = GuardedPass(sensitivities, len(x), totals, self._normalise, exact)
        with self._network.guarded(guarded), deterministic_convolutions():
            losses_R = self._loss(self._network(x, watch), y)
            # a sum: if `backward` were given gradients, torch would import sympy for them, 0.7 s in every process
            torch.where(counts_R, losses_R, 0.0).sum().backward()

    def need_slots(self, rows: int) -> bool:
        """Whether batches need slots in passes of so many rows of a member; see `needs_slots`."""
        first, like = self._first, self._first.data.x
        losses = tuple(type(one.member.loss) for one in self._trainings)
        options = (first.member.plan.method, losses, first.member.exact_norms, first.first, len(self._trainings))
        form = form_of(first.member.model, rows, tuple(like.shape[1:]), like.device, *options)
        weights = [parameter for one in self._trainings for parameter in one.parameters.values()]
        return needs_slots(self._test_pass, form, first.member.model.layers[first.first], weights)

    def _test_pass(self, x: Tensor, chosen_B: Tensor, counts_B: Tensor, watch: Watch) -> Mapping[str, Tensor]:
        """Pass made-up rows on (`clipless.row_independence`): the same for every member, in another order for each."""
        generator, members = torch.Generator().manual_seed(0), len(self._trainings)
        orders = [torch.randperm(len(x), generator=generator).to(x.device) for _ in range(members)]
        given_R = torch.cat(orders)
        back_R = torch.cat([order.argsort() + m * len(x) for m, order in enumerate(orders)])
        y = make_targets(self._first.data.y, chosen_B, self._first.member.model.output_shape()[0])
        totals = {
            name: torch.zeros((members, *p.shape), dtype=torch.float64, device=x.device)
            for name, p in self._first.parameters.items()
        }
        deltas = [one.member.plan.sensitivities for one in self._trainings]
        with torch.enable_grad():
            self.add(*(x[given_R], y[given_R], counts_B[given_R]), deltas, totals, lambda value: watch(value[back_R]))
        return totals


def placement_of(training: MemberTraining, rows: int, *, slotted: bool) -> Placement:
    """Return where a member's batches stand in passes of so many rows."""
    plan = training.member.plan
    if not slotted:
        return Placement(rows, None)
    return Placement.random(rows, plan.population, plan.sampling_rate, training.source)
