"""A process that has imported what trials need, and forks a worker whenever the driver asks for one.

Importing takes seconds of a processor; a fork takes milliseconds. The command line starts the process before it imports
what the driver itself needs (`start_ahead`). It holds nothing but modules: no row, no key, no generator and no second
thread, so that its workers have nothing in common that is secret. It never uses CUDA, which no process survives a fork
with. It ends with the driver, and its workers with it,
however either ends.
"""

import atexit
import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from struct import Struct
from typing import IO, Final, NoReturn

from sweeper.backend.environment import worker_environment

PATIENCE_SECONDS = 5.0  # for the end of workers that are killed
_COMMAND = Struct("<cq80s")  # what to do, with which worker, on which device
_FORK, _KILL = b"f", b"k"
_HANDLES = 4
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from sweeper.backend.workers.fork_server import serve_forks; serve_forks(int(sys.argv[2]))"
)

_AHEAD: Final[list["ForkServer"]] = []


class ForkServer:
    """The process, as the driver sees it.

    Args:
        threads: of one worker.
    """

    def __init__(self, threads: int) -> None:
        self.threads, self._path, self._listens = threads, list(sys.path), True
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self._commands, there = socket.socketpair()
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(sys.path), str(there.fileno())],
                pass_fds=(there.fileno(),),
                env={**os.environ, **worker_environment(threads)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C is for the driver
            )

    @property
    def is_alive(self) -> bool:
        """Whether it can fork, as far as is known: it hears nothing any more before it has ended."""
        return self._listens and self._process.poll() is None

    def serves(self, threads: int) -> bool:
        """Whether its workers would be those that are wanted now."""
        return self.is_alive and self.threads == threads and self._path == sys.path

    def fork(self, worker: int, handles: Sequence[int], device: str = "") -> None:
        """Fork a worker under a new number, as soon as everything is imported.

        ``handles`` are its connection, the rows, a pipe that ends with the driver, and where its errors go. They close
        if there is no worker in the end. It sees one ``device`` alone, if one is named.
        """
        try:
            socket.send_fds(self._commands, [_COMMAND.pack(_FORK, worker, device.encode())], list(handles))
        except OSError:  # it has died: so does the connection
            self._listens = False

    def kill(self, worker: int) -> None:
        """Kill a worker, or forget one that has died."""
        with contextlib.suppress(OSError):  # it has died, and the worker with it
            self._commands.send(_COMMAND.pack(_KILL, worker, b""))

    def last_error(self) -> str:
        """Return the last line of its errors."""
        return last_line(self._errors)

    def close(self, *, has_workers: bool = True) -> None:
        """End it and its workers; when this returns, none of them does anything more."""
        self._commands.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_SECONDS if has_workers else 0.0)
        self._process.kill()
        self._process.wait()
        self._errors.close()


def start_ahead(threads: int = 1) -> None:
    """Start the process of the first workers now, while the driver imports and reads what it needs."""
    if not _AHEAD:
        _AHEAD.append(ForkServer(threads))
        atexit.register(end_ahead)


def end_ahead() -> None:
    """End the process that was started ahead, if nobody has taken it."""
    while _AHEAD:
        _AHEAD.pop().close(has_workers=False)


def fork_server(threads: int) -> ForkServer:
    """Return the process that was started ahead, or another one."""
    if _AHEAD and _AHEAD[0].serves(threads):
        return _AHEAD.pop()
    end_ahead()
    return ForkServer(threads)


def last_line(file: IO[bytes]) -> str:
    """Return the last line that was written to a file."""
    file.seek(0)
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def serve_forks(commands: int) -> None:
    """Fork workers, and kill them, as the driver says, until its end of a connection closes: what the process runs."""
    gc.disable()  # an eighth of the time that imports take
    import sweeper.backend.trainable
    import sweeper.backend.workers.worker  # noqa: F401

    gc.freeze()  # what is there stays, in memory that all workers share
    gc.enable()
    driver, life, workers = socket.socket(fileno=commands), os.pipe(), dict[int, int]()
    while True:
        command, handles, _, _ = socket.recv_fds(driver, _COMMAND.size, _HANDLES)
        if not command:
            break
        what, worker, device = _COMMAND.unpack(command)
        if what == _FORK:
            with contextlib.suppress(OSError):
                workers[worker] = _fork(driver, life, handles, device.rstrip(b"\0").decode())
        else:
            _end(workers.pop(worker, None))
        for handle in handles:
            os.close(handle)
    for process in workers.values():
        _end(process)


def _fork(driver: socket.socket, life: tuple[int, int], handles: Sequence[int], device: str) -> int:
    try:
        process = os.fork()
    except OSError as error:
        os.write(handles[-1], f"{error}\n".encode())
        raise
    if process == 0:
        driver.close()
        os.close(life[1])
        if device:
            os.environ["CUDA_VISIBLE_DEVICES"] = device  # before anything uses CUDA
        _be_worker(life[0], handles)
    return process


def _be_worker(life: int, handles: Sequence[int]) -> NoReturn:
    """Serve the driver to the end; nothing of the process that forked is gone on with."""
    connection, rows, with_driver, errors = handles
    try:
        os.dup2(errors, 2)
        import numpy as np

        from sweeper.backend.workers.worker import work

        np.random.seed()  # noqa: NPY002  # nothing draws from it, and what would must not be shared
        work(connection, rows, with_driver, life)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _end(process: int | None) -> None:
    """Kill a worker and take note of its death; before that its number is nobody else's."""
    if process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, 0)
