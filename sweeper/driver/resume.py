"""The plan of a sweep that resumes: its claim, its budget and how its rows are encoded may not have changed."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from clipless.datasets.features.fingerprint import check_fingerprint
from sweeper.adapters import read
from sweeper.driver.row_digests import check_rows
from sweeper.errors import RecordError
from sweeper.planning.loaded import LoadedSpec
from sweeper.planning.make import steer_plan
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.claims import Claim, Steering
from sweeper.privacy.ledger import Ledger
from sweeper.records import ScorePlan
from sweeper.results.front import read_front
from sweeper.store.input_format import DATA_NAME, read_input
from sweeper.store.jsonl import plain, to_text
from sweeper.store.manifest import MANIFEST_NAME, Manifest
from sweeper.store.sweep_folder import SweepFolder

FACTS = ("data", "population", "unit", "evaluation", "radius_unit", "public")


def resume_plan(folder: SweepFolder, loaded: LoadedSpec) -> SweepPlan:
    """Return the plan of a sweep that resumes: its budget is the recorded one, and no condition of its start is lost.

    Raises:
        RecordError: other data, the same described otherwise or on other sides, a lost budget, or a file that cannot be
            read.
        SpecError, clipless.errors.CliplessError: its data cannot be used, its encoder is another one, or nothing can be
            planned.
    """
    recorded, ledger = recorded_claim(folder), Ledger(folder.ledger)
    plan = loaded.plan(spending=ledger.budget, score_noise=_score_noise(folder, ledger))
    if recorded is not None:
        _check_claim(folder, recorded, plan.claim)
        plan = replace(plan, claim=plan.claim.resumed_from(recorded))
    elif plan.search.warm_start is not None:
        plan = steer_plan(plan, Steering.by_sweep(Path(plan.search.warm_start)))
    _check_input(folder, plan)
    check_rows(folder.path, loaded.data)
    return plan


def _score_noise(folder: SweepFolder, ledger: Ledger) -> tuple[float, float] | None:
    """Return the noise of scores that a sweep began with; earlier versions recorded it with budgets and trials."""
    noise = folder.read_manifest(secret=True).course.score_noise
    if noise is not None:
        return noise
    pools = None if ledger.budget is None else ledger.budget.score_pools
    if pools is not None:
        return pools[0].event.noise_multiplier, pools[1].event.noise_multiplier
    plans = (trial.plan.scores for trial in folder.trials().values() if trial.plan is not None)
    return next((_planned_noise(scores) for scores in plans if scores is not None), None)


def _planned_noise(scores: ScorePlan) -> tuple[float, float]:
    """Return the noise multipliers of scores of validation and of test rows that a trial planned."""
    counts = {split: scores.std[split] * rows for split, rows in scores.rows.items()}
    return scores.noise_multiplier, scores.noise_multiplier * counts["test"] / counts["validation"]


def check_unchanged(folder: SweepFolder, manifest: Manifest) -> None:
    """Refuse a sweep that another process has driven since its manifest was read: what that noted would be lost.

    It is to be called by whoever has the lock of a driver, for loading data may take hours.

    Raises:
        RecordError: it has, or the manifest cannot be read.
    """
    if folder.read_manifest(secret=True) != manifest:
        raise RecordError(
            f"Expected {folder.path} as it was before its data were loaded, but another process has driven it "
            "meanwhile; resume it again"
        )


def recorded_claim(folder: SweepFolder) -> Claim | None:
    """Return the claim that a sweep was started with, or that of its front; ``None`` where neither says.

    Raises:
        RecordError: a file that cannot be read.
    """
    content = folder.read_manifest(secret=True).claim  # public: it says nothing of a candidate
    if content is None:
        return read_front(folder.front).claim if folder.front.is_file() else None
    return read(Claim, content, f"in {folder.path / MANIFEST_NAME}", "restore the file", under="claim")


def _check_claim(folder: SweepFolder, recorded: Claim, now: Claim) -> None:
    for fact in FACTS:
        if getattr(recorded, fact) != getattr(now, fact):
            raise _changed(folder, fact, getattr(recorded, fact), getattr(now, fact))


def _check_input(folder: SweepFolder, plan: SweepPlan) -> None:
    if plan.input is None or not (folder.path / DATA_NAME).is_file():
        return
    recorded, planned = read_input(folder.path), plan.input
    if recorded.features is not None and planned.features is not None:
        check_fingerprint(recorded.features, planned.features)
        # its digest says which encoder it is: its file may lie elsewhere now, and features may round otherwise
        now = planned.features
        same = replace(recorded.features, file=now.file, fingerprint=now.fingerprint)
        recorded = replace(recorded, features=same)
    before, found = (plain(form.to_json()) for form in (recorded, planned))
    if to_text(before) != to_text(found):  # the order of columns counts
        raise _changed(folder, DATA_NAME, before, found)


def _changed(folder: SweepFolder, name: str, before: Any, found: Any) -> RecordError:
    while isinstance(before, Mapping) and isinstance(found, Mapping) and list(before) == list(found):
        key = next(key for key in before if to_text(before[key]) != to_text(found[key]))
        name, before, found = f"{name}: {key}", before[key], found[key]
    if isinstance(before, Mapping) and isinstance(found, Mapping):
        before, found = list(before), list(found)
    elif isinstance(before, list | tuple) and isinstance(found, list | tuple) and set(before) != set(found):
        before, found = [one for one in before if one not in found], [one for one in found if one not in before]
    return RecordError(
        f"Expected the data that {folder.path} was begun with, got others: {name} was {before!r} and is {found!r}; "
        "restore the data and what is declared of them, or start another sweep"
    )
