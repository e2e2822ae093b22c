"""Files as they are sent: one that is removed meanwhile is unknown, and odd ranges are refused like all else."""

import stat
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import FileResponse
from starlette.types import Message, Receive, Scope, Send

from sweeper.errors import RefusalError, UnknownSweepError

MEDIA_TYPE = "application/octet-stream"
NO_MODEL = "Expected a point whose model was kept, one of the front; got another one"


class Download(FileResponse):
    """The file of a model, whole or in part.

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
        super().__init__(path, filename=filename, stat_result=seen)

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


def _check(start: Message) -> None:
    """Refuse what the answer, which is text, would refuse."""
    if start["status"] >= 400:
        size = Headers(raw=start["headers"]).get("content-range")
        given = {} if size is None else {"Content-Range": size}
        raise RefusalError("Expected a Range of bytes that the model has, such as bytes=0-99", start["status"], given)
