"""Auditing a sweep: the trials of its front, and its price; what is found is kept beside it."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import torch

from clipless.audits.audited_training import Effort
from clipless.audits.finding import ACCUSATION, Finding, judge
from sweeper.audits.prices import audit_price
from sweeper.audits.trials import audit_trial
from sweeper.errors import PickError, RecordError, SweeperError, public_sentence
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.sketch_file import read_sketch
from sweeper.records import Point, Trial
from sweeper.results.exporters import exporter
from sweeper.results.front import Front, read_front
from sweeper.results.sweep import load
from sweeper.store.evidence import WHOLE_SWEEP, Evidence, append_evidence
from sweeper.store.jsonl import replace_file
from sweeper.store.lock import is_driven
from sweeper.store.sweep_folder import SweepFolder

Told = Callable[[str], None]
UNASKED = 1e-6
"""The chance with which a correct sweep may be accused by audits that nobody asked for: each sweep ends with them."""


def audit_sweep(
    directory: str | Path,
    point: str | None = None,
    *,
    effort: Effort = Effort.CHEAP,
    price: bool = True,
    tell: Told = lambda _: None,
) -> tuple[Evidence, ...]:
    """Audit the trials of a sweep's front, or one of them, and the price of the sweep; keep what is found.

    No private row is read: steps are attacked on made-up rows with the weights that were kept, and the price by
    simulation. Nothing is spent.

    Args:
        directory: of the sweep, running or ended.
        point: a trial, ``t0007``, or one of its points, ``t0007-12``; every trial of the front by default.
        effort: how much the audits of trials may cost.
        price: attack the price of the sweep too.
        tell: is told what cannot be audited, a sentence each.

    Returns:
        What was found, as it is in the evidence now.

    Raises:
        PickError: no such point with a model.
        RecordError: the sweep cannot be read, or the evidence not be written.

    Guarantees:
        Where all claims are true, any of them is contradicted with a chance of at most 5 % for each call.
    """
    sweep = load(directory)
    front, trials = sweep.front(), sweep.folder.trials()
    chosen = _choose(front, point)
    found = dict(_findings_of_trials(sweep.folder, trials, chosen, effort, tell))
    whole = _findings_of_price(sweep.folder, front, trials) if price else ()
    rows = judge_together(found | ({WHOLE_SWEEP: whole} if whole else {}))
    append_evidence(sweep.folder.path, rows)
    return rows


def audit_front(
    folder: SweepFolder,
    trials: Mapping[str, Trial],
    points: Iterable[Point],
    effort: Effort,
    *,
    is_over: Callable[[], bool],
    tell: Told,
) -> tuple[Evidence, ...]:
    """Audit the trials of the points of a front; ``is_over`` is asked before each trial. What is found is not kept yet.

    Of trials of one form the first is audited cheaply and the others briefly: small trials would take no longer.

    Guarantees:
        Where all claims are true, any of them is contradicted with a chance of at most one in a million.
    """
    chosen = one_of_each_trial(points)
    found = _findings_of_trials(folder, trials, chosen, effort, tell, is_over, forms=set())
    return judge_together(dict(found), UNASKED)


def one_of_each_trial(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return the last point of each trial whose model was kept; iterates count before what was made of them."""
    kept = [point for point in points if point.model is not None]
    last = {point.trial: point for point in sorted(kept, key=lambda point: (not point.made_from, point.epoch))}
    return tuple(last[trial] for trial in sorted(last))


def judge_together(found: Mapping[str, Sequence[Finding]], level: float = ACCUSATION) -> tuple[Evidence, ...]:
    """Judge findings together, by the trial that they are about, and return them as evidence."""
    about = [trial for trial, findings in found.items() for _ in findings]
    verdicts = judge([finding for findings in found.values() for finding in findings], level)
    now, program = datetime.now(UTC).isoformat(timespec="seconds"), metadata.version("sweeper")
    return tuple(
        Evidence(trial=trial, finding=finding, found=now, program=program)
        for trial, finding in zip(about, verdicts, strict=True)
    )


def contradictions(rows: Iterable[Evidence]) -> tuple[Finding, ...]:
    """Return the findings that contradict a claim."""
    return tuple(row.finding for row in rows if row.finding.contradicted)


def rewrite(directory: str | Path) -> Iterator[str]:
    """Write front, rows and report of an ended sweep anew, without what is refused; yield what could not be written.

    Those of a running sweep are its driver's, which looks at the evidence at its end; whoever reads them before does.
    """
    folder = SweepFolder(directory)
    if is_driven(folder.path):
        return
    front = read_front(folder.front)
    for write in (
        lambda: front.write(folder.front),
        lambda: replace_file(folder.path / "front.csv", front.to_csv()),
        lambda: exporter("front")(folder.path, folder.path / "front.html"),
    ):
        try:
            write()
        except SweeperError as error:
            yield str(error)


def _choose(front: Front, name: str | None) -> tuple[Point, ...]:
    if name is None:
        return one_of_each_trial(front.front_points)
    kept = [point for point in front.points if point.model is not None]
    found = [point for point in kept if point.name == name] or one_of_each_trial(p for p in kept if p.trial == name)
    if not found:
        some = ", ".join(dict.fromkeys(point.name for point in front.front_points)) or "none"
        raise PickError(f"Expected a point with a saved model, got {name!r} (POINT); the front has {some}")
    return tuple(found)


def _findings_of_trials(
    folder: SweepFolder,
    trials: Mapping[str, Trial],
    points: Iterable[Point],
    effort: Effort,
    tell: Told,
    is_over: Callable[[], bool] = lambda: False,
    *,
    forms: set[Hashable] | None = None,
) -> Iterator[tuple[str, tuple[Finding, ...]]]:
    manifest = folder.read_manifest()
    resources, unit = manifest.read_spec().resources, str((manifest.claim or {}).get("unit", "row"))
    stacks, threads = resources.stack != 1, max(1, int(resources.cpus))
    for point in points:
        if is_over():
            return
        try:
            with _threads(threads):
                found = audit_trial(folder, trials[point.trial], point, effort, forms=forms, stacks=stacks, unit=unit)
        except Exception as error:  # a sweep does not fail because its audit does, whatever a plug-in raises
            tell(f"Trial {point.label} was not audited: {public_sentence(error)}")
        else:
            yield point.trial, found


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute as trials do: with their number of threads, of which more only hold each other up in small networks."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _findings_of_price(folder: SweepFolder, front: Front, trials: Mapping[str, Trial]) -> tuple[Finding, ...]:
    delta = next((price.delta for price in front.ledger.values()), None)
    if delta is None or not folder.ledger.is_file():
        raise RecordError(f"Expected the ledger of the sweep in {folder.ledger}, got none; restore it")
    repetitions = folder.read_manifest().read_spec().search.repetitions
    sketch, released = read_sketch(folder.sketch), (tuple(trials.values()), front.points, delta)
    event = None if sketch is None else sketch.event
    found = audit_price(Ledger(folder.ledger), *released, sketch=event, repetitions=repetitions)
    return tuple(replace(one, subject=f"{one.subject} of {front.sweep}") for one in found)
