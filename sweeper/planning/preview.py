"""What configurations of a sweep would be, without training: plans, sensitivities, epsilons, slots of batches."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite, sqrt

import torch

from clipless.datasets import Dataset
from clipless.errors import CliplessError
from clipless.plans.method import Method
from clipless.plans.plan import Plan
from clipless.privacy.accounting.claim import EpsilonClaim
from clipless.privacy.randomness import SecureSource
from clipless.privacy.sampling import slots_for
from clipless.scalars import to_host
from clipless.training.placing import training_places
from clipless.training.trainer import default_micro_batch
from sweeper.errors import SpecError
from sweeper.planning.configurations import find_all_plannable, plan_configuration
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.pricing import price, signal_of
from sweeper.records import Scalar
from sweeper.rounding import round_up
from sweeper.search.space import sample
from sweeper.specification.fields.ranges import Choices
from sweeper.specification.trial_config import TrialConfig
from sweeper.trials.build import build_augmentation, build_loss, build_model

LEAST_REACH = 10.0  # below it no training beat a constant prediction; measured, see docs/mathematics.md
USUAL_REACH = 100.0  # at which small networks begin to
MOST_EPSILON = 20.0  # that is named as one that would do; of a larger one it is said that it promises hardly anything
SAMPLED = 32  # configurations among which one of each architecture is looked for
_ARCHITECTURE = "model.architecture"
_OWN_NOISE = ("privacy.epsilon", "privacy.noise_multiplier")
_LOOSE = frozenset({"cpl", "shift-net"})  # architectures whose gradients stay far below their bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterPreview:
    """One parameter of a planned training."""

    name: str
    size: int
    sensitivity: float  # largest change of its summed gradient by one example
    noise_std: float  # standard deviation of the noise on each entry of the summed gradient
    # norm of the noise over the largest possible norm of the summed gradient of an expected batch, ``noise_std
    # sqrt(size) / (b sensitivity)``
    noise_to_gradient: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """One configuration as it would be trained; ``claims`` has one entry for each number of epochs.

    ``slots`` are those over which batches are spread, copies of rows left out; None for rows one behind the other.
    ``passed_over`` says why configurations that would have come before it cannot be planned.
    """

    config: TrialConfig
    plan: Plan
    parameters: tuple[ParameterPreview, ...]
    claims: tuple[EpsilonClaim, ...]
    slots: int | None
    passed_over: tuple[str, ...] = ()


def preview(plan: SweepPlan, data: Dataset, configurations: int = 1) -> tuple[Preview, ...]:
    """Plan the first ``configurations`` that the sweep could try: those to be tried first, then random ones.

    Those that cannot be planned are passed over, as trials of them fail without a price.

    Raises:
        SpecError, clipless.errors.CliplessError: the first of the configurations cannot be planned, and no other can.
    """
    found = find_all_plannable(plan.shared, plan.trials, lambda one: _preview(plan, data, one), configurations)
    return tuple(replace(one, passed_over=refusals) for one, refusals in found)


def preview_architectures(plan: SweepPlan, data: Dataset, known: Sequence[Preview]) -> tuple[Preview, ...]:
    """Return one preview for each architecture of the space, by which times differ most.

    It is the first of ``known``, else of the first `SAMPLED` configurations that the sweep could try and can plan. An
    architecture that none of them has is left out.
    """
    found = {one.config.model.architecture: one for one in reversed(known)}
    space = next(one.space for one in plan.shared.space.dimensions if one.name == _ARCHITECTURE)
    missing = {*map(str, space.values)} - {*found} if isinstance(space, Choices) else set()
    for proposal in sample(plan.shared.space, SAMPLED) if missing else ():
        name = str(proposal[_ARCHITECTURE])
        if name in missing:
            with suppress(SpecError, CliplessError):
                found[name] = _preview(plan, data, proposal)
                missing.discard(name)
    return tuple(found.values())


def _preview(sweep: SweepPlan, data: Dataset, proposal: Mapping[str, Scalar]) -> Preview:
    config, plan = plan_configuration(sweep.shared, data, proposal, sweep.spending.first_slot)
    stds = to_host(plan.noise_stds)
    parameters = tuple(
        ParameterPreview(
            name=name,
            size=plan.sizes[name],
            sensitivity=delta,
            noise_std=stds[name],
            noise_to_gradient=stds[name] * sqrt(plan.sizes[name]) / (plan.batch_size * delta),
        )
        for name, delta in to_host(plan.sensitivities).items()
    )
    slots = _count_slots(sweep, data, config, plan)
    return Preview(config=config, plan=plan, parameters=parameters, claims=plan.claims(), slots=slots)


def _count_slots(sweep: SweepPlan, data: Dataset, config: TrialConfig, plan: Plan) -> int | None:
    """Return over how many slots batches are spread, as a trial with its threads would find out on this machine."""
    if plan.method is Method.NON_PRIVATE:
        return None
    if sweep.shared.gpus:
        return slots_for(plan.population, plan.sampling_rate)
    loss, threads = build_loss(config), torch.get_num_threads()
    torch.set_num_threads(sweep.shared.threads)
    try:
        places = training_places(
            build_model(config, data, loss, sweep.shared.space.seed),
            *(loss, data.train, plan, SecureSource()),
            config.training.micro_batch_size or default_micro_batch("cpu"),
            augmentation=build_augmentation(config, data),
            ghost=bool(config.training.ghost_clipping),
            exact=bool(config.training.exact_norms),
        )
    finally:
        torch.set_num_threads(threads)
    return None if places.slots is None else places.slots.count


def find_lack_of_gpus(plan: SweepPlan) -> str:
    """Return why a sweep cannot train on this machine, empty if it can: it asks for a GPU, and there is none."""
    gpus = plan.resources.gpus
    if not gpus or torch.cuda.device_count():
        return ""
    return (
        f"Expected a GPU for resources.gpus: {gpus:g} in {plan.spec.source}, but this machine has none that "
        "torch can use; leave it out, or name a cluster that has one with --cluster"
    )


def find_loose_bounds(plan: SweepPlan) -> str:
    """Return what to search where bounds are far from what gradients reach, and noise follows the bounds; else empty.

    Measured on the digits and on MNIST: see ``sensitivity_fraction`` in ``docs/spec.md``.
    """
    values = {one.name: one.value for one in plan.shared.space.dimensions}
    chosen = values[_ARCHITECTURE]
    loose = sorted(_LOOSE.intersection(chosen.values if isinstance(chosen, Choices) else (chosen,)))
    if not loose or values.get("training.sensitivity_fraction") != 1.0:
        return ""
    return (
        f"Gradients of {' and '.join(loose)} stay far below their bounds, which noise follows: with "
        "training.sensitivity_fraction 1 the noise is several times as large as it has to be; search "
        "sensitivity_fraction: {log: [0.03, 0.3]}"
    )


def find_lack_of_privacy(plan: SweepPlan, previews: Sequence[Preview]) -> str:
    """Return that an epsilon promises hardly anything, empty where none is above `MOST_EPSILON`.

    An attacker whose false alarms have probability f finds at most a share ``exp(epsilon) f + delta`` of the rows,
    which rules out nothing from ``f = exp(-epsilon)`` on.
    """
    budget, own = plan.spending.budget, [one.claims[-1].epsilon for one in previews if one.claims]
    known = [*own, 0.0 if budget is None else budget.epsilon]
    epsilon = max(filter(isfinite, known))  # what has none trains without privacy, which is said
    if epsilon <= MOST_EPSILON:
        return ""
    return (
        f"Epsilon {round_up(epsilon)} promises hardly anything: it rules out no attacker who finds every row with one "
        "false alarm in a hundred million; people use 1 to 10"
    )


def find_lack_of_signal(plan: SweepPlan, previews: Sequence[Preview]) -> str:
    """Return that noise hides all rows together, or nearly, and about which epsilon would do; empty where it does not.

    The reach of a training is ``N q sqrt(T) / sigma``: by so many standard deviations of its noise it moves weights if
    the gradients of all rows are as large as they may be and point the same way. That of the final counts; where
    trials choose their own noise nothing is said.
    """
    slot = plan.spending.final_slot
    if slot is not None:
        events = [slot.with_steps(slot.steps // plan.shared.repeats)]
    else:
        values = {one.name: one.value for one in plan.shared.space.dimensions}
        is_fixed = all(isinstance(values.get(name, 0.0), float | int) for name in _OWN_NOISE)
        events = [one.plan.event() for one in previews if is_fixed and one.plan.method is not Method.NON_PRIVATE]
    best = max(events, key=signal_of, default=None)
    if best is None or (reach := plan.population * signal_of(best)) >= USUAL_REACH:
        return ""
    usual = price([replace(best, noise_multiplier=best.noise_multiplier * reach / USUAL_REACH)], plan.privacy.delta)
    needed = (
        f"here an epsilon of about {round_up(usual.epsilon, 2)}"
        if usual.epsilon <= MOST_EPSILON
        else "here too few rows"
    )
    hidden = "hides all rows together" if reach < LEAST_REACH else "leaves little of the rows"
    return (
        f"The noise {hidden}: if all gradients were as large as allowed and pointed the same way, a training would "
        f"move its weights by {reach:.2g} standard deviations of the noise. Models stay at chance below about "
        f"{LEAST_REACH:g}, and usually need {USUAL_REACH:g}: {needed}"
    )
