"""Which executor trains a sweep, and how: the local pool, or a Ray, one trial at a time or in stacks."""

import contextlib
from types import SimpleNamespace

import pytest

from sweeper.backend.on_ray import backend as ray_backend
from sweeper.backend.on_ray.backend import RayBackend
from sweeper.backend.opening import open_backend
from sweeper.backend.workers import local
from sweeper.backend.workers.local import LocalPool, open_local_pool
from sweeper.errors import SweeperError
from sweeper.specification.settings import ResourceSettings

SETTINGS = SimpleNamespace(
    folder=None, hours=None, trial_hours=None, should_stop=None, interruption=None, constants=dict
)


@pytest.fixture
def chosen(monkeypatch):
    """What trains on a Ray with these resources, and what it is told of stacks."""

    def choose(**resources):
        monkeypatch.setattr(ray_backend, "places_for", lambda _resources: 2)
        monkeypatch.setattr(ray_backend, "train_alone", lambda *_, **__: "one at a time")
        monkeypatch.setattr(ray_backend, "train_stacks", lambda *_, stack, places, **__: (stack, places))
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
    """The pools that were opened: their sizes, and the devices of their workers; this machine has three processors."""
    made = []

    def workers(size, _data, _threads, shares=None):
        made.append((size, None if shares is None else [shares.take() for _ in range(size)]))
        return contextlib.nullcontext()

    monkeypatch.setattr(local, "local_workers", workers)
    monkeypatch.setattr(local, "processors", lambda: 3)
    return made


@pytest.mark.parametrize(
    ("gpus", "devices", "pool"),
    [
        (0, ["0", "1"], (3, None)),
        (1, ["0"], (1, ["0"])),
        (1, ["2", "GPU-7"], (2, ["2", "GPU-7"])),
        (0.25, ["0"], (3, ["0", "0", "0"])),
        (0.5, ["0"], (2, ["0", "0"])),
        (0.5, ["0", "1"], (3, ["0", "1", "0"])),
    ],
)
def test_workers_share_the_devices_of_this_machine(pools, gpus, devices, pool):
    with open_local_pool(ResourceSettings(gpus=gpus), None, trainings=9, devices=devices):
        assert pools == [pool]


def test_the_spec_and_the_number_of_trainings_bound_the_pool(pools):
    for resources, trainings in (({"concurrent": 2, "gpus": 0.25}, 9), ({"gpus": 0.25}, 1), ({"cpus": 2}, 9)):
        with open_local_pool(ResourceSettings(**resources), None, trainings=trainings, devices=["0", "1"]):
            pass
    assert pools == [(2, ["0", "1"]), (1, ["0"]), (1, None)]


def test_what_this_machine_lacks_is_one_sentence(pools):
    given = {"trainings": 9, "devices": []}
    with pytest.raises(SweeperError, match=r"a GPU of this machine for resources.gpus: 0.5, got none"):
        open_local_pool(ResourceSettings(gpus=0.5), None, **given).__enter__()
    with pytest.raises(SweeperError, match="at most 3 CPU for a trial, got 4"):
        open_local_pool(ResourceSettings(cpus=4), None, **given).__enter__()
    assert pools == []


@pytest.mark.parametrize(("cluster", "gpus", "is_local"), [(None, 0, True), (None, 1, True), ("head:6379", 1, False)])
@pytest.mark.usefixtures("pools")
def test_a_sweep_trains_on_a_cluster_only_if_one_is_named(monkeypatch, cluster, gpus, is_local):
    monkeypatch.setattr(ray_backend, "open_ray", lambda *_, **__: contextlib.nullcontext("Ray"))
    monkeypatch.setattr(local, "visible_devices", lambda: ("0",))
    given = {"trainings": 9, "cluster": cluster, "interrupted": lambda: False}
    with open_backend(ResourceSettings(gpus=gpus), None, **given) as backend:
        assert (backend != "Ray") is is_local


def test_a_cluster_that_only_the_environment_names_is_not_joined_and_its_user_is_told(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.9.9.9:6379")
    (sentence,) = LocalPool(None, None).statements
    assert "10.9.9.9:6379, which was not joined; name it with --cluster" in sentence
    assert LocalPool(None, None, secret=True).statements == ()
