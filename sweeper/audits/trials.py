"""A trial under attack: its training as it was planned, rebuilt from records and a saved model without any row."""

from collections.abc import Hashable
from dataclasses import replace
from math import isclose

import clipless
from clipless.audits.audit import audit_training
from clipless.audits.audited_training import AuditedTraining, Effort, make_random_rows
from clipless.audits.finding import Finding
from clipless.plans.method import Method
from clipless.plans.plan import Plan
from sweeper.errors import RecordError
from sweeper.records import Point, Trial, TrialPlan
from sweeper.rounding import number_of
from sweeper.specification.trial_config import TrialConfig
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.build import build_loss, build_optimizer, build_plan

_SAME = 1e-6  # of numbers that were written down and are computed again
SEED = 0
UNIT_ROWS = 3  # of a canary, where the privacy unit is a column


def audit_trial(
    folder: SweepFolder,
    trial: Trial,
    point: Point,
    effort: Effort,
    *,
    seed: int = SEED,
    forms: set[Hashable] | None = None,
    stacks: bool = False,
    unit: str = "row",
) -> tuple[Finding, ...]:
    """Attack the training of a point on made-up rows, with the weights that were kept of it.

    Args:
        folder: of the sweep.
        trial: what is audited.
        point: whose model is taken.
        effort: how much the audit may cost.
        seed: of the search.
        forms: of trainings that a cheap audit has found nothing of: what they have in common is not looked at again
            (`Effort.BRIEF`). The form of this one is added.
        stacks: whether the sweep trains trials of one shape as one: the step of one that stacks is attacked there too.
        unit: of privacy; where it is a column, canaries are units of several rows.

    Returns:
        The findings, judged among themselves; nothing of a training without privacy, which claims none.

    Raises:
        RecordError: no model was kept, or the configuration no longer gives the plan that is recorded.
        clipless.errors.CliplessError: the model cannot be read, or not be audited.
    """
    training = audited_training(folder, trial, point, stacks=stacks, unit=unit)
    if training is None:
        return ()
    if forms is None or effort is not Effort.CHEAP:
        return audit_training(training, effort, seed=seed)
    found = audit_training(training, Effort.BRIEF if training.form in forms else effort, seed=seed)
    if not any(one.contradicted for one in found):
        forms.add(training.form)
    return found


def audited_training(
    folder: SweepFolder, trial: Trial, point: Point, *, stacks: bool = False, unit: str = "row"
) -> AuditedTraining | None:
    """Return what is attacked of a point, ``None`` of a training without privacy; the errors of `audit_trial`."""
    if trial.plan is None or trial.plan.method == Method.NON_PRIVATE.value:
        return None
    if point.model is None:
        raise RecordError(f"Expected the saved model of trial {point.label}, which was not kept; audit another point")
    recorded, config = trial.plan, _with_noise(TrialConfig.from_json(trial.config), trial.plan)
    loss, model = build_loss(config), clipless.load(folder.path / point.model)
    plan = build_plan(config, model, loss, recorded.population)
    _check_same_plan(plan, recorded, trial.id)
    logits = model.output_shape()[0]
    training = config.training
    found = AuditedTraining(
        subject=f"trial {trial.id}, the whole training ({number_of(recorded.epochs, 'epoch')})",
        model=model,
        loss=loss,
        plan=plan,
        rows=make_random_rows(model, max(logits, 2)),
        optimizer=build_optimizer(config),
        micro_batch_size=training.micro_batch_size,
        ghost_clipping=bool(training.ghost_clipping),
        exact_norms=bool(training.exact_norms),
        unit_rows=1 if unit == "row" else UNIT_ROWS,
    )
    return replace(found, stacked=stacks and recorded.repeats == 1 and found.stacks)


def _with_noise(config: TrialConfig, recorded: TrialPlan) -> TrialConfig:
    """Return a configuration with the noise and the length that it was trained with."""
    privacy = config.privacy.model_copy(update={"epsilon": None, "noise_multiplier": recorded.noise_multiplier})
    training = config.training.model_copy(update={"epochs": recorded.epochs})
    return config.model_copy(update={"privacy": privacy, "training": training})


def _check_same_plan(plan: Plan, recorded: TrialPlan, trial: str) -> None:
    """Refuse to audit another training than the recorded one: the sensitivities were those of another program."""
    same = recorded.sensitivities.keys() == plan.sensitivities.keys() and all(
        isclose(recorded.sensitivities[name], delta, rel_tol=_SAME) for name, delta in plan.sensitivities.items()
    )
    if not (same and replace(plan.event(), noise_multiplier=recorded.event.noise_multiplier) == recorded.event):
        raise RecordError(
            f"Expected the plan that trial {trial} was trained with, got another from its configuration: the program "
            "has changed since; use that of the sweep"
        )
