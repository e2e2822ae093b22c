"""Which executor trains a sweep, and how: the local pool, or a Ray, one trial at a time or in stacks."""

import contextlib
from types import SimpleNamespace

import pytest

from sweeper.backend import opening
from sweeper.backend.on_ray import backend as ray_backend
from sweeper.backend.on_ray.backend import RayBackend
from sweeper.backend.opening import open_backend
from sweeper.backend.workers import local
from sweeper.backend.workers.local import LocalPool, open_local_pool
from sweeper.specification.settings import ResourceSettings

SETTINGS = SimpleNamespace(
    folder=None, hours=None, trial_hours=None, should_stop=None, interruption=None, constants=dict
)


@pytest.fixture
def chosen(monkeypatch):
    """What trains on a Ray with these resources, and what it is told of stacks."""

    def choose(**resources):
        monkeypatch.setattr(ray_backend, "places_for", lambda _resources: 2)
        monkeypatch.setattr(ray_backend, "run_trials", lambda *_, **__: "one at a time")
        monkeypatch.setattr(ray_backend, "run_stacks", lambda *_, stack, places, **__: (stack, places))
        return RayBackend(ResourceSettings(**resources), None, ()).run(object, None, None, SETTINGS)

    return choose


@pytest.mark.parametrize("resources", [{}, {"stack": 1}, {"stack": 1, "gpus": 0.25}])
def test_on_the_processors_of_a_cluster_and_where_the_spec_says_so_trials_train_one_at_a_time(chosen, resources):
    assert chosen(**resources) == "one at a time"


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ({"gpus": 1}, (None, 2)),
        ({"gpus": 0.25, "stack": "auto", "concurrent": 4}, (None, 4)),
        ({"gpus": 1, "stack": 8}, (8, 2)),
        ({"stack": 8}, (8, 2)),
    ],
)
def test_on_gpus_and_where_the_spec_gives_a_number_trials_train_in_stacks(chosen, resources, told):
    assert chosen(**resources) == told


@pytest.mark.parametrize("stack", [None, 1, 8])
def test_candidates_of_a_private_selection_train_one_at_a_time(stack):
    """A crash in a stack would be that of all its members: who crashed could not be told, nor that anybody did."""
    assert LocalPool(None, stack, secret=True).stack == 1
    assert LocalPool(None, stack).stack == stack


@pytest.fixture
def pools(monkeypatch):
    """The sizes of the pools that were opened; this machine has three processors."""
    made = []
    monkeypatch.setattr(local, "local_workers", lambda size, *_: made.append(size) or contextlib.nullcontext())
    monkeypatch.setattr(local, "processors", lambda: 3)
    return made


@pytest.mark.parametrize(("gpus", "places"), [(0, 3), (1, 1), (0.25, 3), (0.5, 2)])
def test_candidates_train_on_processes_of_this_machine_whatever_they_need(pools, gpus, places):
    """What they need of a GPU fits on one."""
    with open_local_pool(ResourceSettings(gpus=gpus), None, trainings=9, secret=True):
        assert pools == [places]


@pytest.mark.parametrize(("cluster", "gpus", "has_ray", "is_local"), [
    (None, 0, False, True),
    (None, 1, False, False),
    (None, 0, True, False),
    ("ray://somewhere", 0, False, False),
])  # fmt: skip
@pytest.mark.usefixtures("pools")
def test_clusters_and_gpus_are_rays(monkeypatch, cluster, gpus, has_ray, is_local):
    monkeypatch.setattr(opening, "_has_ray", lambda: has_ray)
    monkeypatch.setattr(ray_backend, "open_ray", lambda *_, **__: contextlib.nullcontext("Ray"))
    given = {"trainings": 9, "cluster": cluster, "interrupted": lambda: False}
    with open_backend(ResourceSettings(gpus=gpus), None, **given) as backend:
        assert (backend != "Ray") is is_local
