r"""The bias of clipping: where the sum of clipped contributions points, against the sum of gradients.

Noise has mean zero; clipping bends the mean itself, and no number of steps averages that away (Chen, Wu and Hong 2020,
arXiv 2006.15429; "Enhancing differentially private machine learning", section 5.2.4). A guard at the fraction rho of
the worst cases is set beside flat clipping at the C whose noise has the same norm, so that settings compare at equal
noise. Without bounds, only flat clipping is looked at.

Shape letters: B rows, D entries of one parameter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan, sqrt

import torch
from torch import Tensor

from clipless.diagnostics.passes import Passes
from clipless.diagnostics.records import ClippedParameter, ClippingBias
from clipless.plans.method import Method
from clipless.plans.plan import Plan
from clipless.privacy.allocation import noise_multipliers
from clipless.scalars import to_host

FRACTIONS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
_SCALED = 0.99  # what rounding of norms upwards takes from a row is no clipping
_FLAT_FACTORS = tuple(2.0**power for power in range(4, -5, -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippingRule:
    """One setting."""

    method: Method  # what clips; without privacy, nothing does
    level: float  # sensitivity fraction, or clip norm C
    # what one row may contribute, by parameter; under ``dp-sgd`` C, to all of them together
    limits: Mapping[str, float]
    in_use: bool = False  # whether the plan trains with this setting
    noise_norm: float = 0.0  # see `ClippingBias`

    def factors(self, rows: Passes) -> dict[str, Tensor]:
        """Return the (B,) factors of the rows' contributions, by parameter."""
        match self.method:
            case Method.NON_PRIVATE:
                return {name: torch.ones(len(rows), dtype=torch.float64) for name in rows.own}
            case Method.DP_SGD:
                squares = [torch.linalg.vector_norm(rows_BD, dim=1) ** 2 for rows_BD in rows.gradients.values()]
                return dict.fromkeys(rows.gradients, _factor(self.level, torch.stack(squares).sum(dim=0).sqrt()))
            case Method.CLIPLESS | Method.LIP_DP_SGD:
                return {name: _factor(self.limits[name], bound_B) for name, bound_B in rows.guard_bounds.items()}

    def contributions(self, rows: Passes) -> dict[str, Tensor]:
        """Return the (B, D) contributions that the factors scale, by parameter."""
        return rows.own if self.method.bounded else rows.gradients


def _factor(limit: float, norm_B: Tensor) -> Tensor:
    return (limit / norm_B).clamp(max=1.0)


def rules_to_compare(plan: Plan, worst_cases: Mapping[str, float]) -> tuple[ClippingRule, ...]:
    """Return the compared settings: the plan's own first, then every other at the noise of a few fractions.

    The plan has the sensitivities of the step that is looked at; ``worst_cases`` are the analytic ones, empty for a
    network without bounds.
    """
    used = _in_use(plan)
    entries = sum(plan.sizes.values())
    full = _noise_norm(plan, worst_cases)
    noises = [used.noise_norm, *(fraction * full for fraction in FRACTIONS)]
    if not worst_cases:
        noises = [factor * used.noise_norm for factor in _FLAT_FACTORS]
    guard = plan.method if plan.method.bounded else Method.CLIPLESS
    found = [used]
    for noise in sorted({noise for noise in noises if noise > 0}):
        level = noise / full if worst_cases else 0.0
        limits = {name: level * delta for name, delta in worst_cases.items()}
        both = (
            ClippingRule(method=guard, level=level, limits=limits, noise_norm=noise),
            ClippingRule(method=Method.DP_SGD, level=noise / sqrt(entries), limits={}, noise_norm=noise),
        )
        found += [
            one for one in (both if worst_cases else both[1:]) if (one.method, noise) != (used.method, used.noise_norm)
        ]
    return tuple(found)


def _in_use(plan: Plan) -> ClippingRule:
    entries = sum(plan.sizes.values())
    match plan.method:
        case Method.NON_PRIVATE:
            return ClippingRule(method=plan.method, level=1.0, limits={}, in_use=True)
        case Method.DP_SGD:
            flat = plan.clip_norm or 0.0
            return ClippingRule(method=plan.method, level=flat, limits={}, in_use=True, noise_norm=flat * sqrt(entries))
        case Method.CLIPLESS | Method.LIP_DP_SGD:
            limits = to_host(plan.sensitivities)
            return ClippingRule(
                method=plan.method,
                level=plan.sensitivity_fraction,
                limits=limits,
                in_use=True,
                noise_norm=_noise_norm(plan, limits),
            )


def _noise_norm(plan: Plan, limits: Mapping[str, float]) -> float:
    """Norm of the noise that a guard with these limits needs, shared between parameters as the plan does."""
    sigmas = to_host(noise_multipliers(plan.allocation, 1.0, limits, plan.sizes))
    return sqrt(sum(plan.sizes[name] * (sigma * limits[name]) ** 2 for name, sigma in sigmas.items()))


class ClippedSums:
    """Sums over rows under one setting."""

    def __init__(self, rule: ClippingRule, sizes: Mapping[str, int]) -> None:
        self.rule = rule
        self.sums = {name: torch.zeros(size, dtype=torch.float64) for name, size in sizes.items()}
        self._acted = dict.fromkeys(sizes, 0)
        self._acted_anywhere, self._rows = 0, 0

    def add(self, rows: Passes) -> None:
        """Add some rows."""
        factors = self.rule.factors(rows)
        for name, contributions_BD in self.rule.contributions(rows).items():
            self.sums[name] += factors[name] @ contributions_BD
            self._acted[name] += int((factors[name] < _SCALED).sum())
        self._acted_anywhere += int((torch.stack(list(factors.values())) < _SCALED).any(dim=0).sum())
        self._rows += len(rows)

    def acted(self, name: str) -> float:
        """Share of rows whose contribution to a parameter was scaled."""
        return self._acted[name] / self._rows

    def bias(self, gradients: Mapping[str, Tensor]) -> ClippingBias:
        """Compare with the summed gradients, by parameter."""
        whole, reference = torch.cat(list(self.sums.values())), torch.cat([gradients[name] for name in self.sums])
        length = float(reference.norm())
        return ClippingBias(
            method=self.rule.method,
            level=self.rule.level,
            in_use=self.rule.in_use,
            noise_norm=self.rule.noise_norm,
            acted=self._acted_anywhere / self._rows,
            cosine=_cosine(whole, reference),
            kept=float(whole.norm()) / length if length > 0 else nan,
            parameters=tuple(
                ClippedParameter(name=name, cosine=_cosine(total, gradients[name]), acted=self.acted(name))
                for name, total in self.sums.items()
            ),
        )


def _cosine(a_D: Tensor, b_D: Tensor) -> float:
    lengths = float(a_D.norm()) * float(b_D.norm())
    return max(-1.0, min(1.0, float(a_D @ b_D) / lengths)) if lengths > 0 else nan
