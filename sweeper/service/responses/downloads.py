"""Files as they are sent: one that is removed meanwhile is unknown, and odd ranges are refused like all else."""

import io
import stat
import tempfile
import zipfile
from base64 import b64encode
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.types import Message, Receive, Scope, Send

from sweeper.errors import RefusalError, UnknownSweepError
from sweeper.papers.files import file_hash
from sweeper.results.sweep import Picked

MEDIA_TYPE = "application/octet-stream"
NO_MODEL = "Expected a point whose model was kept, one of the front; got another one"


class Download(FileResponse):
    """The file of a model, whole or in part, with the SHA-256 of the whole (RFC 9530).

    Raises:
        UnknownSweepError: there is no such file.
    """

    media_type = MEDIA_TYPE

    def __init__(self, path: Path, filename: str) -> None:
        try:
            seen = path.lstat()
        except OSError:
            raise UnknownSweepError(NO_MODEL) from None
        if not stat.S_ISREG(seen.st_mode):
            raise UnknownSweepError(NO_MODEL)
        digest = b64encode(bytes.fromhex(file_hash(path))).decode()
        super().__init__(path, filename=filename, stat_result=seen, headers={"Repr-Digest": f"sha-256=:{digest}:"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; refuse, before anything is sent, what cannot be sent."""
        held: list[Message] = []

        async def pass_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                _check(message)
                held.append(message)  # until the file is open
                return
            while held:
                await send(held.pop())
            await send(message)

        try:
            await super().__call__(scope, receive, pass_on)
        except FileNotFoundError:
            raise UnknownSweepError(NO_MODEL) from None


class Archive(Response):
    """The folder that ``sweeper pick`` writes of a point, as a zip archive."""

    media_type = "application/zip"

    @classmethod
    def of(cls, picked: Picked, filename: str) -> "Archive":
        """Return the archive.

        Raises:
            RecordError: a file that it needs is gone, or the sweep may not be seen.
        """
        made = io.BytesIO()
        with tempfile.TemporaryDirectory() as folder:
            picked.write(Path(folder))
            with zipfile.ZipFile(made, "w") as archive:
                for path in sorted(Path(folder).iterdir()):
                    archive.write(path, path.name)
        return cls(made.getvalue(), headers={"Content-Disposition": f'attachment; filename="{filename}"'})


def _check(start: Message) -> None:
    """Refuse what the answer, which is text, would refuse."""
    if start["status"] >= 400:
        size = Headers(raw=start["headers"]).get("content-range")
        given = {} if size is None else {"Content-Range": size}
        raise RefusalError("Expected a Range of bytes that the model has, such as bytes=0-99", start["status"], given)
