"""The plan: the one place where sampler, sensitivities, noise and privacy event of a training meet.

A plan is frozen and holds only public numbers. `clipless.fit` draws batches at the plan's sampling rate and
noise at the plan's standard deviations, and refuses a model, a loss or data for which the plan was not made,
so that no code path can train otherwise than was accounted.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from math import ceil, isfinite, sqrt
from types import MappingProxyType
from typing import Any

from torch import nn

from clipless.bounds import WeightNorms
from clipless.errors import PlanError
from clipless.losses import Loss
from clipless.network import Network
from clipless.plans.clipping import AdaptiveClipping, Clipping, check_clipping
from clipless.plans.freezing import Freezing
from clipless.plans.input_statistics import releases
from clipless.plans.method import Method, Schedule
from clipless.plans.noise_range import check_noise, check_sensitivities, least_sensitivities
from clipless.plans.sensitivities import limit_sensitivity, planned_sensitivities, positive_budget, worst_case
from clipless.plans.trainable import check_trainable
from clipless.privacy.accounting.calibration import noise_multiplier_for, steps_for
from clipless.privacy.accounting.claim import EpsilonClaim, claims
from clipless.privacy.accounting.tradeoff.risk import event_risks, pair_risk
from clipless.privacy.allocation import NoiseAllocation, noise_multipliers
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.exposure import Risk
from clipless.scalars import Scalar, on_host, to_host

# Relative increase of the noise that covers the double-precision arithmetic of deviations and normal numbers. Sums are
# exact (`clipless.guards.exact_sums`) and need none.
NOISE_INFLATION = 2.0**-40


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that decides what one training releases.

    Attributes:
        population: N, rows of the training split; public.
        batch_size: b, expected batch size and fixed denominator.
        epochs: planned number of epochs T, of ``steps_per_epoch`` steps each.
        noise_multiplier: sigma of the composition over all parameters.
        sensitivity_fraction: rho; the guard acts at rho times the analytic worst case.
        sensitivities: Delta_k by parameter name: how much one example can change the summed gradient. Under
            ``dp-sgd`` each is ``clip_norm``, which bounds all of them together too; empty without privacy.
        sizes: d_k, entries by parameter name.
        clip_norm: C, norm that ``dp-sgd`` clips the whole gradient of an example to.
        follow_weights: whether the sensitivities of a step are those of the weights as they are then, which earlier
            steps have released, instead of the largest that the constraints allow; the noise falls with them.
        clipping: how the norms of `clipless.layers.ClipGradient` layers move from step to step; the sensitivities
            and the noise of a step follow them.
        freezing: which layers rest from which step on; the noise of a step is shared among the parameters it trains.
        preliminary_steps: releases before the first step, for layers with private statistics; each is charged like a
            step.
    """

    population: int
    batch_size: float
    epochs: int
    noise_multiplier: float
    delta: float
    relation: Relation
    allocation: NoiseAllocation
    sensitivity_fraction: float
    sensitivities: Mapping[str, Scalar]
    sizes: Mapping[str, int]
    method: Method = Method.CLIPLESS
    clip_norm: float | None = None
    follow_weights: bool = False
    clipping: Clipping = Schedule.CONSTANT
    freezing: Freezing | None = None
    preliminary_steps: int = 0

    def __post_init__(self) -> None:
        for name in ("sensitivities", "sizes"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        if self.clipping is not Schedule.CONSTANT and self.method is Method.DP_SGD:
            raise PlanError("Expected clipping=constant for dp-sgd, which clips to clip_norm, got another")

    def __reduce__(self) -> tuple[Any, ...]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain: dict[str, Any] = {name: dict(v) if isinstance(v, MappingProxyType) else v for name, v in values.items()}
        return partial(Plan, **plain), ()

    @property
    def sampling_rate(self) -> float:
        """Q = b / N."""
        return self.batch_size / self.population

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which every row is expected to be drawn about once."""
        return ceil(self.population / self.batch_size)

    @property
    def noise_stds(self) -> dict[str, Scalar]:
        """Standard deviation of the noise on each summed gradient (before the division by b)."""
        sigmas = self._multipliers
        return {name: sigma * self.sensitivities[name] * (1.0 + NOISE_INFLATION) for name, sigma in sigmas.items()}

    @property
    def _multipliers(self) -> dict[str, Scalar]:
        if self.method is Method.DP_SGD:  # the whole gradient is clipped at once: one Gaussian mechanism
            return dict.fromkeys(self.sensitivities, self.noise_multiplier)
        return noise_multipliers(self.allocation, self._sigma, self.sensitivities, self.sizes)

    @property
    def _sigma(self) -> float:
        return self.noise_multiplier / sqrt(1.0 - self._count_share)

    def check_noise(self, copies: int = 1) -> None:
        """Raise PlanError for noise that is not exact on the grids of the sums, with so many copies of each row."""
        check_noise(to_host(self._multipliers) | {"the count of rows": 2.0 * self.count_std}, copies)

    @property
    def count_std(self) -> float:
        """Standard deviation of the noise on the count that moves an adaptive norm; one row moves it by at most 1/2."""
        if self._count_share == 0.0:
            return 0.0
        return 0.5 * self.noise_multiplier / sqrt(self._count_share) * (1.0 + NOISE_INFLATION)

    @property
    def _count_share(self) -> float:
        return self.clipping.share if isinstance(self.clipping, AdaptiveClipping) else 0.0

    def resting(self, network: Network, step: int) -> frozenset[str]:
        """Return the names of the parameters that are not trained at ``step``, counted from 0."""
        if self.freezing is None:
            return frozenset()
        return self.freezing.resting(network, step, self.epochs * self.steps_per_epoch)

    def at(self, network: Network, loss: Loss, resting: frozenset[str] = frozenset()) -> "Plan":
        """Return the plan of the next step.

        Sensitivities may follow the weights of ``network`` and the norms that its clipping layers have now; parameters
        in ``resting`` are not trained.
        """
        planned = to_host(self.sensitivities)
        trained: dict[str, Scalar] = {name: delta for name, delta in planned.items() if name not in resting}
        if self.method.bounded and (self.follow_weights or self.clipping is not Schedule.CONSTANT):
            weights = WeightNorms.CURRENT if self.follow_weights else WeightNorms.CONSTRAINED
            now = worst_case(network, loss, self.method, weights)
            fraction = self.sensitivity_fraction
            least = least_sensitivities(self.allocation, self._sigma, planned, self.sizes)
            trained = {name: limit_sensitivity(fraction * now[name], planned[name], least[name]) for name in trained}
        moving = not all(map(on_host, trained.values()))
        return self if not moving and trained == self.sensitivities else replace(self, sensitivities=trained)

    def event(self, epochs: int | None = None) -> PoissonGaussian:
        """Return the event that ``epochs`` epochs spend, by default the whole plan."""
        return PoissonGaussian(
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
            steps=self.preliminary_steps + (self.epochs if epochs is None else epochs) * self.steps_per_epoch,
            relation=self.relation,
        )

    def claims(self) -> tuple[EpsilonClaim, ...]:
        """Return the price of the first epoch, of the first two and so on, each number of epochs fixed in advance."""
        steps = tuple(self.event(epoch + 1).steps for epoch in range(self.epochs))
        return claims(self.event(), steps, self.delta)

    def risks(self) -> tuple[Risk, ...]:
        """Return what an attacker gains by the first epoch, the first two and so on, each number fixed in advance."""
        steps = tuple(self.event(epoch + 1).steps for epoch in range(self.epochs))
        found = zip(event_risks(self.event(), steps), self.claims(), strict=True)
        return tuple(risk.at_most(pair_risk(one.epsilon, one.delta)) for risk, one in found)

    def epsilon_curve(self) -> list[float]:
        """Return the claimed epsilon after each epoch; known before the first step."""
        return [one.epsilon for one in self.claims()]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "method": self.method.value,
            "population": self.population,
            "batch_size": self.batch_size,
            "sampling_rate": self.sampling_rate,
            "steps_per_epoch": self.steps_per_epoch,
            "preliminary_steps": self.preliminary_steps,
            "epochs": self.epochs,
            "noise_multiplier": self.noise_multiplier,
            "delta": self.delta,
            "relation": self.relation.value,
            "allocation": self.allocation.value,
            "sensitivity_fraction": self.sensitivity_fraction,
            "clip_norm": self.clip_norm,
            "follow_weights": self.follow_weights,
            "clipping": _describe(self.clipping),
            "count_std": self.count_std,
            "freezing": None if self.freezing is None else asdict(self.freezing),
            "sensitivities": dict(self.sensitivities),
            "noise_stds": self.noise_stds,
            "event": self.event().to_json(),
        }


def _describe(clipping: Clipping) -> dict[str, Any]:
    if isinstance(clipping, AdaptiveClipping):
        return {"kind": "adaptive", **asdict(clipping)}
    return {"kind": clipping.value}


def make_plan(
    model: nn.Module,
    loss: Loss,
    *,
    population: int,
    batch_size: float,
    delta: float,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    epochs: int | None = None,
    sensitivity_fraction: float = 1.0,
    allocation: NoiseAllocation = NoiseAllocation.MIN_VARIANCE,
    relation: Relation = Relation.ADD_OR_REMOVE_ONE,
    accept_large_delta: bool = False,
    method: Method = Method.CLIPLESS,
    clip_norm: float | None = None,
    follow_weights: bool = False,
    clipping: Clipping = Schedule.CONSTANT,
    freezing: Freezing | None = None,
) -> Plan:
    """Plan a training; of ``epsilon``, ``noise_multiplier`` and ``epochs`` any two give the third.

    Args:
        model: a `Network` whose layers all have bound rules.
        loss: a loss with a Lipschitz constant.
        population: N, rows of the training data; taken as public.
        batch_size: expected batch size b <= N; batches are Poisson sampled at q = b / N.
        delta: below 1 / N, unless ``accept_large_delta``.
        epsilon: budget of the whole training.
        noise_multiplier: sigma, noise relative to the sensitivity.
        epochs: number of epochs.
        sensitivity_fraction: rho in (0, 1]; below 1 the guard clips, and the noise falls by rho.
        allocation: how the noise is shared between parameters.
        relation: neighbouring relation.
        accept_large_delta: allow delta >= 1 / N, which permits publishing a row outright.
        method: what bounds the contribution of one example; ``non-private`` takes ``epochs`` alone.
        clip_norm: C, for ``dp-sgd`` and nothing else.
        follow_weights: let the sensitivities of each step be those of the current weights; see `Plan`.
        clipping: a schedule of the norms of the model's clipping layers, or an
            `clipless.plans.clipping.AdaptiveClipping`, whose counts are part of each step's event.
        freezing: let the first layers rest from a step on.

    Raises:
        PlanError: parameters that do not fit together.
        UnsupportedError: a layer, a parameter or a loss that cannot be guarded.

    Guarantees:
        `clipless.fit` with this plan is (epsilon, delta)-differentially private for the training rows, under
        the stated relation, with epsilon as `clipless.privacy.accounting.claim.claim` prices ``plan.event()``. It
        does not depend on the bounds of the network being right: the guard enforces the sensitivities.
    """
    for choice, kind in ((allocation, NoiseAllocation), (relation, Relation), (method, Method)):
        if not isinstance(choice, kind):
            raise PlanError(f"Expected a {kind.__name__}, got {choice!r}")
    _check_numbers(population, batch_size, delta, sensitivity_fraction, accept_large_delta)
    _check_clip_norm(method, clip_norm)
    if follow_weights and not method.bounded:
        raise PlanError(f"Expected clipless or lip-dp-sgd with follow_weights, got {method.value}")
    _check_choices(method, {"epsilon": epsilon, "noise_multiplier": noise_multiplier, "epochs": epochs})
    if epochs is not None and not (isinstance(epochs, int) and epochs >= 1):
        raise PlanError(f"Expected a whole number of epochs >= 1, got epochs={epochs!r}")
    sensitivities, sizes = planned_sensitivities(model, loss, method, sensitivity_fraction, clip_norm)
    check_sensitivities(sensitivities, batch_size)
    if freezing is not None:
        freezing.check(check_trainable(model, bounded=method.bounded))
    check_clipping(model, clipping, _frozen_names(model, freezing))
    rate, steps_per_epoch = batch_size / population, ceil(population / batch_size)
    before = releases(check_trainable(model, bounded=method.bounded))
    if method is Method.NON_PRIVATE:
        noise_multiplier = 0.0
    elif noise_multiplier is None:
        steps = before + (epochs or 0) * steps_per_epoch
        noise_multiplier = noise_multiplier_for(positive_budget(epsilon), delta, rate, steps, relation)
    if epochs is None:
        affordable = steps_for(positive_budget(epsilon), delta, noise_multiplier, rate, relation)
        epochs = (affordable - before) // steps_per_epoch
        if epochs < 1:
            raise PlanError(
                f"Expected a budget for at least one epoch, got epsilon={epsilon} at "
                f"noise_multiplier={noise_multiplier}: raise either, or the population"
            )
    if not (isfinite(noise_multiplier) and (noise_multiplier > 0 or method is Method.NON_PRIVATE)):
        raise PlanError(f"Expected 0 < noise_multiplier < inf, got noise_multiplier={noise_multiplier!r}")
    plan = Plan(
        population=population,
        batch_size=batch_size,
        epochs=epochs,
        noise_multiplier=noise_multiplier,
        delta=delta,
        relation=relation,
        allocation=allocation,
        sensitivity_fraction=sensitivity_fraction,
        sensitivities=sensitivities,
        sizes=sizes,
        method=method,
        clip_norm=clip_norm,
        follow_weights=follow_weights,
        clipping=clipping,
        freezing=freezing,
        preliminary_steps=before,
    )
    plan.check_noise()
    return plan


def check_plan(plan: Plan, model: nn.Module, loss: Loss, population: int, copies: int = 1) -> Network:
    """Return ``model`` if ``plan`` was made for it, for ``loss`` and for ``population`` rows, ``copies`` of each.

    Raises:
        PlanError: naming what differs.
    """
    if population != plan.population:
        raise PlanError(f"Expected the {plan.population} rows that the plan was made for, got {population}")
    sensitivities, sizes = planned_sensitivities(model, loss, plan.method, plan.sensitivity_fraction, plan.clip_norm)
    if sensitivities != dict(plan.sensitivities) or sizes != dict(plan.sizes):
        raise PlanError("Expected the model and loss that the plan was made for; make a new plan for this one")
    check_sensitivities(sensitivities, plan.batch_size)
    plan.check_noise(copies)
    check_clipping(model, plan.clipping, _frozen_names(model, plan.freezing))
    if releases(check_trainable(model, bounded=plan.method.bounded)) != plan.preliminary_steps:
        raise PlanError("Expected the private statistics that the plan was made for; make a new plan for this model")
    return check_trainable(model, bounded=plan.method.bounded)


def _frozen_names(model: nn.Module, freezing: Freezing | None) -> frozenset[str]:
    return freezing.resting(model, 1, 1) if freezing is not None and isinstance(model, Network) else frozenset()


def _check_numbers(population: int, batch_size: float, delta: float, fraction: float, large_delta: bool) -> None:
    if not population >= 1:
        raise PlanError(f"Expected population >= 1, got population={population!r}")
    if not 0 < batch_size <= population:
        raise PlanError(f"Expected 0 < batch_size <= {population} (the rows), got batch_size={batch_size!r}")
    if not 0 < delta < 1:
        raise PlanError(f"Expected 0 < delta < 1, got delta={delta!r}")
    if not (delta < 1 / population or large_delta):
        raise PlanError(
            f"Expected delta < 1/N = {1 / population:.2g} for N = {population} rows, got delta={delta!r}: a larger one "
            f"permits publishing a row outright; lower it or set accept_large_delta"
        )
    if not 0 < fraction <= 1:
        raise PlanError(f"Expected 0 < sensitivity_fraction <= 1, got sensitivity_fraction={fraction!r}")


def _check_choices(method: Method, choices: Mapping[str, float | None]) -> None:
    given = {name: value for name, value in choices.items() if value is not None}
    if method is Method.NON_PRIVATE and given.get("noise_multiplier") == 0:  # as its plans say themselves
        del given["noise_multiplier"]
    names = " and ".join(given) or "none"
    if method is Method.NON_PRIVATE and list(given) != ["epochs"]:
        raise PlanError(f"Expected epochs and nothing else without privacy, got {names}")
    if method is not Method.NON_PRIVATE and len(given) != 2:
        raise PlanError(f"Expected exactly two of epsilon, noise_multiplier and epochs, each positive, got {names}")
    for name, value in given.items():
        if not 0 < value < float("inf"):
            raise PlanError(f"Expected 0 < {name} < inf, got {name}={value!r}")


def _check_clip_norm(method: Method, clip_norm: float | None) -> None:
    if (clip_norm is not None) != (method is Method.DP_SGD):
        raise PlanError(f"Expected clip_norm with dp-sgd and only there, got {clip_norm!r} for {method.value}")
    if clip_norm is not None and not 0 < clip_norm < float("inf"):
        raise PlanError(f"Expected 0 < clip_norm < inf, got clip_norm={clip_norm!r}")
