"""Workers of a Ray that die or hang: none of them outlives the trials that were taken from it."""

from types import SimpleNamespace

import pytest

from sweeper.backend.on_ray import actor_pool
from sweeper.backend.workers.dispatcher import WorkerState


class Actor:
    """Stands for a worker that Ray has started."""

    def __init__(self):
        self.serve = SimpleNamespace(remote=lambda *_: "its task")


@pytest.fixture
def workers(monkeypatch):
    """Two of them, both connected, and which were killed."""
    killed = []
    kind = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=Actor))
    util = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
    monkeypatch.setattr(actor_pool, "ray", SimpleNamespace(util=util, remote=lambda _kind: kind, kill=killed.append))
    made = actor_pool.ActorPool(2, {"CPU": 1}, None)
    made.start()
    for number in range(2):
        connection = _Connection(number)
        made._states[connection], made._numbers[connection] = WorkerState(), number
    yield made, killed
    made.close()


class _Connection:
    def __init__(self, number):
        self.number = number

    def close(self):
        pass


def test_a_worker_that_is_given_up_is_killed_before_another_one_takes_its_trials(workers):
    """It may hang only: it would save states into files that belong to the other one by then."""
    made, killed = workers
    lost, stays = made.states
    before = list(made._actors)
    made.lose(lost)
    assert killed == [before[lost.number]]
    assert list(made.states) == [stays]
    assert len(made._actors) == 3
