"""Sweeps and fronts as notebooks show them."""

from sweeper.errors import RecordError
from sweeper.markup import paragraph, table
from sweeper.results.front_record import FrontRecord
from sweeper.results.highlights import highlights, spread, value_text
from sweeper.store.manifest import Manifest


def front_in_html(front: FrontRecord) -> str:
    """Return a front: its counts, what it costs, and its named points among others."""
    head = f"{front.sweep}: {len(front.on_front)} of {len(front.points)} points, hypervolume {front.hypervolume:.3f}"
    parts = [paragraph(head, strong=True)]
    if front.claim.exploratory:
        parts.append(paragraph("Exploratory: no guarantee.", strong=True))
    named = {one.point.key: one.title for one in highlights(front)}
    always = [point for point in front.front_points if point.key in named]
    shown = spread(front.front_points, always=always)
    names = [one.name for one in front.objectives]
    heads = ["trial", "epoch", *("own epsilon" if name == "epsilon" else name for name in names), ""]
    rows = (
        [point.trial, point.moment, *(value_text(point, n) for n in names), named.get(point.key, "")] for point in shown
    )
    if shown:
        parts.append(table(heads, rows))
    if len(shown) < len(front.on_front):
        parts.append(paragraph(f"{len(shown)} of {len(front.on_front)} are shown; to_dataframe() has all of them."))
    if "everything" in front.ledger:
        parts.append(paragraph(front.ledger["everything"].statement))
    return "".join(parts)


def sweep_in_html(folder: str, manifest: Manifest, front: FrontRecord | RecordError) -> str:
    """Return a sweep: how it stands, where it is, and its front if there is one."""
    status = " ".join(filter(None, [manifest.status.value, manifest.reason]))
    shown = paragraph(str(front)) if isinstance(front, RecordError) else front_in_html(front)
    return paragraph(f"{status}, in {folder}") + shown
