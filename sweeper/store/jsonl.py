"""Files that survive a crash: append-only JSON rows, and whole files replaced at once.

A row is one line. A crash can tear only the last line, which is then cut; any other broken line is named and
nothing is guessed. JSON has no infinity and no NaN: they are written as the texts ``"Infinity"``,
``"-Infinity"`` and ``"NaN"``, which ``float`` reads back.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from sweeper.errors import RecordError


def plain(value: Any) -> Any:
    """Return ``value`` with non-finite numbers as texts and tuples as lists."""
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def to_text(value: Any, indent: int | None = None) -> str:
    """Return standard JSON, one line unless indented."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, indent=indent)
    except (TypeError, ValueError):
        return json.dumps(plain(value), allow_nan=False, ensure_ascii=False, indent=indent)


def to_lines(content: Mapping[str, object]) -> str:
    """Return an object as standard JSON, a line for each of its items and for each item of these.

    It can be read and compared line by line like an indented one, and is made twenty times faster.
    """
    return "{\n" + ",\n".join(f"{to_text(str(key))}: {_items(value)}" for key, value in content.items()) + "\n}\n"


def _items(value: Any) -> str:
    if isinstance(value, Mapping) and value:
        return "{\n " + ",\n ".join(f"{to_text(str(key))}: {to_text(inner)}" for key, inner in value.items()) + "\n}"
    if isinstance(value, list | tuple) and value:
        return "[\n " + ",\n ".join(map(to_text, value)) + "\n]"
    return to_text(value)


class JsonlFile:
    """One append-only file with one writer; where there may be more, see `append_alone`.

    Args:
        path: of the file; it need not exist.
        durable: rows are on the disk before ``append`` returns, and so is the file itself in its folder.
        patient: rows that cannot be written are kept and tried again with the next ones, instead of raising.
    """

    def __init__(self, path: Path, *, durable: bool = False, patient: bool = False) -> None:
        self.path = path
        self._durable = durable
        self._patient = patient
        self._size: int | None = None
        self._pending: list[bytes] = []
        self.trouble: str | None = None

    @property
    def pending(self) -> int:
        """The number of rows that are not on the disk yet; ``trouble`` says why."""
        return len(self._pending)

    def append(self, *rows: Mapping[str, object]) -> None:
        """Write rows at the end.

        Raises:
            RecordError: they could not be written, and the file is not patient; nothing of them is left in the
                file.
        """
        self._pending += [to_text(row).encode() + b"\n" for row in rows]
        self.flush()

    def flush(self) -> None:
        """Write what is pending."""
        try:
            if self._pending:
                self._write(b"".join(self._pending))
                self._pending.clear()
            self.trouble = None
        except (OSError, RecordError) as error:
            self.trouble = str(error)  # of a file that is broken: nothing is written behind that
            if isinstance(error, OSError):
                self.trouble = f"Cannot write {self.path}: {error.strerror or error}; free space or check permissions"
            if not self._patient:
                self._pending.clear()
                raise RecordError(self.trouble) from error

    def read(self) -> list[dict[str, Any]]:
        """Return every whole row; a file that does not exist has none.

        Raises:
            RecordError: unreadable, or broken elsewhere than in its last line.
        """
        return self._parse()[0]

    def _parse(self) -> tuple[list[dict[str, Any]], int]:
        """Return the rows and the number of bytes they take, without a torn last line."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            raise RecordError(f"Cannot read {self.path}: {error.strerror or error}") from error
        whole = content.rfind(b"\n") + 1
        rows, tail = parse_lines(content[:whole], self.path), content[whole:]
        last = _object(tail)
        return (rows, whole) if last is None else ([*rows, last], len(content))

    def _write(self, lines: bytes) -> None:
        first = self._size is None
        handle = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if first else 0), 0o644)
        try:
            if self._size is None:
                self._size = self._start(handle)
            elif os.fstat(handle).st_size < self._size:
                raise RecordError(
                    f"Expected {self.path} as this process wrote it, got a shorter file: it was put back, or its "
                    "folder was moved; stop the sweep, and resume it"
                )
            os.ftruncate(handle, self._size)
            try:
                _write_at(handle, lines, self._size)
                if self._durable:
                    os.fsync(handle)
                    if first:  # whoever made the file, this process or one that a crash ended
                        _sync_entries(self.path)
            except OSError:
                os.ftruncate(handle, self._size)
                raise
            self._size += len(lines)
        finally:
            os.close(handle)

    def _start(self, handle: int) -> int:
        """Return where the next row goes: behind the whole rows, each with its line end."""
        size = self._parse()[1]
        if size and os.pread(handle, 1, size - 1) != b"\n":
            _write_at(handle, b"\n", size)
            size += 1
        return size


def append_alone(path: Path, row: Mapping[str, object], *, durable: bool = False, mode: int = 0o644) -> None:
    """Write one row at the end of a file that several processes write to, one after another.

    ``durable``: the row is on the disk before this returns. ``mode`` is that of a new file.

    Raises:
        RecordError: it could not be written.
    """
    with alone(path, mode):
        JsonlFile(path, durable=durable).append(row)


@contextlib.contextmanager
def alone(path: Path, mode: int) -> Iterator[None]:
    """Wait until no other process writes the file; the system releases the lock of a killed one.

    The file is made if there is none, with ``mode``.

    Raises:
        RecordError: it cannot be written.
    """
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode), "a")
    except OSError as error:
        raise RecordError(f"Cannot write {path}: {error.strerror or error}; check permissions") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def parse_lines(content: bytes, path: Path, first: int = 1) -> list[dict[str, Any]]:
    """Return the rows of whole lines.

    ``content`` ends with a line end, or is empty; ``path`` and ``first``, the number of its first line, are for errors.

    Raises:
        RecordError: a line that is no row.
    """
    rows = []
    for number, line in enumerate(content.split(b"\n")[:-1], start=first):
        row = _object(line)
        if row is None:
            raise RecordError(
                f"Expected a JSON object on line {number} of {path}, got something else; restore the file"
            )
        rows.append(row)
    return rows


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _sync_entries(path: Path) -> None:
    """Put the entry of a file in its folder onto the disk, and that of the folder, which may be as new as the file.

    Without it a crash of the machine may lose a file whose content is on the disk.
    """
    _sync_folder(path.parent)
    with contextlib.suppress(PermissionError):  # whoever may not read it has not made a folder in it
        _sync_folder(path.parent.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_at(handle: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(handle, data, offset)
        data, offset = data[written:], offset + written


def replace_file(path: Path, text: str, *, owner_only: bool = False) -> None:
    """Replace a whole file at once: a reader sees the old content or the new, never a part.

    ``owner_only`` is whether no other user may read it.

    Raises:
        RecordError: it could not be written; the old file is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch(mode=0o600 if owner_only else 0o666)  # less the umask
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RecordError(f"Cannot write {path}: {error.strerror or error}; free space or check permissions") from error


def read_object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Raises:
        RecordError: missing, unreadable, or something else.
    """
    try:
        content = _object(path.read_bytes())
    except OSError as error:
        raise RecordError(f"Cannot read {path}: {error.strerror or error}; is it the folder of a sweep?") from error
    if content is None:
        raise RecordError(f"Expected a JSON object in {path}, got something else; write it again or restore it")
    return content
