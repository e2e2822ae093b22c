"""What must hold of what a fuzzed sweep has left in its folder: trials, points, front, models.

Each check yields a sentence for what does not hold.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import moocore
import numpy as np
from _fuzz_charges import check_budget, check_draws, check_ledger, check_prices
from _fuzz_left import Left, key_of, rows_of, run_checks

import clipless
from clipless.datasets import Split
from clipless.privacy.accounting.claim import claim
from clipless.privacy.events import PoissonGaussian

UNPLANNED = ("PlanError", "SpecError", "AccountingError")  # of a configuration that cannot be trained
UNDEFINED = ("auroc",)  # in the names of scores that have no value where a class has no row
SMALLER_IS_BETTER = ("epsilon", "membership-auroc", "membership-advantage")


def check_records(left: Left) -> Iterator[str]:
    """Yield what is wrong about a sweep's records."""
    checks = (
        check_status,
        check_trials,
        check_points,
        check_ledger,
        check_draws,
        check_prices,
        check_budget,
        check_front,
        check_models,
        check_files,
    )
    yield from run_checks(checks, left)


def check_status(left: Left) -> Iterator[str]:
    """The sweep says how it stands, as its last driver ended."""
    status, last = left.manifest["status"], left.history.outcomes[-1]["kind"]
    drove = [
        outcome["kind"]
        for step, outcome in zip(left.history.steps, left.history.outcomes, strict=True)
        if step["do"] in ("run", "resume", "extend") and outcome["kind"] not in ("refused", "skipped")
    ]
    allowed = {
        "ended": ("completed", "stopped", "interrupted"),
        "interrupted": ("interrupted", "stopped", "completed"),
        "killed": ("running", "completed", "stopped", "interrupted", "failed"),
    }
    if drove and status not in allowed.get(drove[-1], ("failed",)):
        yield f"the sweep is {status} ({left.manifest['reason']}), its last driver was {drove[-1]}, {last}"


def check_trials(left: Left) -> Iterator[str]:
    """Each trial that was charged has its rows, unless somebody ended it."""
    told = {row["trial"]: row["error"] for row in rows_of(left.folder / "failures.jsonl")}
    for name, trial in left.trials.items():
        status, epochs, plan = trial["status"], left.epochs(name), trial["plan"]
        charged = any(one.charged for one in left.account.of(name))
        error = told.get(name) or trial["reason"]
        if status == "failed" and (charged or not error.startswith(UNPLANNED)):
            yield f"{name} failed{' after it was charged' * charged}: {error}"
        if status == "stopped" and not trial["reason"]:
            yield f"{name} was stopped without a reason"
        if status == "running" and left.has_ended:
            yield f"{name} runs in a sweep that has ended"
        if status == "completed" and (plan is None or epochs != list(range(1, plan["epochs"] + 1))):
            yield f"{name} is completed with the epochs {epochs} of {plan and plan['epochs']}"
        if epochs != list(range(1, len(epochs) + 1)):
            yield f"{name} has the epochs {epochs}"
    lost = {one.trial for one in left.account.attempts if one.drawn} - set(left.trials)
    if lost:
        yield f"{sorted(lost)} are in the ledger and no trials"
    if left.has_ended and not left.trials and not left.selects and "hours" not in left.case.spec["search"]:
        yield "no trials"


def check_points(left: Left) -> Iterator[str]:
    """Each point has the epsilon of its epoch, and scores that can be."""
    reported: dict[Any, set[str]] = defaultdict(set)
    for row in rows_of(left.folder / "points.jsonl"):
        reported[key_of(row)].add(json.dumps(row["values"], sort_keys=True))
    yield from (f"{key} has two outcomes" for key, found in reported.items() if len(found) > 1)
    for (name, epoch, made_from), point in left.points.items():
        label, plan = f"{name}-{epoch}{made_from}", left.trials[name]["plan"]
        yield from (f"{label}: {wrong}" for wrong in _odd_scores(left, point))
        event = PoissonGaussian.from_json(plan["event"])
        steps = plan["preliminary_steps"] + epoch * plan["steps_per_epoch"]
        expected = claim(event.with_steps(steps), left.delta).epsilon
        for where, epsilon in (("point", point["values"]["epsilon"]), ("plan", plan["epsilon_curve"][epoch - 1])):
            if float(epsilon) != expected:
                yield f"{label}: the {where} says epsilon {epsilon}, its event costs {expected}"


def _odd_scores(left: Left, point: Mapping[str, Any]) -> Iterator[str]:
    wanted = {*left.objectives, *left.case.spec["search"].get("metrics", [])}
    everywhere = {
        name for name in wanted if not name.startswith(("attacked", "membership", "fuzz")) or name in left.objectives
    }
    missing = everywhere - set(point["values"])
    if missing and is_scored(left, point):
        yield f"no {sorted(missing)}"
    for values in (point["values"], point.get("test") or {}):
        for name, text in values.items():
            value = float(text)
            may_be_undefined = math.isnan(value) and any(part in name for part in UNDEFINED)
            fits = value >= 0 if name == "epsilon" else left.case.evaluation == "private" or 0 <= value <= 1
            if not (fits or may_be_undefined):
                yield f"{name} is {text}"
            if math.isinf(value) and left.trials[point["trial"]]["plan"]["method"] != "non-private":
                yield f"{name} is infinite"
        if left.case.evaluation != "private":
            above = [
                n for n in values if n.startswith("certified@") and not float(values[n]) <= float(values["accuracy"])
            ]
            yield from (f"{name} is above accuracy" for name in above)


def is_scored(left: Left, point: Mapping[str, Any]) -> bool:
    """Whether the plan of its trial says that the scores of its epoch are released, as all are that are not noisy."""
    scores = left.trials[point["trial"]]["plan"].get("scores")
    return scores is None or point["epoch"] in scores["epochs"]


def is_final(point: Mapping[str, Any]) -> bool:
    """Whether noisy scores judge it among finals."""
    return bool((point.get("noisy") or {}).get("is_final"))


def released_of(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return its values as they were released, where these shown are estimates."""
    return {**point["values"], **(point.get("noisy") or {"released": {}})["released"]}


def check_front(left: Left) -> Iterator[str]:
    """The front is that of all points, by moocore."""
    kept = {key_of(point): point for point in left.front["points"]}
    expected = {key for key, point in left.points.items() if is_scored(left, point)}
    if set(kept) != expected and (left.has_ended or not left.history.was_killed):
        yield f"front.json has the points {sorted(set(kept) ^ expected)} too much or not"
    for name, trial in left.front["trials"].items():
        shown, recorded = ({key: one[key] for key in ("config", "status")} for one in (trial, left.trials[name]))
        if shown != recorded and left.has_ended:
            yield f"{name} is {shown} in front.json, recorded is {recorded}"
    if left.front["refused"]:
        yield f"audits refuse {left.front['refused']}"
        return
    signs = [1.0 if name in SMALLER_IS_BETTER else -1.0 for name in left.objectives]
    rows = [
        [sign * float(one["values"][name]) for sign, name in zip(signs, left.objectives, strict=True)]
        for one in kept.values()
    ]
    matrix = np.asarray(rows, dtype=float).reshape(len(rows), len(signs))
    defined = ~np.isnan(matrix).any(axis=1)
    matrix = np.where(np.isposinf(matrix), 1e30, matrix)
    best = np.zeros(len(rows), dtype=bool)
    if defined.any():
        best[defined] = moocore.is_nondominated(matrix[defined], keep_weakly=True)
    finals = np.array([is_final(one) for one in kept.values()], dtype=bool)
    if finals.any():
        best[finals] = moocore.is_nondominated(matrix[finals], keep_weakly=True)
    marked = [bool(one["on_front"]) for one in kept.values()]
    wrong = [key for key, is_best, is_marked in zip(kept, best, marked, strict=True) if is_best != is_marked]
    if wrong:
        yield f"{wrong} are wrongly on the front or not"
    for key, point in kept.items():
        if key in left.points and released_of(point) != left.points[key]["values"]:
            yield f"{key} has other values in front.json than in points.jsonl"
        for name, (low, high) in (point.get("noisy") or {"intervals": {}})["intervals"].items():
            if not 0 <= low < point["values"][name] < high <= 1:
                yield f"{key} has {name} {point['values'][name]} in the interval from {low} to {high}"


def check_models(left: Left) -> Iterator[str]:
    """Every point of the front has a model, which loads and reaches again what was recorded."""
    if not left.has_ended:
        return
    front = [point for point in left.front["points"] if point["on_front"]]
    finals = {point["model"] for point in left.front["points"] if is_final(point)}
    kept = {point["model"] for point in front} | finals
    files = {f"models/{file.name}" for file in (left.folder / "models").iterdir()}
    if None in kept or not kept <= files:
        yield f"no model of {[key_of(one) for one in front if one['model'] not in files]}"
    every = {point["model"] for point in left.front["points"]} - {None}
    if not files <= every or (files - kept and not left.selects):
        yield f"models of no point: {sorted(files - (every if left.selects else kept))}"
    for point in front:
        if point["model"] in files:
            yield from _repeats(left, point)
        tested = point["test"] is not None
        if not (tested or left.case.evaluation == "private" or left.history.was_disturbed):
            yield f"{key_of(point)} has no test scores"


def _repeats(left: Left, point: Mapping[str, Any]) -> Iterator[str]:
    model = clipless.load(left.folder / point["model"])
    if left.case.evaluation == "private":
        return
    recorded = point["values"]
    if point["repeats"]:
        recorded = {name: outcomes[0] for name, outcomes in point["repeats"].items()}
    yield from _compared(left, point, left.data.validation, model, recorded)
    if point["test"] is not None and not point["repeats"]:
        yield from _compared(left, point, left.data.test, model, point["test"])


def _compared(
    left: Left, point: Mapping[str, Any], split: Split, model: Any, recorded: Mapping[str, Any]
) -> Iterator[str]:
    radii = [name.partition("@")[2] for name in recorded if name.startswith("certified@")]
    found = clipless.evaluate(model, split, radii, left.data.metadata.input_gain)
    for name, value in found.items():
        if name in recorded and not (float(recorded[name]) == value or (math.isnan(value) and recorded[name] == "NaN")):
            yield f"{key_of(point)}: {name} was {recorded[name]}, the saved model reaches {value}"


def check_files(left: Left) -> Iterator[str]:
    """Nothing is left that was not finished."""
    parent = left.folder.parent
    if not left.history.was_killed:
        odd = [str(one.relative_to(parent)) for pattern in ("*.tmp", "*.partial") for one in parent.rglob(pattern)]
        yield from (f"{name} was not finished" for name in odd)
    hidden = [one.name for one in parent.glob(".selecting-*")]
    if left.has_ended and hidden:
        yield f"{hidden} are left of a private selection"
    states = list((left.folder / "checkpoints").glob("*")) if (left.folder / "checkpoints").is_dir() else []
    ended = (
        left.manifest["status"] == "completed" and not left.history.was_killed
    )  # what kills leave, `sweeper gc` finds
    if states and ended:
        yield f"{[one.name for one in states]} are states of trials that have ended"
    for file in (*left.folder.glob("*.json"), *left.folder.glob("*.jsonl")):
        for match in [text for text in ("NaN,", "NaN}", ": Infinity", ": -Infinity") if text in file.read_text()]:
            yield f"{file.name} holds {match}"
