"""What happened to one trial, in words: its configuration, plan, trainings, epochs, decisions and end."""

from collections.abc import Iterator
from pathlib import Path

from sweeper.adapters import dump
from sweeper.privacy.entries import Entry
from sweeper.privacy.ledger import Ledger
from sweeper.records import Point, Trial
from sweeper.results.estimates import estimate_points
from sweeper.rounding import in_brackets, round_up
from sweeper.specification.fields.nested import flatten
from sweeper.store.sweep_folder import DecisionRow, SweepFolder, unknown_trial

_PLAN = ("method", "noise_multiplier", "sampling_rate", "batch_size", "steps_per_epoch", "epochs", "delta", "relation")


def trial_log(folder: Path, trial: str, *, whole: bool = True) -> str:
    """Return the log of a trial, running or ended.

    A ``whole`` one has the texts of errors, which may quote rows: it is for the owner of the data alone.

    Raises:
        RecordError: not the folder of a sweep, or no such trial.
    """
    sweep = SweepFolder(folder)
    manifest = sweep.read_manifest()
    trials = sweep.trials()
    if trial not in trials:
        raise unknown_trial(folder, trial, trials)
    every = estimate_points(sweep.points().values(), trials, manifest.course.stages)
    points = [point for point in every if point.trial == trial]
    decisions = {row["epoch"]: row for row in sweep.decisions() if row["trial"] == trial}
    entries = [entry for entry in Ledger(sweep.ledger).entries() if entry.trial == trial]
    lines = [*_head(trials[trial]), *map(_training, entries)]
    lines += [_epoch(point, None if point.made_from else decisions.get(point.epoch)) for point in points]
    status = trials[trial].status.value
    lines.append(f"{status}: {trials[trial].reason}" if trials[trial].reason else status)
    if not whole:
        return "\n".join(lines)
    lines += [str(row["error"]) for row in sweep.failures() if row["trial"] == trial]
    error = folder / "ray" / trial / "error.txt"
    lines += [error.read_text(encoding="utf-8").rstrip()] if error.is_file() else []
    return "\n".join(lines)


def _head(trial: Trial) -> Iterator[str]:
    yield f"{trial.id}" + (f", run {trial.run_id}" if trial.run_id else "")
    for name, value in flatten(trial.config).items():
        yield f"  {name} = {value}"
    if trial.plan is not None:
        plan = dump(trial.plan)
        yield "plan: " + ", ".join(f"{name} {plan[name]}" for name in _PLAN)


def _training(entry: Entry) -> str:
    steps = "not known how many" if entry.steps is None else str(entry.steps)
    kept = f", from step {entry.kept} on" if entry.kept else ""
    words = f"training {entry.attempt}{kept}: {entry.event.steps} steps planned, {steps} run"
    if not entry.drawn:
        return f"{words}; no noise was drawn"
    if entry.scores is None:
        return words
    scored = "not known how many" if entry.scored is None else str(entry.scored)
    return f"{words}; {entry.scores.event.steps} releases of scores planned, {scored} made"


def _epoch(point: Point, decision: DecisionRow | None) -> str:
    shown = {name: f"{value:.4g}" for name, value in point.values.items()}
    if "epsilon" in shown:
        shown["epsilon"] = round_up(point.values["epsilon"])  # never less than it is
    values = ", ".join(f"{name} {text}{in_brackets(point.interval(name))}" for name, text in shown.items())
    kept = f"; model {point.model}" if point.model else ""
    return f"epoch {point.moment}: {values}{kept}" + (f"; {decision['reason']}" if decision else "")
