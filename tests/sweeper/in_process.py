"""A worker of a sweep in a thread of the tests' own process, which starts at once, and a backend that trains nothing."""

import contextlib
from multiprocessing import Pipe
from threading import Thread
from types import SimpleNamespace

import pytest
import torch

from sweeper.backend.placed_data import PlacedDataset
from sweeper.backend.workers import local
from sweeper.backend.workers.dispatcher import WorkerState
from sweeper.backend.workers.worker import serve


class ThreadWorkers:
    """One worker; see `sweeper.backend.workers.pool.Workers`."""

    size = 1

    def __init__(self, data):
        self._data, self._threads, self.states = PlacedDataset.of(data), [], {}

    def start(self):
        here, there = Pipe()
        self._threads.append(Thread(target=serve, args=(there, self._data), daemon=True))
        self.states[here] = WorkerState()
        self._threads[-1].start()

    def lose(self, connection):
        raise AssertionError(f"{connection} was lost: a worker in a thread does not die")

    def kill(self, connection):
        connection.close()

    def problem(self):
        return None

    def close(self):
        for connection in self.states:
            connection.close()
        for thread in self._threads:
            thread.join(60)


def fake_backend(train):
    """Return what stands for `open_backend` and `open_local_pool`: a backend whose runs are calls of a function."""
    return lambda *_, **__: contextlib.nullcontext(SimpleNamespace(run=train, statements=()))


@contextlib.contextmanager
def _workers(_size, data, _threads, _shares):
    made = ThreadWorkers(data)
    made.start()
    with contextlib.closing(made):
        yield made


@contextlib.contextmanager
def trained_in_process():
    """Sweeps train in this process for the time of a ``with`` block."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "local_workers", _workers)
        yield
    torch.set_num_threads(threads)
