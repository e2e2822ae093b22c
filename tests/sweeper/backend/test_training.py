"""What trains the trials of a spec on a Ray: Ray Tune one at a time, or workers that train stacks."""

import contextlib
from types import SimpleNamespace

import pytest

from sweeper.backend import training
from sweeper.backend.on_ray import cluster, stacks, tune
from sweeper.backend.training import Backend, backend, trained
from sweeper.specification.spec import Spec


@pytest.fixture
def chosen(content, monkeypatch, tmp_path):
    """Which of them trains a spec with these resources, and what it is told of stacks."""

    def choose(made=Backend(), **resources):  # noqa: B008  # it is frozen
        monkeypatch.setattr(cluster, "place", lambda data: data)
        monkeypatch.setattr(tune, "places_for", lambda _resources: 2)
        monkeypatch.setattr(tune, "run_trials", lambda *_, **__: "one at a time")
        monkeypatch.setattr(stacks, "run_stacks", lambda *_, stack, places, **__: (stack, places))
        monkeypatch.setattr(training, "run_locally", lambda *_, stack, **__: stack)
        spec = Spec.from_mapping(content | {"resources": resources})
        folder = SimpleNamespace(path=tmp_path)
        return trained(made, object, None, None, None, spec, None, folder, None, lambda: None)

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


@pytest.mark.parametrize("resources", [{}, {"stack": 8}, {"gpus": 1}, {"gpus": 1, "stack": 8}])
def test_candidates_of_a_private_selection_train_one_at_a_time(chosen, resources):
    """A crash in a stack would be that of all its members: who crashed could not be told, nor that anybody did."""
    assert chosen(Backend("processes", secret=True), **resources) == 1


@pytest.mark.parametrize(("gpus", "places"), [(0, 3), (1, 1), (0.25, 3), (0.5, 2)])
@pytest.mark.parametrize("has_ray", [True, False])
def test_candidates_train_on_processes_of_this_machine_whatever_they_need(content, monkeypatch, gpus, places, has_ray):
    """Where a Ray runs, or a cluster is named, too; what they need of a GPU fits on one."""
    made = []
    monkeypatch.setattr(
        training, "local_workers", lambda size, *_: made.append(size) or contextlib.nullcontext("processes")
    )
    monkeypatch.setattr(training, "_has_ray", lambda: has_ray)
    monkeypatch.setattr(cluster, "cluster", lambda *_, **__: pytest.fail("no Ray trains candidates"))
    monkeypatch.setattr(training, "processors", lambda: 3)
    rates = content["training"] | {"learning_rate": {"log": [0.01, 0.1]}}
    spec = Spec.from_mapping(content | {"training": rates, "search": {"trials": 9}, "resources": {"gpus": gpus}})
    with backend(spec, None, "ray://somewhere", interrupted=lambda: False, secret=True) as backend_:
        assert backend_ == Backend("processes", secret=True)
    assert made == [places]
