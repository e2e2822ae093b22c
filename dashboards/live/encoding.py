"""Answers as compressed bytes: figures as JSON, drawn in the light theme, which the page repaints; markup as HTML."""

import contextlib
import gzip
import json
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from dashboards.figures import Figure, FigureKind, as_json, is_empty, linear_epsilon
from dashboards.pages._html import Html
from dashboards.pages._page import strip_title
from sweeper.store.jsonl import plain

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resource:
    """One answer, compressed."""

    content: bytes
    media_type: str
    filename: str = ""


def drawn(
    kind: FigureKind[T, Any], data: T, radius: str = "", *, linear: bool, running: bool = False
) -> dict[str, Any] | None:
    """Return a figure as JSON, drawn for a certificate or its own value; None if it is not to be shown."""
    load_pandas()
    return ready(kind, kind.draw(data, certificate=radius), linear=linear, running=running)


def load_pandas() -> None:
    """Wait until pandas is whole: Plotly looks at it as soon as any thread, such as that of importances, imports it."""
    with contextlib.suppress(ImportError):
        import_module("pandas")


def ready(kind: FigureKind[Any, Any], figure: Figure, *, linear: bool, running: bool) -> dict[str, Any] | None:
    """Return a figure as JSON; of an empty one what will appear in it while the sweep runs, and then None."""
    if is_empty(figure) and not (running and kind.awaits):
        return None
    return strip_title(as_json(linear_epsilon(figure) if linear else figure))


def json_resource(value: Any) -> Resource:
    """Return JSON values as they are sent."""
    text = json.dumps(plain(value), allow_nan=False, separators=(",", ":"))
    return Resource(gzip.compress(text.encode(), 4), "application/json")


def html_resource(markup: Html) -> Resource:
    """Return a fragment as it is sent."""
    return Resource(gzip.compress(str(markup).encode(), 4), "text/html; charset=utf-8")
