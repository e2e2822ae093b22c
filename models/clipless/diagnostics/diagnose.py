"""Diagnosis of a model, from its plan and public rows, and of the norms of examples. Shape letters: N rows."""

from collections.abc import Mapping
from math import inf, isfinite, sqrt

import torch
from torch import Tensor, nn

from clipless.bounds import NetworkBounds, bound_network
from clipless.datasets import ColourSpace, Dataset, Evaluation, Preparation, Split, prepare
from clipless.datasets.raw_rows import PIXEL_UNIT
from clipless.diagnostics.clipping_bias import ClippedSums, rules_to_compare
from clipless.diagnostics.passes import Passes, passes
from clipless.diagnostics.records import (
    Diagnostics,
    InputNorms,
    LayerDiagnosis,
    ParameterDiagnosis,
    linear_norms,
    log_norms,
)
from clipless.errors import DataError, InvalidBoundError, UnsupportedError
from clipless.losses import Loss, loss_lipschitz
from clipless.network import Network
from clipless.plans.method import Method
from clipless.plans.plan import Plan, check_plan
from clipless.scalars import to_host

DEFAULT_ROWS = 1000


def public_rows(dataset: Dataset) -> Split:
    """Return the validation rows of ``dataset``, if they are declared public.

    Raises:
        DataError: they are private, or exploratory: what is looked at here would be released unpaid.
    """
    declared = dataset.metadata
    if declared.evaluation is not Evaluation.PUBLIC:
        raise DataError(
            f"Expected evaluation: public for diagnostics, got evaluation: {declared.evaluation.value} for "
            f"{declared.name} (data.evaluation): gradients and norms of these rows would be unpaid releases; diagnose "
            f"a sweep on public rows instead"
        )
    return dataset.validation


def diagnose(model: nn.Module, loss: Loss, split: Split, plan: Plan, *, rows: int = DEFAULT_ROWS) -> Diagnostics:
    """Compare the norms of rows in ``model`` with those that bounds, guard and noise allow for.

    The model may be at any moment of its training and is not changed. The split holds *public* rows, see `public_rows`:
    every number that is returned depends on them. At most ``rows`` of them are looked at, evenly spread, by one forward
    and two backward passes each.

    Raises:
        PlanError: the plan was made for something else.
        DataError: no row, or none whose activations and gradients are finite.
        ValueError: ``rows`` below 1.
    """
    if not rows >= 1:
        raise ValueError(f"Expected rows >= 1, got rows={rows!r}")
    network = check_plan(plan, model, loss, plan.population)
    plan = plan.at(network, loss)
    bounds = _bounds(network)
    normalised = plan.method is Method.LIP_DP_SGD
    reach, worst = None, {}
    if bounds is not None:
        reach = loss_lipschitz(loss, bounds.output.shape[0], logit_norm=float(bounds.output.norm))
        worst = to_host(bounds.sensitivities(reach, normalised=normalised))
    tallies = [ClippedSums(rule, plan.sizes) for rule in rules_to_compare(plan, worst)]
    totals = _RowTotals()
    for some in passes(network, loss, _spread(split, rows), normalise=normalised):
        totals.add(some)
        for tally in tallies if len(some) else ():
            tally.add(some)
    if not totals.rows:
        raise DataError(f"Expected at least one row with finite gradients, got {totals.left_out} without")
    parameters = _parameters(plan, worst, tallies[0], totals)
    biases = [tally.bias(totals.gradients) for tally in tallies if tally.rule.method is not Method.NON_PRIVATE]
    return Diagnostics(
        rows=totals.rows,
        left_out=totals.left_out,
        parameters=parameters,
        layers=_layers(network, bounds, reach, totals),
        noise_to_gradient=_ratio(parameters),
        clipping=tuple(sorted(biases, key=lambda bias: (bias.method.value, -bias.noise_norm))),
    )


class _RowTotals:
    """Sums, norms and maxima over all rows."""

    def __init__(self) -> None:
        self.rows, self.left_out = 0, 0
        self.own: dict[str, list[Tensor]] = {}
        self.guard_bounds: dict[str, list[Tensor]] = {}
        self.gradients: dict[str, Tensor] = {}
        self.activations: dict[str, float] = {}
        self.cotangents: dict[str, float] = {}

    def add(self, some: Passes) -> None:
        self.left_out += some.left_out
        self.rows += len(some)
        if not len(some):
            return
        for name, rows_BD in some.gradients.items():
            self.gradients[name] = self.gradients.get(name, 0.0) + rows_BD.sum(dim=0)
            self.own.setdefault(name, []).append(torch.linalg.vector_norm(some.own[name], dim=1))
            self.guard_bounds.setdefault(name, []).append(some.guard_bounds[name])
        for largest, found in ((self.activations, some.activations), (self.cotangents, some.cotangents)):
            for name, norm_B in found.items():
                largest[name] = max(largest.get(name, 0.0), float(norm_B.max()))


def _bounds(network: Network) -> NetworkBounds | None:
    """Return the bounds under the constraints; None for a network that needs none, under ``dp-sgd``."""
    try:
        return bound_network(network)
    except (InvalidBoundError, UnsupportedError):
        return None


def _activation_bounds(bounds: NetworkBounds) -> dict[str, float]:
    found: dict[str, float] = {}
    depth = 0
    for name, bound in bounds.layers:
        depth += bound.depth
        found[name] = float(bound.output.norm) * (1.0 + bounds.slack) ** depth
    return found


def _cotangent_bounds(bounds: NetworkBounds, reach: float) -> dict[str, float]:
    """Bound the gradient of the loss in the output of each layer, as `NetworkBounds.sensitivities` does on its way."""
    found: dict[str, float] = {}
    for name, bound in reversed(bounds.layers):
        found[name] = reach
        reach *= float(bound.input_gain) * (1.0 + bounds.slack) ** bound.depth
        if bound.cotangent_bound is not None:
            reach = min(reach, float(bound.cotangent_bound) * (1.0 + bounds.slack))
    return found


def _spread(split: Split, rows: int) -> Split:
    count = len(split.y)
    if count == 0:
        raise DataError("Expected at least one row to look at, got none")
    if count <= rows:
        return Split(split.x, split.y)
    chosen_N = torch.linspace(0, count - 1, rows, dtype=torch.float64).round().long().to(split.x.device)
    return Split(split.x[chosen_N], split.y[chosen_N])


def _parameters(
    plan: Plan, worst: Mapping[str, float], used: ClippedSums, totals: _RowTotals
) -> tuple[ParameterDiagnosis, ...]:
    sensitivities, stds = to_host(plan.sensitivities), to_host(plan.noise_stds)
    return tuple(
        ParameterDiagnosis(
            name=name,
            size=size,
            worst_case=worst.get(name),
            sensitivity=sensitivities.get(name),
            own=log_norms(torch.cat(totals.own[name])),
            guard_bound=log_norms(torch.cat(totals.guard_bounds[name])),
            acted=used.acted(name),
            signal=plan.batch_size * float(used.sums[name].norm()) / totals.rows,
            noise_std=stds.get(name, 0.0),
        )
        for name, size in plan.sizes.items()
    )


def _layers(
    network: Network, bounds: NetworkBounds | None, reach: float | None, totals: _RowTotals
) -> tuple[LayerDiagnosis, ...]:
    reaches = {} if bounds is None or reach is None else _cotangent_bounds(bounds, reach)
    norms = {} if bounds is None else _activation_bounds(bounds)
    return tuple(
        LayerDiagnosis(
            name=name,
            kind=type(layer).__name__,
            activation_bound=norms[name] if isfinite(norms.get(name, inf)) else None,
            activation_largest=totals.activations[name],
            cotangent_bound=reaches.get(name),
            cotangent_largest=totals.cotangents.get(name),
        )
        for name, layer in network.named_layers()
    )


def _ratio(parameters: tuple[ParameterDiagnosis, ...]) -> float:
    noise = sqrt(sum(p.size * p.noise_std**2 for p in parameters))
    signal = sqrt(sum(p.signal**2 for p in parameters))
    return 0.0 if noise == 0.0 else noise / signal if signal > 0.0 else inf


def input_norms(dataset: Dataset, space: str) -> InputNorms:
    """Return the norms of the validation rows as they are.

    ``space`` names their coordinates.

    Raises:
        clipless.errors.DataError: rows that are not public.
    """
    norm_N = torch.linalg.vector_norm(public_rows(dataset).x.flatten(1).double(), dim=1)
    bound = dataset.metadata.input_norm
    return InputNorms(space=space, bound=bound, norms=linear_norms(norm_N, bound))


def colour_norms(dataset: Dataset) -> tuple[InputNorms, ...]:
    """Return the norms of the validation rows in every colour space, with the bound of each.

    The data set is as loaded, without a preparation. Nothing but RGB images has colours to convert.

    Raises:
        clipless.errors.DataError: rows that are not public.
    """
    rows, facts = public_rows(dataset), dataset.metadata
    pictures = len(facts.input_shape) == 3 and facts.input_shape[0] == 3 and facts.radius_unit == PIXEL_UNIT
    if not pictures or facts.input_gain != 1.0:  # converted already
        return ()
    looked_at = Dataset(facts, rows, rows, rows)  # converts no training row
    return tuple(input_norms(prepare(looked_at, Preparation(colour=space)), space.value) for space in ColourSpace)
