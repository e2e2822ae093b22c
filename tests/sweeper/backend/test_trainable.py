"""The class that Ray runs, without Ray: rows in order, nothing kept from one trial to the next."""

import shutil
import socket
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
import torch
from ray import cloudpickle

import clipless
from clipless.datasets import HashSplit
from clipless.errors import PlanError
from clipless.privacy.randomness import SecureSource
from clipless.projections import Orthogonal, SpectralBall
from clipless.training import memory
from clipless.training.batch_sums import sum_gradients
from clipless.training.memory import PassSizes
from sweeper.backend import trainable as module
from sweeper.backend.on_ray.cluster import place
from sweeper.backend.placed_data import PlacedDataset
from sweeper.backend.trainable import CliplessTrial
from sweeper.errors import SpecError, TrialError
from sweeper.planning.make import make_trial_settings
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import whole_event
from sweeper.privacy.spending._composition import Composition
from sweeper.specification.spec import Spec
from sweeper.trials import trial as trial_module
from sweeper.trials.build import initial_seed
from sweeper.trials.trial import TrialRun

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """No test knows how many rows had room in another one."""
    monkeypatch.setattr(trial_module, "_ROOM", PassSizes())


@pytest.fixture(autouse=True)
def no_search_for_garbage(monkeypatch):
    """Which takes long in a process with so many tests, and frees nothing that they measure."""
    monkeypatch.setattr(memory, "gc", SimpleNamespace(collect=lambda: 0))


@pytest.fixture(autouse=True)
def threads():
    """A trial sets the number of threads of its process, which is this one here."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def config(content, tmp_path):
    """Configuration of a trial as the engine hands it over."""
    content["model"] |= {"width": 16}
    content["training"] = {"epochs": 2, "batch_size": 256, "learning_rate": {"log": [0.01, 0.1]}}
    (tmp_path / "models").mkdir()
    digits = clipless.datasets.load("digits")
    return {
        "trial": "t0001",
        "proposal": {"training.learning_rate": 0.05},
        "recorded": 0,
        "front": [],
        "settings": make_trial_settings(Spec.from_mapping(content), digits),
        "spending": Composition(),
        "folder": str(tmp_path),
        "data": PlacedDataset.of(digits),
    }


@pytest.fixture
def trial(config):
    """A trial in this process."""
    made = CliplessTrial.__new__(CliplessTrial)
    made.setup(config)
    return made


@pytest.fixture
def built(monkeypatch):
    """The runs that trials built, with their weights before training."""
    seen = []
    real = TrialRun.__init__

    def init(self, **options):
        real(self, **options)
        seen.append((options, torch.cat([p.detach().flatten().clone() for p in self.model.parameters()]), self))

    monkeypatch.setattr(TrialRun, "__init__", init)
    return seen


def final(run):
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


def test_the_plan_is_the_first_row_and_epochs_follow(trial, tmp_path):
    rows = [trial.step() for _ in range(4)]
    assert [row.KIND for row in rows] == ["plan", "draw", "epoch", "epoch"]
    assert [row.epoch for row in rows[2:]] == [1, 2]
    assert rows[0].plan.secure_generator is True
    assert rows[-1].done is True
    assert clipless.load(tmp_path / rows[2].model).input_shape == (1, 8, 8)


def test_the_plan_comes_with_the_node_and_the_device(trial):
    placed = trial.step().placed
    assert placed["device"] == "cpu"
    assert placed["node"] == socket.gethostname()


def test_a_part_of_a_gpu_is_capped_before_anything_is_built_on_it(trial, config, monkeypatch):
    calls = []
    monkeypatch.setattr("sweeper.backend.trainable.cap_memory", calls.append)
    monkeypatch.setattr(
        "sweeper.backend.trainable.TrialRun", lambda **options: calls.append(options["device"]) or 1 / 0
    )
    trial.reset_config(config | {"settings": replace(config["settings"], gpus=0.5)})
    with pytest.raises(ZeroDivisionError):
        trial.step()
    assert calls == [0.5, "cuda"]


def test_nothing_is_trained_or_drawn_before_a_trial_has_said_that_it_will(trial, monkeypatch):
    class TrainedError(Exception):
        pass

    def fit(*_args, **_options):
        raise TrainedError

    monkeypatch.setattr(clipless, "fit", fit)
    monkeypatch.setattr(SecureSource, "random_bytes", lambda *_: pytest.fail("drawn"))
    assert [trial.step().KIND for _ in range(2)] == ["plan", "draw"]
    with pytest.raises(TrainedError):
        trial.step()


def test_a_process_starts_its_next_trial_from_nothing(trial, config, built):
    for _ in range(3):
        trial.step()
    assert trial.reset_config(config | {"trial": "t0002", "proposal": {"training.learning_rate": 0.02}}) is True
    assert trial.step().KIND == "plan"
    (first, _, _), (second, _, _) = built
    assert (first["trial"], second["trial"]) == ("t0001", "t0002")
    assert second["config"].training.learning_rate == 0.02
    assert trial.step().KIND == "draw"
    assert trial.step().epoch == 1


def test_the_proposal_decides_what_the_spec_leaves_open(trial, config, built):
    trial.step()
    assert built[0][0]["config"] == config["settings"].space.resolve(config["proposal"])
    assert built[0][0]["device"] == "cpu"
    assert torch.get_num_threads() == 1


def test_the_same_seed_and_trial_give_the_same_initial_weights_but_another_noise(trial, config, built):
    for _ in range(2):
        trial.reset_config(config)
        for _ in range(3):
            trial.step()
        shutil.rmtree(Path(config["folder"]) / "checkpoints")
    (_, first, one), (_, second, other) = built
    assert torch.equal(first, second)
    assert not torch.equal(final(one), final(other))


def test_every_trial_of_a_sweep_and_every_seed_has_initial_weights_of_its_own():
    seeds = [initial_seed(seed, f"t{number:04d}") for seed in (0, 1, 2, 2**32 - 1) for number in range(1, 500)]
    assert len(set(seeds)) == len(seeds)
    for seed in (min(seeds), max(seeds)):
        torch.Generator().manual_seed(seed)


def test_rows_are_unpacked_once_per_process_and_forgotten_for_others(trial, config, built):
    for _ in range(2):
        trial.reset_config(config)
        trial.step()
    trial.reset_config(
        config | {"data": PlacedDataset.of(clipless.datasets.load("digits", splits=HashSplit(salt="another")))}
    )
    trial.step()
    first, second, other = (options["data"] for options, *_ in built)
    assert first is second is not other
    assert len(module._LOADED) == 1


def test_a_trial_sees_the_rows_and_has_no_copy_of_them():
    data = clipless.datasets.load("digits")
    rows = PlacedDataset.of(data)
    for array in filter(lambda one: one is not None, (*rows.train, *rows.validation, *rows.test)):
        array.flags.writeable = False  # as Ray hands them over
    seen = rows.dataset()
    assert seen.metadata == data.metadata
    for name in ("train", "validation", "test"):
        given, got = getattr(data, name), getattr(seen, name)
        assert got.x.data_ptr() == given.x.data_ptr()
        assert got.y.data_ptr() == given.y.data_ptr()


def told_of(placed):
    """What a trial's process has of a data set."""
    data = module._load_dataset(placed[0])
    return data.metadata.name, data.train.x.sum().item(), ray.get(placed[0]).train[0].flags.writeable


def test_trial_processes_see_the_rows_that_the_driver_has_placed(ray_running):  # noqa: ARG001
    data = clipless.datasets.load("digits")
    placed = place(data)
    said = ray.get(ray.remote(told_of).remote([placed]))
    assert said == ("digits", data.train.x.sum().item(), False)


def with_model(content, **model):
    """What trials are told of a sweep of another model."""
    return make_trial_settings(Spec.from_mapping(content | {"model": model}), clipless.datasets.load("digits"))


def test_what_cannot_be_trained_fails_in_its_first_step_and_not_before(trial, config, content):
    config["settings"] = with_model(content, architecture="convnet", depth=6)
    trial.reset_config(config)
    with pytest.raises(SpecError, match="architecture=convnet on digits"):
        trial.step()


def test_cleaning_up_lets_go_of_the_model(trial):
    trial.step()
    trial.cleanup()
    assert trial._rows is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("architecture", ["mlp", "convnet", "patch-net"])
@pytest.mark.parametrize(("chosen", "kind"), [("orthogonal", Orthogonal), ("spectral_ball", SpectralBall)])
def test_the_search_chooses_the_constraint_of_every_weight(trial, config, content, built, architecture, chosen, kind):
    config["settings"] = with_model(content, architecture=architecture, constraint=["orthogonal", "spectral_ball"])
    trial.reset_config(config | {"proposal": config["proposal"] | {"model.constraint": chosen}})
    trial.step()
    constraints = {type(layer.constraint) for layer in built[0][2].model.layers if hasattr(layer, "constraint")}
    assert constraints == {kind}


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried ..."),
    MemoryError(),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=["gpu", "cpu", "python"])
def test_out_of_memory_it_goes_on_from_its_last_epoch_with_smaller_micro_batches(error, trial, built, monkeypatch):
    real = TrialRun.epoch_rows

    def short_of_memory(run):
        rows = real(run)
        if run._recorded == 0:
            yield next(rows)
        if run.micro_batch_size is None or run.micro_batch_size > 64:
            raise error
        yield from rows

    monkeypatch.setattr(TrialRun, "epoch_rows", short_of_memory)
    rows = [trial.step() for _ in range(8)]
    assert [(row.KIND, getattr(row, "epoch", 0), getattr(row, "kept", None)) for row in rows] == [
        *(("plan", 0, 0), ("draw", 0, None), ("epoch", 1, None)),
        *(("plan", 0, 5), ("draw", 0, None), ("plan", 0, 5), ("draw", 0, None)),
        ("epoch", 2, None),
    ]
    assert len({row.attempt for row in rows if row.KIND == "plan"}) == 3
    assert [options["micro_batch_size"] for options, *_ in built] == [None, 144, 64]  # passes of 285 and of 95 rows


def test_a_trial_that_has_not_memory_for_one_row_fails(trial, monkeypatch):
    def never(_run):
        raise MemoryError
        yield

    monkeypatch.setattr(TrialRun, "epoch_rows", never)
    rows = iter(trial.step, None)
    said = "out of memory with micro-batches of one row; use a smaller model"
    with pytest.raises(TrialError, match=said):
        assert len(list(rows)) < 20


def test_other_errors_are_not_taken_for_a_lack_of_memory(trial, monkeypatch):
    def broken(_run):
        raise RuntimeError("shapes do not match")
        yield

    monkeypatch.setattr(TrialRun, "epoch_rows", broken)
    trial.step()
    trial.step()
    with pytest.raises(RuntimeError, match="shapes do not match"):
        trial.step()


def test_a_process_that_loses_its_device_ends_so_that_the_trial_goes_on_in_another(trial, built, config, monkeypatch):
    real, ended = TrialRun.epoch_rows, []

    def lose_the_device(run):
        rows = real(run)
        yield next(rows)
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    def end(code):
        ended.append(code)
        raise SystemExit(code)

    monkeypatch.setattr(TrialRun, "epoch_rows", lose_the_device)
    monkeypatch.setattr("sweeper.backend.trainable.os._exit", end)
    assert [trial.step().KIND for _ in range(3)] == ["plan", "draw", "epoch"]
    with pytest.raises(SystemExit):
        trial.step()
    assert ended == [1]
    monkeypatch.setattr(TrialRun, "epoch_rows", real)
    trial.reset_config(config | {"recorded": 1})  # as in the process that takes over
    rows = [trial.step() for _ in range(3)]
    assert [(row.KIND, getattr(row, "epoch", 0)) for row in rows] == [("plan", 0), ("draw", 0), ("epoch", 2)]
    assert len(built) == 2


def short_of_memory(monkeypatch, most):
    """Let no pass take more rows than that."""
    real, seen = sum_gradients, []

    def short(model, loss, x, *given, **options):
        seen.append(len(x))
        if len(x) > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        real(model, loss, x, *given, **options)

    for where in (memory, clipless.training.trainer):
        monkeypatch.setattr(where, "sum_gradients", short)
    return seen


def spent(rows, path):
    """What the ledger of a driver says that takes these rows of one trial."""
    ledger = Ledger(path)
    for row in rows:
        if row.KIND == "plan":
            ledger.open("t0001", whole_event(row.plan), kept=row.kept, marked=True)
        elif row.KIND == "draw":
            ledger.draw("t0001")
    return ledger.answers(1e-4)["everything"].epsilon


def test_a_lack_of_memory_is_found_before_the_plan_and_costs_nothing(trial, config, monkeypatch, tmp_path):
    """Halved not at all, once and four times: one attempt each, at one price."""
    prices = []
    for most in (1000, 200, 25):
        with monkeypatch.context() as patch:
            patch.setattr(trial_module, "_ROOM", PassSizes())
            seen = short_of_memory(patch, most)
            trial.reset_config(config)
            rows = [trial.step() for _ in range(4)]
        assert [row.KIND for row in rows] == ["plan", "draw", "epoch", "epoch"]
        assert max(seen[-5:]) <= most
        prices.append(spent(rows, tmp_path / f"{most}.jsonl"))
        shutil.rmtree(tmp_path / "checkpoints")
    assert prices[0] == prices[1] == prices[2] > 0


def test_how_many_rows_have_room_is_found_out_once_for_all_trials_of_an_architecture(trial, config, monkeypatch):
    seen = short_of_memory(monkeypatch, 100)
    trial.step()
    tried = len(seen)
    assert seen == [288, 144, 72]
    trial.reset_config(config | {"trial": "t0002", "proposal": {"training.learning_rate": 0.02}})
    trial.step()
    assert len(seen) == tried


def test_a_device_without_room_for_one_row_fails_the_trial_before_its_plan(trial, monkeypatch):
    short_of_memory(monkeypatch, 0)
    with pytest.raises(PlanError, match="Out of memory with micro-batches of one row; use a smaller model"):
        trial.step()


@pytest.mark.long
def test_a_lack_of_memory_that_only_training_met_is_remembered_too(trial, config, built, monkeypatch):
    def never(_run):
        raise MemoryError
        yield

    with monkeypatch.context() as patch:
        patch.setattr(TrialRun, "epoch_rows", never)
        for _ in range(3):
            trial.step()
    assert [run.rows_per_pass for *_, run in built] == [288, 128]
    trial.reset_config(config | {"trial": "t0002"})
    trial.step()
    assert built[-1][2].rows_per_pass == 144
