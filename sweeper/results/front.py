"""The result of a sweep: every point, which are on the front, what that costs, and on which conditions.

``front.json`` is read by other tools: its schema has a version, and another version is refused rather than
guessed. Its prices are those of the first ``ledger_entries`` rows of the ledger; `read_front` returns those of
the ledger as it is now, which is ahead of the front while trials run, and after a kill for good.

The gate is here: points of a trial of which an audit contradicts a claim are on no front. What refuses them is both in
``front.json`` and in the evidence beside it (`sweeper.store.evidence`); either is enough.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import compress
from pathlib import Path
from typing import Any

from sweeper.adapters import read
from sweeper.calls import called_by_users
from sweeper.errors import RecordError
from sweeper.pareto.dominance import Box, front_mask, hypervolume
from sweeper.privacy.claims import Claim
from sweeper.privacy.pricing import Price
from sweeper.program import program
from sweeper.records import ERROR_RULES, Objective, Point, Trial
from sweeper.results.display import front_in_html, front_in_latex, front_in_words
from sweeper.results.exporters import Paper, draw
from sweeper.results.front_record import SCHEMA_VERSION, FrontRecord, FrontTrial
from sweeper.store.evidence import read_refusals, refusal
from sweeper.store.jsonl import read_object
from sweeper.store.manifest import MANIFEST_NAME
from sweeper.store.older_scores import restate
from sweeper.store.sweep_folder import SweepFolder, check_may_be_seen


@dataclass(frozen=True, kw_only=True, repr=False)
class Front(FrontRecord):
    """The result of a sweep: its record, with figures and what a notebook or a terminal shows."""

    def __repr__(self) -> str:
        """Return what a terminal shows."""
        return front_in_words(self)

    @called_by_users()
    def plot(
        self,
        figure: str = "front",
        *,
        preset: str | None = None,
        width: float | None = None,
        font: float | None = None,
        title: bool = True,
        caption: bool = False,
    ) -> Any:
        """Return a figure of the front, by its name in `sweeper.results.exporters.figure_names`.

        Args:
            figure: its name.
            preset: ``column`` or ``page``, the size of a picture for a paper.
            width: of such a picture, in millimetres.
            font: of its text, in points.
            title: whether it has a title.
            caption: whether title and small print are left to the ``caption`` of what is returned.

        Returns:
            A ``plotly.graph_objects.Figure``.

        Raises:
            UnknownFigureError: there is no such figure.
            ExportError: an unknown preset, a size that no picture has, or a figure that fits no paper.
            SweeperError: nothing that draws is installed.
        """
        return draw(self, figure, Paper.of(preset, width, font, title=title, caption=caption))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return front_in_html(self)

    def to_latex(self) -> str:
        """Return the points that a notebook shows as a table of LaTeX, whose caption has what they cost."""
        return front_in_latex(self)


def build_front(
    *,
    sweep: str,
    objectives: Iterable[Objective],
    trials: Iterable[Trial],
    points: Iterable[Point],
    ledger: Mapping[str, Price],
    claim: Claim,
    ledger_entries: int | None = None,
    stages: Iterable[int] = (),
    refused: Mapping[str, str] | None = None,
    silent: Collection[str] = (),
) -> Front:
    """Find the front among the points that are not ``refused``, and join what a reader must know.

    ``silent`` are the trials that have drawn no noise.
    """
    objectives = tuple(objectives)
    whole = Front(
        sweep=sweep,
        objectives=objectives,
        trials={trial.id: FrontTrial.of(trial, begun=trial.id not in silent) for trial in trials},
        points=tuple(points),
        on_front=frozenset(),
        hypervolume=0.0,
        box=Box.default(objectives),
        ledger=claim.qualify(ledger),
        claim=claim,
        ledger_entries=ledger_entries,
        stages=tuple(stages),
        refused=dict(refused or {}),
    )
    return apply_gate(whole)


def apply_gate(front: Front) -> Front:
    """Return a front with the points on it computed anew, and its trials with what refuses them.

    Guarantees:
        No point of a trial that an audit refuses is on it, nor in its hypervolume.
    """
    admitted = [point for point in front.points if refusal(front.refused, point.trial) is None]
    mask = front_mask(admitted, front.objectives)
    return replace(
        front,
        trials={id_: trial.refused(refusal(front.refused, id_)) for id_, trial in front.trials.items()},
        on_front=frozenset(point.key for point in compress(admitted, mask)),
        hypervolume=hypervolume(admitted, front.objectives, front.box),
    )


def read_front(path: str | Path, *, whole: bool = True) -> Front:
    """Read ``front.json``, with the prices of the ledger beside it as it is now.

    Without ``whole`` it has the points of the front alone, which are read much faster than all.

    Raises:
        RecordError: missing, broken, or of another schema version; a ledger of another length is broken; or it is of a
            private selection that has not ended.
    """
    folder = Path(path).parent
    check_may_be_seen(folder)
    if not Path(path).exists() and (folder / MANIFEST_NAME).is_file():
        raise RecordError(f"Expected {path}, which is missing: {program()} resume {folder} writes it from the records")
    front = parse_front(read_object(Path(path)), str(path), whole=whole)
    return up_to_date(still_admitted(front, folder), Path(path).with_name("ledger.jsonl"))


def later_points(folder: SweepFolder, front: Front) -> tuple[Point, ...]:
    """Return the points of a sweep that were recorded after its front was written: after a kill, until it resumes.

    Raises:
        RecordError: trials or points cannot be read.
    """
    from sweeper.results.estimates import show_points  # imports SciPy, which few who read a front need

    known, trials = {point.key for point in front.points}, folder.trials()
    found = show_points(folder.points().values(), trials, front.stages)
    return tuple(point for point in found if point.key not in known and point.trial in trials)


def parse_front(content: Mapping[str, Any], path: str, *, whole: bool = True) -> Front:
    """Return the content of a ``front.json`` as a front; ``path`` names it in messages, ``whole`` is as above.

    One that has narrower intervals than this version states is computed anew with these.

    Raises:
        RecordError: broken, or of another schema version.
    """
    version = content.get("schema_version")
    if version != SCHEMA_VERSION:
        remedy = "read it with the version of sweeper that wrote it, or run the sweep again"
        raise RecordError(f"Expected schema_version {SCHEMA_VERSION} in {path}, got {version!r}; {remedy}")
    try:
        known = dict(content) | {
            "hypervolume": content["hypervolume"]["value"],
            "box": content["hypervolume"],
            "on_front": (),
        }
        if not whole:
            known["of_points"] = len(content["points"])
            known["points"] = [point for point in content["points"] if point["on_front"]]
        marks = [point["on_front"] for point in known["points"]]
    except (KeyError, TypeError) as error:
        raise RecordError(f"Expected a front in {path}, but {error!r}; write the front again") from None
    where, remedy = f"in {path}", "write the front again"
    front, marks = read(Front, known, where, remedy), read(list[bool], marks, where, remedy)
    unknown = sorted({point.trial for point in front.points} - set(front.trials))
    if unknown:
        raise RecordError(f"Expected every trial of a point among the trials of {path}, got {unknown[0]!r}")
    points = tuple(map(restate, front.points))
    if points == front.points:
        return replace(front, on_front=frozenset(point.key for point in compress(front.points, marks)))
    if whole:
        return apply_gate(replace(front, points=points))
    found = parse_front(content, path)
    of_front = tuple(point for point in found.points if point.key in found.on_front)
    return replace(found, points=of_front, of_points=len(found.points))


def says_older(content: Mapping[str, Any]) -> bool:
    """Whether the content of a ``front.json`` may say what this version says otherwise: it has to be parsed."""
    try:
        noisy = [point for point in content["points"] if "errors" in point or "test_errors" in point]
        errors = any(point.get("error_rules") != ERROR_RULES for point in noisy)
        return errors or bool(content["claim"].get("steered"))
    except (KeyError, TypeError, AttributeError):
        return True


def refusals_before(folder: SweepFolder) -> dict[str, str]:
    """Return why audits refuse points of a sweep: by the evidence, or by its front where evidence was lost.

    Raises:
        RecordError: the evidence is broken.
    """
    written: Any = None
    with contextlib.suppress(RecordError):  # a front that is gone or broken will be written again
        written = read_object(folder.front).get("refused")
    reasons = written if isinstance(written, Mapping) else {}
    return {str(trial): str(why) for trial, why in reasons.items()} | read_refusals(folder.path)


def still_admitted(front: Front, folder: Path) -> Front:
    """Return a front without what audits refuse by now; what refused points when it was written still does.

    Raises:
        RecordError: the evidence in the folder is broken.
    """
    known = {**read_refusals(folder), **front.refused}
    stale = any(refusal(known, trial) is not None for trial, *_ in front.on_front)
    return apply_gate(replace(front, refused=known)) if stale or known != front.refused else front


def up_to_date(front: Front, ledger: Path) -> Front:
    """Return a front with the prices of its ledger as it is now.

    Raises:
        RecordError: a ledger that is ahead of the front is broken.
    """
    delta = next((answer.delta for answer in front.ledger.values()), None)
    newer = None if delta is None else newer_prices(ledger, front.ledger_entries, delta)
    return front if newer is None else replace(front, ledger=front.claim.qualify(newer))


def newer_prices(ledger: Path, rows: int | None, delta: float) -> Mapping[str, Price] | None:
    """Return the prices of a ledger as it is now, ``None`` if it is as far as a front says.

    ``rows`` of the ledger are those that the front prices. A file that is gone has nothing newer.

    Raises:
        RecordError: it is ahead, and broken; or it has lost rows, so that the price is not known.
    """
    try:
        status, found = ledger.stat(), ledger.read_bytes().count(b"\n")
    except OSError:
        return None
    if found == rows:
        return None
    if rows is not None and found < rows:
        raise RecordError(f"Expected at least {rows} rows in {ledger}, which the front prices, got {found}; restore it")
    return _prices(ledger, (status.st_mtime_ns, status.st_size, status.st_ino), delta)


@lru_cache(maxsize=32)
def _prices(ledger: Path, _version: tuple[int, ...], delta: float) -> Mapping[str, Price]:
    from sweeper.privacy.ledger import Ledger  # its accounting takes seconds to import, and few fronts are behind

    return Ledger(ledger).answers(delta)
