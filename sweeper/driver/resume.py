"""What a sweep was started with, its claim and how its rows are encoded: nothing later may change either."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from clipless.datasets import Dataset
from sweeper.errors import RecordError
from sweeper.privacy.baselines import Baselines
from sweeper.privacy.claims import Claim, Steering
from sweeper.privacy.evaluation.score_noise import ScoreNoise
from sweeper.results.front import read_front
from sweeper.specification.objectives import reads_training_rows
from sweeper.specification.search import NO_SCHEDULER
from sweeper.specification.spec import Spec
from sweeper.store.input_format import DATA_NAME, describe, read_input
from sweeper.store.jsonl import plain, to_text
from sweeper.store.manifest import MANIFEST_NAME
from sweeper.store.sweep_folder import SweepFolder

FACTS = ("data", "population", "unit", "evaluation", "radius_unit", "public")
_CLAIM = TypeAdapter(Claim)


def claimed(spec: Spec, data: Dataset, steering: Steering | None = None) -> Claim:
    """Return what a sweep claims."""
    return Claim.about(
        data.metadata,
        len(data.train),
        delta=spec.privacy.delta,
        reads_training_rows=reads_training_rows(spec.search.metrics),
        ends_trials_early=spec.search.scheduler != NO_SCHEDULER,
        has_budget=spec.privacy.sweep_epsilon is not None,
        selects_privately=spec.search.repetitions is not None,
        rehearses=spec.rehearsals > 0,
        steering=steering,
        noise=ScoreNoise.of(spec, data),
        baselines=Baselines.of(data, spec.search.without_privacy),
    )


def claim_at_start(folder: SweepFolder, spec: Spec, data: Dataset, data_dir: Path | None) -> Claim:
    """Return the claim of a sweep that resumes: no mark and no condition of its start is lost.

    Raises:
        RecordError: other data, the same described otherwise, or a file that cannot be read.
        clipless.errors.DataError: the data cannot be found.
    """
    recorded, now = recorded_claim(folder), claimed(spec, data)
    if recorded is not None:
        _check_claim(folder, recorded, now)
    _check_input(folder, spec, data_dir)
    if recorded is not None:
        return now.resumed_from(recorded)
    source = spec.search.warm_start
    return now if source is None else claimed(spec, data, Steering.by_sweep(source))


def recorded_claim(folder: SweepFolder) -> Claim | None:
    """Return the claim that a sweep was started with, or that of its front; ``None`` where neither says.

    Raises:
        RecordError: a file that cannot be read.
    """
    content = folder.read_manifest(secret=True).claim  # public: it says nothing of a candidate
    if content is None:
        return read_front(folder.front).claim if folder.front.is_file() else None
    try:
        return _CLAIM.validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, ("claim", *first["loc"])))
        raise RecordError(f"{first['msg']} ({field} in {folder.path / MANIFEST_NAME}); restore the file") from None


def _check_claim(folder: SweepFolder, recorded: Claim, now: Claim) -> None:
    for fact in FACTS:
        if getattr(recorded, fact) != getattr(now, fact):
            raise _changed(folder, fact, getattr(recorded, fact), getattr(now, fact))


def _check_input(folder: SweepFolder, spec: Spec, data_dir: Path | None) -> None:
    if not (folder.path / DATA_NAME).is_file():
        return
    before, found = (plain(form.to_json()) for form in (read_input(folder.path), describe(spec, data_dir)))
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
