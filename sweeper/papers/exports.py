"""The exports of a card by name: one for each registry or office."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweeper.errors import SweeperError
from sweeper.papers.annexes import edpb_annex, nist_annex
from sweeper.papers.registry_record import registry_record
from sweeper.papers.verification import read_card

EXPORTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "registry": registry_record,
    "nist": nist_annex,
    "edpb": edpb_annex,
}


def export_card(path: Path, name: str) -> str:
    """Return an export of the card of a picked model.

    Args:
        path: a folder that ``sweeper pick`` wrote, or the ``card.json`` in it.
        name: one of `EXPORTS`.

    Raises:
        SweeperError: no such export.
        RecordError: no card, or one that does not keep to its schema.
    """
    if name not in EXPORTS:
        raise SweeperError(f"Expected --as to be one of {', '.join(EXPORTS)}, got {name!r}; choose one of them")
    return EXPORTS[name](read_card(path))
