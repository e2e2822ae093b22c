"""The audit of one step: how far can one row move the sums?

A search over rows and cotangents, on the sums that training computes (`clipless.training.batch_sums.sum_gradients`).
Rows reach the layers in two ways: through the model and its loss, with its own weights and with weights that break
every bound; and planted (`plant_operands`), so that each layer is given the inputs and cotangents that move its sum
most.

One row is left out in its place, as the relation of neighbours says, or joins in front (`places`), and the sums of both
batches are compared: per parameter with its sensitivity, and all together with what the noise of the step covers,

    r = sigma sqrt(sum_k (|difference_k| / std_k)^2),

so that a step whose r exceeds 1 has the noise multiplier sigma / r at most.

Shape letters: B rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, inf, isfinite, sqrt

import numpy as np
import torch
from torch import Tensor

from clipless.audits.attained import attained_epsilon
from clipless.audits.audited_training import AuditedTraining, Effort
from clipless.audits.finding import AuditKind, Finding
from clipless.audits.placement import compare_sums
from clipless.audits.planted import PATTERNS, Operands, Shapes, operand, operand_shapes, plant_operands, shares
from clipless.audits.stacked import stacked_sums
from clipless.network import Network
from clipless.plans.method import Method
from clipless.plans.plan import Plan
from clipless.testing import broken_weights
from clipless.training.batch_sums import CountedLoss, sum_gradients

Sums = Mapping[str, Tensor]
# batch -> its sums, with one row left out
Batch = Callable[[int | None], Sums]

_BATCHES = {Effort.BRIEF: 1, Effort.CHEAP: 6, Effort.THOROUGH: 60}
_ROWS = 24  # of a batch
_PASSES = {Effort.BRIEF: 2, Effort.CHEAP: 4, Effort.THOROUGH: _ROWS}  # of a batch, at most
_LEFT_OUT = 2  # rows of each batch that are left out in turn
_TOLERANCE = 1e-9  # rounding in the norm of a difference; sums are exact


@dataclass(slots=True)
class Worst:
    """Largest ratios that a search found.

    Attributes:
        pairs: of neighbours.
        parameters: by parameter, the largest difference over the sensitivity.
        joint: of r.
    """

    pairs: int = 0
    parameters: dict[str, float] = field(default_factory=dict)
    joint: float = 0.0

    def see(self, full: Sums, fewer: Sums, plan: Plan) -> None:
        """Compare the sums of two neighbours; a difference that is not finite counts as infinite."""
        moved = {name: _finite(float((full[name] - fewer[name]).norm())) for name in plan.sensitivities}
        stds = plan.noise_stds
        self.pairs += 1
        for name, norm in moved.items():
            ratio = norm / float(plan.sensitivities[name])
            self.parameters[name] = max(self.parameters.get(name, 0.0), ratio)
        together = sqrt(sum((norm / float(stds[name])) ** 2 for name, norm in moved.items()))
        self.joint = max(self.joint, plan.event().noise_multiplier * together)

    def see_alike(self, sums: Sums, changed: Sums, plan: Plan) -> None:
        """Compare sums that have to be alike: of a member whose neighbours drew other rows, of others when a row joins.

        What is moved there adds to what a row's own contribution may move.
        """
        self.pairs += 1
        for name, delta in plan.sensitivities.items():
            moved = _finite(float((sums[name] - changed[name]).norm())) / float(delta)
            if moved:
                self.parameters[name] = max(self.parameters.get(name, 0.0), 1.0 + moved)
                self.joint = max(self.joint, 1.0 + moved)

    @property
    def exceeded(self) -> bool:
        """Whether a sum moved by more than the noise covers."""
        return max(self.joint, *self.parameters.values()) > 1.0 + _TOLERANCE


def audit_step(training: AuditedTraining, effort: Effort = Effort.CHEAP, *, seed: int | None = None) -> Finding:
    """Search for the row that moves the sums of a step most.

    Args:
        training: whose step is attacked, with the weights that its model has.
        effort: how long to search.
        seed: of the search; by default from the operating system.

    Guarantees:
        Never contradicts a step whose computed sums move by their sensitivities at most.
    """
    worst = search(training, _BATCHES[effort], np.random.default_rng(seed), passes=_PASSES[effort])
    plan, event = training.plan, training.plan.event()
    reached = inf if worst.joint == 0.0 else event.noise_multiplier / worst.joint
    return Finding(
        kind=AuditKind.STEP,
        subject=training.subject,
        epsilon=training.epsilon,
        delta=plan.delta,
        attained=attained_epsilon(event, reached, plan.delta, effort),
        confidence=1.0,
        p_value=0.0 if worst.exceeded else 1.0,
        contradicted=worst.exceeded,
        evidence={
            "pairs of neighbours": worst.pairs,
            "attained sensitivity of all parameters": worst.joint,
            **{f"attained sensitivity of {name}": ratio for name, ratio in worst.parameters.items()},
        },
    )


def search(training: AuditedTraining, batches: int, generator: np.random.Generator, *, passes: int = _ROWS) -> Worst:
    """Compare the sums of ``batches`` planted batches, and of half as many rows through the model, with neighbours'.

    A planted batch is cut into ``passes`` at most. Of a training in a stack, sums within one are compared as well.
    """
    worst, model = Worst(), training.copy_model()
    plan = training.plan.at(model, training.loss)
    for number in range(batches):
        count = min(_ROWS, 2 + number * 11)
        made = [planted_batch(training, model, plan, count, generator, steady=number == 0, passes=passes)]
        if number % 2 == 0:
            made.append(_through_the_model(training, model, plan, count, generator, broken=number % 4 == 0))
        for batch in made:
            full = batch(None)
            for row in {0, *generator.integers(count, size=_LEFT_OUT - 1).tolist()}:
                worst.see(full, batch(row), plan)
        if number % 2 == 0:
            seed = torch.Generator().manual_seed(int(generator.integers(2**31)))
            for joined, apart in compare_sums(training, model, plan, seed):
                worst.see_alike(apart, joined, plan)
    if training.stacked:
        search_in_stacks(training, batches // 6, generator, worst)
    return worst


def search_in_stacks(training: AuditedTraining, batches: int, generator: np.random.Generator, worst: Worst) -> None:
    """Compare the sums of the members of stacks, without single rows and with other rows of neighbours."""
    for members in stacked_sums(training, batches, generator):
        for one in members:
            for fewer in one.fewer:
                worst.see(one.full, fewer, one.plan)
            worst.see_alike(one.apart, one.joined, one.plan)
            if one.changed is not None:
                worst.see_alike(one.full, one.changed, one.plan)


def planted_batch(
    training: AuditedTraining,
    model: Network,
    plan: Plan,
    count: int,
    generator: np.random.Generator,
    *,
    steady: bool = False,
    passes: int = _ROWS,
) -> Batch:
    """Return a batch of planted operands; ``steady`` asks each row for four times each sensitivity."""
    operands = {
        name: _choose_operands(shape, _sensitivity(plan, name), plan.method, count, generator, steady=steady)
        for name, shape in operand_shapes(model).items()
    }
    size = max(int(generator.choice([1, 7, _ROWS])), ceil(count / passes))
    x, y = torch.zeros(count, *model.input_shape).to(training.rows.x), training.rows.y[:1]

    def sums(left_out: int | None) -> Sums:
        totals = _zeros(plan, model)
        for places in torch.arange(count).split(size):
            part = {name: _without(one, left_out, places) for name, one in operands.items()}
            with plant_operands(model, len(places), part):
                _add(training, model, plan, x[places], y.expand(len(places), *y.shape[1:]), totals)
        return totals

    return sums


def _choose_operands(
    shapes: Shapes, delta: float, method: Method, count: int, generator: np.random.Generator, *, steady: bool
) -> Operands:
    """Return inputs and cotangents of rows whose contributions are around a sensitivity."""
    share_B = shares(count, "equal" if steady else str(generator.choice(PATTERNS)), generator)
    x, g = (torch.ones(count, *s) if steady else operand(count, s, True, generator) for s in shapes)
    x = x * share_B.view(-1, *[1] * len(shapes[0]))
    norm_B = g.flatten(1).double().norm(dim=1)
    if method is not Method.LIP_DP_SGD:
        norm_B = norm_B * x.flatten(1).double().norm(dim=1)
    multiple = 4.0 if steady else 10.0 ** generator.uniform(-1.0, 3.0)
    g = (g.double() * (multiple * delta / float(norm_B.max().clamp(min=1e-30)))).float()
    if not steady and generator.random() < 0.2:
        x[int(generator.integers(count))] = float(generator.choice([np.nan, np.inf]))
    return Operands(x, g)


def _sensitivity(plan: Plan, layer: str) -> float:
    found = [float(delta) for name, delta in plan.sensitivities.items() if name.rpartition(".")[0] == layer]
    return max(found, default=1.0)


def _without(one: Operands, left_out: int | None, places: Tensor) -> Operands:
    def part(operands: Tensor | None) -> Tensor | None:
        if operands is None:
            return None
        chosen = operands[places].clone()
        chosen[places == (-1 if left_out is None else left_out)] = 0.0
        return chosen

    return Operands(part(one.inputs), part(one.cotangents))


def _through_the_model(
    training: AuditedTraining, model: Network, plan: Plan, count: int, generator: np.random.Generator, *, broken: bool
) -> Batch:
    """Return a batch of rows, scaled, that pass the model and its loss; with weights that break every bound."""
    chosen = torch.from_numpy(generator.integers(len(training.rows), size=count)).to(training.rows.x.device)
    share_B = shares(count, str(generator.choice(PATTERNS)), generator) * 10.0 ** generator.uniform(0.0, 4.0)
    x = training.rows.x[chosen] * share_B.view(-1, *[1] * len(model.input_shape)).to(training.rows.x)
    y = training.rows.y[chosen]

    def sums(left_out: int | None) -> Sums:
        totals, counts_B = _zeros(plan, model), torch.ones(count, dtype=torch.bool, device=x.device)
        rows = x.clone()
        if left_out is not None:  # in its place: rows that others may move are `places`'
            counts_B[left_out], rows[left_out] = False, 0.0
        _add(training, model, plan, rows, y, totals, counts_B)
        return totals

    def with_broken_weights(left_out: int | None) -> Sums:
        with broken_weights(model):
            return sums(left_out)

    return with_broken_weights if broken else sums


def _zeros(plan: Plan, model: Network) -> dict[str, Tensor]:
    return {name: torch.zeros_like(model.get_parameter(name), dtype=torch.float64) for name in plan.sensitivities}


def _add(
    training: AuditedTraining,
    model: Network,
    plan: Plan,
    x: Tensor,
    y: Tensor,
    totals: Mapping[str, Tensor],
    counts_B: Tensor | None = None,
) -> None:
    exact, ghost = training.exact_norms, training.ghost_clipping
    loss = training.loss if counts_B is None else CountedLoss(training.loss, counts_B)
    sum_gradients(model, loss, x, y, plan, totals, ghost=ghost, exact=exact)


def _finite(norm: float) -> float:
    return norm if isfinite(norm) else inf
