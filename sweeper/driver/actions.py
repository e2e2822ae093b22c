"""Commands on sweeps that are there, as functions: stop one, enqueue, steer, audit, compare, predict, register."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.calls import called_by_users
from sweeper.errors import RecordError
from sweeper.results import comparison
from sweeper.results.comparison import Comparison, ComparisonError
from sweeper.results.front import Front
from sweeper.results.pick import CONDITIONS
from sweeper.results.sweep import Picked, Sweep, folder_of, load
from sweeper.store import requests
from sweeper.store.lock import is_driven

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from sweeper.results.models.registry import Registered

AnySweep = Sweep | str | Path


@called_by_users()
def stop(sweep: AnySweep, trial: str | None = None) -> None:
    """Stop a running sweep, or one of its trials after the epoch that it is in.

    Raises:
        RecordError: no process drives it, or no such trial runs.
    """
    requests.ask_to_stop(folder_of(sweep), trial)


@called_by_users()
def enqueue(sweep: AnySweep, configuration: Mapping[str, object]) -> dict[str, Any]:
    """Enqueue a configuration as the next trial, now or when the sweep is resumed or extended, which a warning says.

    Args:
        sweep: the sweep, or its folder.
        configuration: open hyperparameters by dotted name; those you omit are sampled.

    Returns:
        The values by name.

    Raises:
        SpecError: not values of this sweep's open hyperparameters.
        RecordError: not the folder of a sweep, or a private selection.
    """
    folder = folder_of(sweep)
    chosen = requests.enqueue(folder, configuration)
    if not is_driven(folder):
        warnings.warn(f"{folder} does not run: the configuration waits for sweeper.resume or extend", stacklevel=3)
    return chosen


@called_by_users()
def steer(sweep: AnySweep, *bounds: str) -> tuple[str, ...]:
    """Steer the search to a region of the front, ``"accuracy >= 0.9"``, ``"epsilon <= 3"``; none: everywhere again.

    A sweep that does not run is steered when it is resumed or extended, which a warning says.

    Raises:
        SpecError: not bounds on this sweep's objectives, or a search that nothing steers.
        RecordError: not the folder of a sweep, or a private selection.
    """
    folder = folder_of(sweep)
    region = requests.steer(folder, bounds)
    if not is_driven(folder):
        warnings.warn(f"{folder} does not run: the search goes there after sweeper.resume or extend", stacklevel=3)
    return tuple(map(str, region))


@called_by_users()
def audit(sweep: AnySweep, point: str | None = None, *, thorough: bool = False, price: bool = True) -> "pd.DataFrame":
    """Attack the privacy claims of a sweep; what is contradicted is refused from its front.

    What cannot be audited is said by a warning, a sentence each.

    Args:
        sweep: the sweep, or its folder.
        point: a trial, ``t0007``, or one of its points, ``t0007-12``; all of the front by default.
        thorough: search longer, and train once with canaries on made-up rows.
        price: attack the price of the sweep too.

    Returns:
        One row per finding: ``what``, ``audit``, ``claim`` and ``attained`` (epsilons at ``delta``), ``confidence``,
        and whether the claim is ``contradicted``.

    Raises: as `sweeper.audits.sweep_audit.audit_sweep`.
    """
    import pandas as pd

    from clipless.audits.audited_training import Effort
    from sweeper.audits.sweep_audit import audit_sweep, contradictions, rewrite

    folder = folder_of(sweep)
    effort = Effort.THOROUGH if thorough else Effort.CHEAP
    found = audit_sweep(folder, point, effort=effort, price=price, tell=lambda said: warnings.warn(said, stacklevel=2))
    if contradictions(found):
        for said in rewrite(folder):
            warnings.warn(said, stacklevel=2)
    return pd.DataFrame.from_records(
        [
            {
                "what": one.subject,
                "audit": one.kind.value,
                "claim": one.epsilon,
                "attained": one.attained,
                "delta": one.delta,
                "confidence": one.confidence,
                "contradicted": one.contradicted,
            }
            for one in (row.finding for row in found)
        ]
    )


@called_by_users()
def compare(
    *sweeps: AnySweep | tuple[str, Front] | Sequence[AnySweep | tuple[str, Front]],
    anyway: bool = False,
    reference: Mapping[str, float] | None = None,
    log_epsilon: bool = True,
) -> Comparison:
    """Compare sweeps: hypervolume and price of each, and the differences between specs with their confidence.

    Args:
        sweeps: two or more, each a sweep, its folder, or a pair of a label and a front; or one list of them.
        anyway: compare sweeps that differ in delta, relation, data or objectives, by the objectives they share.
        reference: worst values that count in the hypervolume, by objective.
        log_epsilon: epsilon is measured in its logarithm.

    Raises:
        ComparisonError: fewer than two sweeps, something that is no sweep, sweeps that are not comparable, or a
            reference that is no value of the box.
        RecordError: one of them has no front, or it cannot be read.
    """
    given = list(sweeps[0]) if len(sweeps) == 1 and isinstance(sweeps[0], list | tuple) else list(sweeps)
    fronts = [_labelled(one) for one in given]
    specs = {str(folder): load(folder).manifest().spec for folder in _folders_of(given)}
    return comparison.compare(fronts, anyway=anyway, reference=reference, log_epsilon=log_epsilon, specs=specs)


@called_by_users(CONDITIONS)
def predict(
    model: Picked | AnySweep,
    data: "str | Path | pd.DataFrame | NDArray[np.generic]",
    *,
    max_epsilon: float | None = None,
    minimum: Mapping[str, float] | None = None,
    max_price: float | None = None,
    data_dir: str | Path | None = None,
    ids: Sequence[str] = (),
    allow_unknown: bool = False,
    smoothed: bool = False,
    draws: int | None = None,
) -> "pd.DataFrame":
    """Predict new rows: class, a score and a probability per class, and a certified radius.

    Probabilities are those of the training loss: nothing has calibrated them. With ``smoothed`` the class is that of
    the vote that ``smoothed@R`` is about, with its own radius; see
    `sweeper.results.models.predict_smoothed.SmoothedPredictor` for the columns and what they guarantee.

    Args:
        model: what `Sweep.pick` returned, the folder that it was written to, a sweep, or the folder of one.
        data: the file of a table, or images as npz, png or jpg; or a frame, or an array of images.
        max_epsilon: of a sweep: largest epsilon, fixed in advance.
        minimum: of a sweep: smallest values by objective.
        max_price: of a sweep: its largest price, an epsilon.
        data_dir: of a sweep: local copies of data sets.
        ids: columns of the table to keep beside the predictions.
        allow_unknown: encode what is not declared as training did, categories as zeros.
        smoothed: predict by the vote under noise, as the model's card says that it was certified.
        draws: of each row with ``smoothed``, in place of those of the card.

    Raises:
        RecordError, PickError, clipless.errors.CliplessError: as `sweeper.results.models.predict.load_predictor`,
            rows that are not as declared, no smoothed certificates on the card, or draws without ``smoothed``.
    """
    import numpy as np
    import pandas as pd

    from sweeper.results.models.predict import load_predictor, predictor_of
    from sweeper.results.models.predict_smoothed import choose_predictor

    where = None if data_dir is None else Path(data_dir)
    if isinstance(model, Picked):
        predictor = predictor_of(model, where)
    else:
        limits = {"max_epsilon": max_epsilon, "max_price": max_price}
        predictor = load_predictor(folder_of(model), **limits, minimum=minimum, data_dir=where)
    form, called = predictor.form, choose_predictor(predictor, smoothed=smoothed, draws=draws)
    if isinstance(data, str | Path):
        return called(form.read(data, allow_unknown=allow_unknown, ids=ids))
    if not isinstance(data, pd.DataFrame):
        return called(form.of_array(np.asarray(data)))
    lacking = next((name for name in ids if name not in data.columns), None)
    if lacking is not None:
        raise RecordError(f"Expected a column {lacking!r} to keep, got none of that name in the frame (ids)")
    kept = data[list(ids)].reset_index(drop=True)
    columns = {str(name): data[name].to_numpy() for name in data.columns if name not in ids}
    return pd.concat([kept, called(form.of_columns(columns, allow_unknown=allow_unknown))], axis=1)


@called_by_users(CONDITIONS)
def register(
    model: Picked | AnySweep,
    name: str,
    *,
    max_epsilon: float | None = None,
    minimum: Mapping[str, float] | None = None,
    max_price: float | None = None,
    tracking: str | None = None,
    data_dir: str | Path | None = None,
) -> "Registered":
    """Register a picked model with MLflow, or the one that would be picked of a sweep.

    Raises:
        PickError: no point meets the conditions.
        SweeperError: nothing to encode rows by, or the store does not take the model.
    """
    from sweeper.results.models.registry import register as register_model

    picked = (
        model if isinstance(model, Picked) else load(folder_of(model)).pick(max_epsilon, minimum, max_price=max_price)
    )
    return register_model(picked, name, tracking=tracking, data_dir=None if data_dir is None else Path(data_dir))


def _folders_of(given: Iterable[object]) -> list[Path]:
    return [folder_of(one) for one in given if isinstance(one, Sweep | str | Path)]


def _labelled(given: object) -> tuple[str, Front]:
    """Return what to call a sweep, and its front."""
    match given:
        case Sweep() | str() | Path():
            folder = folder_of(given)
            return str(folder), load(folder).front()
        case (str() as label, Front() as front):
            return label, front
    raise ComparisonError(
        f"Expected sweeps, their folders, or pairs of a label and a front, got {type(given).__name__}; "
        "for a front alone give a pair, (label, front)"
    )
