"""The measuring scripts measure what their tables say: contenders, spaces and arithmetic, on tiny sizes."""

import importlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch

from clipless.layers import Conv1d, Dense
from sweeper.records import SweepStatus

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
STEP_CONTENDERS = [
    "private",
    "private, recorded",
    "lipschitz",
    "lipschitz + projection",
    "relu",
    "opacus",
    "opacus ghost",
]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("contender", STEP_CONTENDERS)
def test_every_contender_takes_steps_of_whole_batches(script, contender):
    step = script("_step")
    case = step.Case(contender=contender, batch=6, physical=4, hidden=8, threads=1)
    assert step.seconds(step.build(case, step.data(6, "cpu")), "cpu", steps=1) > 0


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_ghost_clipping_and_hooks_sum_the_same_clipped_gradients(script, monkeypatch):
    """Two accumulated chunks of both, without noise and from the same weights, end in the same weights."""
    step = script("_step")
    ends = {}
    for contender in ("opacus", "opacus ghost"):
        torch.manual_seed(0)
        network = step.plain_network(8)
        monkeypatch.setattr(step, "plain_network", lambda _, network=network: network)
        monkeypatch.setattr("opacus.optimizers.optimizer._generate_noise", _no_noise)
        monkeypatch.setattr("opacus.optimizers.optimizer_fast_gradient_clipping._generate_noise", _no_noise)
        monkeypatch.setattr(torch.optim, "Adam", lambda parameters, rate: torch.optim.SGD(parameters, 1000 * rate))
        step.build(step.Case(contender=contender, batch=6, physical=4, hidden=8), step.data(6, "cpu"))()
        ends[contender] = torch.cat([p.detach().flatten() for p in network.parameters()])
        monkeypatch.undo()
        monkeypatch.syspath_prepend(str(BENCHMARKS))
    torch.testing.assert_close(ends["opacus"], ends["opacus ghost"], rtol=1e-4, atol=1e-6)


def _no_noise(*_args, reference, **_options):
    return torch.zeros_like(reference)


def test_each_contender_of_the_thesis_trains_its_own_kind_of_network(script):
    thesis = script("thesis")
    splits = {"validation": 0.2, "test": 0.1, "salt": "x"}
    for table in thesis.PUBLISHED:
        ours, fixed, theirs = (thesis.spec_of(table, c, splits) for c in ("lip-dp-sgd", "fixed norm", "dp-sgd"))
        assert ours.privacy == fixed.privacy == theirs.privacy
        assert ours.data == fixed.data == theirs.data
        assert (ours.model.constraint, fixed.model.constraint) == ("spectral_ball", "fixed_norm")
        assert (theirs.model.constraint, theirs.model.activation) == ("free", "relu")
        assert ours.training.method == fixed.training.method == "lip-dp-sgd"
        assert theirs.training.method == "dp-sgd"
        for name in ("epochs", "batch_size", "learning_rate", "optimizer"):
            assert getattr(ours.training, name) == getattr(theirs.training, name)
        (loss,) = theirs.training.loss
        assert loss.parameters == {}, "ordinary cross-entropy, at temperature 1"


def test_the_configuration_is_chosen_by_mean_validation_accuracy(script, monkeypatch):
    """A candidate that was lucky once loses to one that is better on average; the test rows are not looked at."""
    thesis = script("thesis")
    spec = thesis.spec_of("breast-cancer", "dp-sgd", {"validation": 0.2, "test": 0.1, "salt": "x"})
    data = thesis.load(**spec.data_options())
    luck = {0: [0.95, 0.1, 0.1], 1: [0.9, 0.9, 0.9], 2: [0.5, 1.0, 1.0], 3: [0.8, 0.8, 0.8]}
    candidates = [spec.space.resolve(proposal) for proposal in thesis.sample(spec.space, 4)]

    def accuracy(config, given, scored, seed):
        assert scored is given.validation
        return luck[candidates.index(config)][seed]

    monkeypatch.setattr(thesis, "accuracy", accuracy)
    assert thesis.chosen(spec, data, 4) == candidates[1]


@pytest.fixture
def faulty(script, tmp_path):
    """A campaign whose stack has said one line, and the states in which its sweep is found, one after the other."""
    faults, states = script("stack_faults"), []
    (tmp_path / "log").write_text("out of memory")
    stack = SimpleNamespace(log=lambda _: tmp_path / "log", folder=lambda *_: tmp_path, starts=lambda _: 2)

    class Told(faults.StackCampaign):
        def state(self):
            return states.pop(0)

        def extend(self):
            self.trials += faults.MORE_TRIALS
            (self.noise / "t0002").write_bytes(b".")

    return Told(tmp_path, 1, 4, random.Random(0), stack=stack), states


def test_a_sweep_that_ends_before_a_part_is_killed_is_given_more_trials(faulty):
    campaign, states = faulty
    states += [SweepStatus.RUNNING, None, SweepStatus.COMPLETED]
    campaign.wait_for_noise()
    assert (campaign.trials, campaign.drawn(), states) == (5, 1, [])


@pytest.mark.parametrize("state", [SweepStatus.FAILED, SweepStatus.RUNNING, None])
def test_a_sweep_that_fails_or_stands_still_is_not_waited_for_and_its_parts_are_heard(
    faulty, script, monkeypatch, state
):
    campaign, states = faulty
    if state is SweepStatus.FAILED:
        states += [SweepStatus.RUNNING, state]
    else:
        states.append(state)
        monkeypatch.setattr(script("stack_faults"), "PATIENCE_SECONDS", -1)
    with pytest.raises(
        SystemExit, match=r"(?s)the end of .* 0 draws so far.* ray-head 2.* ends with: out of memory"
    ) as told:
        campaign.wait_for_end()
    assert (state.value if state else "not known to a service that answers") in str(told.value)


@pytest.mark.long
@pytest.mark.root
def test_a_killed_process_leaves_no_cable_and_no_namespace_behind():
    laid = (
        "import stack_faults, time\nwith stack_faults.cable() as laid: print(laid.address, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", laid], cwd=BENCHMARKS, stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()
        assert f"inet {address}/30" in _addresses()
        process.kill()
    end = time.monotonic() + 60
    while address in _addresses():
        assert time.monotonic() < end, f"{address} is still there"
        time.sleep(0.05)


def _addresses():
    return subprocess.run(["ip", "address"], check=True, capture_output=True, text=True).stdout


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_no_neighbours_move_a_computed_sum_by_more_than_the_sensitivity(script, monkeypatch):
    """The short form of the campaign: a batch of every kind."""
    neighbours = script("neighbours")
    monkeypatch.setattr(neighbours, "BATCHES_OF_A_TRAINING", 1)
    found = neighbours.campaign(pairs=1, seconds=0, seed=3, device="cpu")
    assert all(worst.pairs > 0 and not worst.exceeded for worst in found.values())
    assert found["8,192 rows"].plain > 1.9, "float32 sums are moved by more"
    assert found["8,192 rows"].exact <= 1.0
    assert neighbours.table(found).count("\n") == len(neighbours.KINDS) + 2


def test_a_sum_that_moves_by_more_than_the_sensitivity_ends_the_campaign_with_1(script, monkeypatch):
    neighbours = script("neighbours")
    one, other = ({"weight": neighbours.torch.full((1,), value, dtype=torch.float64)} for value in (1.0, -(2.0**-50)))
    assert neighbours.compared(one, other, {"weight": 1.0}).exceeded
    assert not neighbours.compared(one, {}, {"weight": 1.0}).exceeded
    assert neighbours.compared(one, {}, {"": 0.5}).exceeded
    for exceeded in (False, True):
        found = {"dense": neighbours.Worst(pairs=1, exact=1.0, exceeded=exceeded)}
        monkeypatch.setattr(neighbours, "found_by_workers", lambda _, found=found: found)
        monkeypatch.setattr("sys.argv", ["neighbours.py"])
        with pytest.raises(SystemExit) as ended:
            neighbours.main()
        assert ended.value.code == int(exceeded)


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize(
    "part",
    ["alike", "waiting", "noise", "steps"]
    + [pytest.param(part, marks=pytest.mark.long) for part in ("evaluation", "exact", "stacks", "sweep")],
)
def test_the_script_for_a_gpu_measures_on_a_cpu(script, part, monkeypatch):
    gpu = script("gpu")
    monkeypatch.setattr(gpu, "CONTENDERS", {"private": (512,), "opacus": (64,)})
    monkeypatch.setattr(gpu, "by_processes", lambda *_: 1.0)
    monkeypatch.setattr(gpu, "ARCHITECTURES", ["mlp"])
    lines = list(gpu.report(gpu.PARTS[part], gpu.Place("cpu", gpu.SMALL)))
    assert "Failed:" not in lines
    assert len([line for line in lines if line.startswith("|")]) >= 3


def test_results_of_a_gpu_replace_those_of_an_earlier_run(script, tmp_path):
    gpu, file = script("gpu"), tmp_path / "RESULTS.md"
    file.write_text("# Results\n\nOthers.\n")
    gpu.write(file, "first")
    file.write_text(file.read_text() + "Behind.\n")
    gpu.write(file, "second")
    text = file.read_text()
    assert text.startswith("# Results\n\nOthers.")
    assert "second" in text
    assert "first" not in text
    assert text.rstrip().endswith("Behind.")


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("network", ["ReLU", "hinge", "series"])
def test_rows_that_join_are_found_to_move_others_where_kernels_look_at_places(script, monkeypatch, network):
    neighbours, joining = script("neighbours"), script("_place_shifts")
    monkeypatch.setattr(neighbours, "BATCHES_OF_A_TRAINING", 2)
    search = neighbours.JOINING[f"rows join, {network}, clipless"][0]
    found = search("cpu", numpy.random.default_rng(1))
    assert (found.pairs, found.moved, found.exceeded, found.slotted) == (12, 0.0, False, 0)
    for layer in (Conv1d, Dense):
        monkeypatch.setattr(layer, "forward", _by_place(layer.forward))
    slotted = search("cpu", numpy.random.default_rng(1))
    assert (slotted.moved, slotted.slotted) == (0.0, 12)
    monkeypatch.setattr("clipless.training.placing.needs_slots", lambda *_: False)
    assert any(search("cpu", numpy.random.default_rng(seed)).exceeded for seed in range(3))
    assert set(joining.METHODS) >= {"clipless", "lip-dp-sgd", "dp-sgd", "ghost"}


def _by_place(forward):
    """Every fourth row rounded in another way."""

    def moved(layer, x):
        y = forward(layer, x)
        column = (-1, *[1] * (y.dim() - 1))
        signs = torch.where(torch.rand(y.shape[1:], generator=torch.Generator().manual_seed(1)) < 0.5, -3e-7, 3e-7)
        rounding = (y.detach().flatten(1).norm(dim=1).view(column) * signs).nan_to_num(0.0, 0.0, 0.0)
        return y + torch.where((torch.arange(len(y)) % 4 == 1).view(column), rounding, 0.0)

    return moved


def test_shapes_that_depend_on_places_are_counted_and_what_the_product_misses_is_a_fault(script, monkeypatch, capsys):
    shapes, places = script("_place_shapes"), script("places")
    found = list(shapes.shapes(9, seed=0))
    assert [shape.kind for shape in found] == list(shapes.MAKERS)
    assert [shape.name for shape in found] == [shape.name for shape in shapes.shapes(9, seed=0)]
    dense = shapes.Shape("dense", "", Dense(13, 8), (13,), 33)
    assert (dense.size(even=False), dense.size(even=True)) == (33, 64)
    verdict = shapes.judged(dense, even=True)
    assert not any((verdict.depends | verdict.refused).values())
    monkeypatch.setattr(Dense, "forward", _by_place(Dense.forward))
    verdict = shapes.judged(dense, even=True)
    assert verdict.depends[shapes.FORWARD]
    assert verdict.refused[shapes.FORWARD]
    verdict.refused[shapes.FORWARD] = False
    monkeypatch.setattr(shapes, "judged", lambda *_, **__: verdict)
    setting = places.asdict(places.AFTER)
    places.child({"part": "layers", "setting": setting, "threads": torch.get_num_threads(), "layers": 2, "seed": 0})
    said = json.loads(capsys.readouterr().out)
    assert said["counts"]["dense/float32 forwards"] == 1
    assert said["missed"]
    monkeypatch.setattr(places, "asked", lambda *_: said)
    monkeypatch.setattr("sys.argv", ["places.py", "--part", "layers", "--threads", "1"])
    with pytest.raises(SystemExit) as ended:
        places.main()
    assert ended.value.code == 1
    assert "| all | 2 | 2 / 2" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("part", ["passes", "attack"])
def test_private_passes_and_attacks_hold_in_processes_of_their_own(script, monkeypatch, capsys, part):
    places = script("places")
    monkeypatch.setattr(places, "BEFORE", places.AFTER)
    monkeypatch.setattr(places, "ATTACKED", (places.AFTER,))
    monkeypatch.setattr("sys.argv", ["places.py", "--part", part, "--layers", "1", "--threads", "1"])
    with pytest.raises(SystemExit) as ended:
        places.main()
    assert ended.value.code == 0
    assert "0 Delta" in capsys.readouterr().out or part == "passes"


@pytest.mark.long
def test_the_guide_says_what_an_epsilon_means_as_the_command_does(script):
    exposure = script("exposure")
    page = (BENCHMARKS.parent / "docs" / "choosing.md").read_text(encoding="utf-8")
    for line in exposure.tables((epsilon, exposure.expose_training(epsilon)) for epsilon in exposure.EPSILONS):
        assert f"{line}\n" in page
