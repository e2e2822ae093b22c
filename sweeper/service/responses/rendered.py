"""Bytes to send, made once for each state of a sweep and shared by all requests.

The cache is bounded in bytes. Every answer has a tag, so that a client that has it already gets a few bytes.
"""

import gzip
import hashlib
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

from anyio import to_thread
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from sweeper.service.cache import SharedCache
from sweeper.service.catalog import SHOWN_FILES, Catalog, version_of
from sweeper.store.sweep_folder import SweepFolder

Run = Callable[..., Awaitable[Any]]
KEPT_BYTES = 128 * 2**20
ENTRY_BYTES = 2 * 2**10  # that an answer takes beside its content: its key, version, tag and future
_WORTH_PACKING = 1000


@dataclass(frozen=True, slots=True)
class RenderedResponse:
    """What is sent."""

    content: bytes  # the bytes
    packed: bytes | None  # the same, compressed; None where that is not worth it
    tag: str  # tells this content from others
    media_type: str  # of the content

    @classmethod
    def of(cls, content: bytes, media_type: str, *, pack: bool = True) -> "RenderedResponse":
        """Pack and tag bytes."""
        packed = gzip.compress(content, 4, mtime=0) if pack and len(content) > _WORTH_PACKING else None
        return cls(content, packed, f'W/"{hashlib.sha256(content).hexdigest()[:24]}"', media_type)

    @classmethod
    def of_answer(cls, answer: BaseModel) -> "RenderedResponse":
        """Pack and tag an answer as JSON."""
        return cls.of(answer.model_dump_json().encode(), "application/json")

    @property
    def size(self) -> int:
        """Bytes that it takes in the cache."""
        return ENTRY_BYTES + len(self.content) + len(self.packed or b"")

    def to(self, request: Request, **headers: str) -> Response:
        """Return the answer to a request, which may have it already."""
        given = {"ETag": self.tag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding", **headers}
        known = {tag.strip() for tag in request.headers.get("if-none-match", "").split(",")}
        if self.tag in known:
            return Response(None, 304, given)
        if self.packed is not None and _takes_gzip(request.headers.get("accept-encoding", "")):
            return Response(self.packed, 200, {**given, "Content-Encoding": "gzip"}, self.media_type)
        return Response(self.content, 200, given, self.media_type)


class ResponseCache:
    """Answers by sweep, each made in a thread for one state of the sweep's files; for one event loop."""

    def __init__(self, catalog: Catalog, limit: int = KEPT_BYTES) -> None:
        self._catalog = catalog
        self._cache: SharedCache[RenderedResponse] = SharedCache(limit, size=lambda answer: answer.size)

    async def get(
        self,
        name: str,
        what: Hashable,
        make: Callable[[SweepFolder], RenderedResponse],
        files: tuple[str, ...] = SHOWN_FILES,
        more: str = "",
        run: Run = to_thread.run_sync,
    ) -> RenderedResponse:
        """Return what ``make`` makes of a sweep, in a thread, when one of the files has changed.

        ``files`` are those that ``make`` reads, ``more`` is what the answer depends on beside them.

        Raises:
            UnknownSweepError: no sweep of that name; and the errors of ``make``.
        """
        folder = self._catalog.folder(name)
        version = (version_of(folder.path, files), more)
        return await self._cache.get_async((name, what), partial(run, make, folder), version)


def _takes_gzip(text: str) -> bool:
    offers = (offer.strip().replace(" ", "").lower() for offer in text.split(","))
    return any(offer == "gzip" or (offer.startswith("gzip;q=") and offer != "gzip;q=0") for offer in offers)
