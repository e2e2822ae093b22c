"""The measuring scripts measure what their tables say: contenders, spaces and arithmetic, on tiny sizes."""

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy
import pytest
import torch

from clipless.layers import Conv1d, Dense
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.selection_price import selection_epsilon
from clipless.privacy.events import Composed
from sweeper.search.space import sample

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


def test_the_parts_of_a_guarded_convolution_are_its_gradient(script):
    kinds = script("layer_cost").kinds()
    (layer,) = (kind.layer for kind in kinds if kind.name.startswith("convolution 16"))
    works = script("layer_cost").parts(layer, 5, 3, "cpu")
    (product,), (_, gradient, _) = works["patches and the product of integers"](), works["the gradient by torch"]()
    (digits,), (whole,) = works["cotangents to 8 bits"](), works["inputs to 15 bits"]()
    patches = torch.nn.functional.unfold(whole.float(), 3, padding=1)
    expected = (digits.values.flatten(2) @ patches.mT).sum(dim=0).view_as(gradient)
    torch.testing.assert_close((128 * product[0] + product[1]).float(), expected)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("contender", STEP_CONTENDERS)
def test_every_contender_takes_steps_of_whole_batches(script, contender):
    step = script("_step")
    case = step.Case(contender=contender, batch=6, physical=4, hidden=8, threads=1)
    assert step.seconds(step.build(case, step.data(6, "cpu")), "cpu", steps=1) > 0


def test_an_unknown_contender_is_refused(script):
    step = script("_step")
    with pytest.raises(ValueError, match="Expected a contender, got 'jax'"):
        step.build(step.Case(contender="jax", batch=2, physical=2), step.data(2, "cpu"))


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


def test_sizes_are_those_that_the_table_names(script):
    step, scaling = script("_step"), script("step_scaling")
    assert [step.parameters(hidden) for hidden in scaling.HIDDEN.values()] == [130_992, 503_400, 1_999_344]
    assert set(scaling.PHYSICAL) <= set(STEP_CONTENDERS)
    assert set(script("step_time").PHYSICAL) <= set(STEP_CONTENDERS)


def test_a_line_is_fitted(script):
    scaling = script("step_scaling")
    assert scaling.line([1, 2, 3], [5.0, 7.0, 9.0]) == pytest.approx((2.0, 1.0))
    slope, explained = scaling.line([1, 2, 3, 4], [0.0, 2.0, 1.0, 3.0])
    assert slope == pytest.approx(0.8)
    assert explained == pytest.approx(0.64)


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
    candidates = [thesis.spec.space.resolve(proposal) for proposal in thesis.sample(spec, 4)]

    def accuracy(config, given, scored, seed):
        assert scored is given.validation
        return luck[candidates.index(config)][seed]

    monkeypatch.setattr(thesis, "accuracy", accuracy)
    assert thesis.chosen(spec, data, 4) == candidates[1]


def test_paired_runs_are_compared_by_signed_ranks(script):
    thesis = script("thesis")
    assert thesis.p_value([0.5, 0.6], [0.5, 0.6]) == 1.0
    theirs = [0.80 + 0.001 * i for i in range(10)]
    assert thesis.p_value([x + 0.01 + 0.001 * i for i, x in enumerate(theirs)], theirs) == pytest.approx(2 / 2**10)
    assert thesis.shown([0.5, 0.7]) == f"60.0 +- {100 * statistics.stdev([0.5, 0.7]):.1f}"


@pytest.fixture
def search(script):
    return script("search")


def trained(epsilon, accuracies):
    rows = [{"epsilon": epsilon * e, "accuracy": a, "certified@0.25": a / 2} for e, a in enumerate(accuracies, start=1)]
    return tuple(rows)


class Given:
    """Configurations whose values by epoch are given."""

    def __init__(self, rows):
        self.rows = list(rows)

    def space(self, trial):
        return {"x": trial.suggest_float("x", 0, 1)}

    def start(self, search):
        trajectory = importlib.import_module("_search_curves").Trajectory
        return (search.ask(), trajectory.of(self.rows.pop(0))) if self.rows else None


class Until:
    """Ends the trials that it is told at their first epoch."""

    def __init__(self, ended):
        self.ended, self.begun = ended, {}

    def begin(self, trial, trajectory):
        self.begun[trial] = trajectory.curve

    def goes_on(self, point):
        return point.trial not in self.ended


def test_a_replay_runs_trials_side_by_side_and_starts_the_next_where_one_ends(search):
    stopper = Until({"t0002"})
    task = Given(trained(1.0 + i, [0.3, 0.4]) for i in range(5))
    made = search.Search(task.space, search.AXES, sampler=search.Sampler.RANDOM, seed=0)
    points = search.replay(task, stopper, made, 7)
    order = ["t0001", "t0002", "t0003", "t0001", "t0004", "t0003", "t0005"]
    assert [point.trial for point in points] == order
    assert stopper.begun["t0002"] == [2.0, 4.0]
    assert list(made.open) == ["t0004", "t0005"], "the others were told to the sampler"


def test_volumes_count_every_epoch_and_stay_where_configurations_run_out(search):
    points = [search.Point(trial="t", epoch=e, values={"epsilon": 1.0, "accuracy": a}) for e, a in ((1, 0.2), (2, 0.6))]
    assert search.volumes(points, search.AXES[:2], 4) == pytest.approx([0.1, 0.3, 0.3, 0.3])


def test_an_arm_is_better_when_the_difference_by_seed_is_more_than_its_error(search):
    ours, theirs = search.np.array([0.5, 0.6, 0.7]), search.np.array([0.51, 0.61, 0.715])
    assert search.better(theirs, ours)
    assert not search.better(ours, theirs)
    assert not search.better(search.np.array([0.6, 0.5, 0.75]), ours), "differences as large as their error are a tie"
    found = search.np.array([[0.1, 0.4, 0.5, 0.6], [0.1, 0.2, 0.5, 0.6]])
    assert search.reached(found, 0.3) == 0.5
    assert search.reached(found, 0.7) == float("inf")


def test_simulated_luck_depends_on_seed_and_number_only(search):
    task, trials, rows = search.Simulated(), [], []
    for seed in (3, 3, 4):
        fresh = task.fresh(seed)
        made = search.Search(fresh.space, search.AXES, sampler=search.Sampler.RANDOM, seed=3)
        made.enqueue({"epsilon": 2.0, "batch": 2048, "rate": 0.2, "fraction": 0.1, "temperature": 0.3})
        trials.append(fresh.start(made)[1])
        rows.append(list(trials[-1].rows))
    assert rows[0] == rows[1] != rows[2]
    epsilons = trials[0].curve
    assert len(epsilons) == search.EPOCHS
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] == pytest.approx(2.0, rel=0.2), "RDP alone, of the nearest of the calibrated noises"


def test_a_recorded_configuration_is_the_nearest_one_not_tried_yet(search, tmp_path):
    curves = importlib.import_module("_search_curves")
    spec = search.digits_spec()
    trials = [{"params": p, "rows": list(trained(1.0, [i / 9]))} for i, p in enumerate(curves.sample(spec, 3))]
    (tmp_path / "r.json").write_text(curves.json.dumps(trials))
    task = search.Recorded.read(tmp_path / "r.json").fresh(1)
    made = search.Search(task.space, search.AXES, sampler=search.Sampler.RANDOM, seed=0)
    made.enqueue(trials[1]["params"])
    name, trial = task.start(made)
    assert list(trial.rows) == trials[1]["rows"]
    assert made.open[name] == trials[1]["params"]
    left = [next(task.start(made)[1].rows) for _ in range(2)]
    assert {row["accuracy"] for row in left} == {0.0, 2 / 9}
    assert task.start(made) is None


def test_a_trained_configuration_is_trained_as_far_as_it_is_asked_for(search, monkeypatch):
    curves = importlib.import_module("_search_curves")
    asked = []
    real = curves.TrialRun.epoch_rows

    def rows(run):
        for row in real(run):
            asked.append(row.epoch)
            yield row

    monkeypatch.setattr(curves.TrialRun, "epoch_rows", rows)
    task = search.Trained().fresh(1)
    made = search.Search(task.space, search.AXES, sampler=search.Sampler.RANDOM, seed=0)
    _, trial = task.start(made)
    assert (len(trial.curve), asked) == (search.EPOCHS, [])
    found = [next(trial.rows) for _ in range(2)]
    assert asked == [1, 2]
    assert [row["epsilon"] for row in found] == list(trial.curve[:2])
    assert all(axis.name in row for row in found for axis in search.AXES)


def test_foresight_ends_a_trial_that_has_nothing_left_to_give(search):
    arms, curves = (importlib.import_module(name) for name in ("_search_arms", "_search_curves"))
    axes = search.AXES[:2]
    worse, better = trained(1.0, [0.5, 0.4, 0.3]), trained(1.0, [0.2, 0.3, 0.9])
    for least, first in ((0.0, [True, True]), (1e-4, [True, True]), (0.9, [False, False])):
        stopper = arms.Foresight(axes, least)
        found = []
        for name, rows in (("worse", worse), ("better", better)):
            stopper.begin(name, curves.Trajectory.of(rows))
            found.append([stopper.goes_on(search.Point(trial=name, epoch=i + 1, values=rows[i])) for i in range(2)])
        assert found == [[False, False], first], least


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


def test_every_kind_of_layer_passes_with_and_without_its_guard(script):
    layer_cost = script("layer_cost")
    for kind in layer_cost.kinds():
        plain, private = layer_cost.passes(kind, 2, "cpu")
        plain()
        assert all(p.grad is not None for p in kind.layer.parameters())
        private()
        assert all(p.grad is None for p in kind.layer.parameters())


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


@pytest.fixture
def price(script):
    return script("_price_arms")


@pytest.fixture
def digits_task(script):
    return script("_price_tasks").task_of("digits", None)


class Pretended:
    """Trainings that reveal how far the learning rate is from the best one, through noise that grows with theirs."""

    def __init__(self, script):
        self._scored, self.noises = script("_price_training").Scored, []

    def scores(self, task, proposal, noise, seed):
        event = task.event(proposal, noise)
        loudness = event.sampling_rate * event.steps**0.5 / noise
        self.noises.append(noise)
        worth = 1.0 - abs(numpy.log(proposal["training.learning_rate"] / 0.016))
        rng = numpy.random.default_rng([seed, int(1e6 * noise)])
        points = numpy.clip(0.5 * worth * loudness**0.2 + 0.01 * rng.normal(size=(3, 2)), 0.0, 1.0)
        return self._scored(points, points)

    rehearsed = scores


def test_stages_cost_the_price_together(price, digits_task):
    sweep = price.Sweep(digits_task, None, 0, 3.0, ((4, 0.05), (2, 0.15), (1, 0.8)))
    slots = sweep.slots(sweep.stages)
    assert slots[0].noise_multiplier > slots[1].noise_multiplier > slots[2].noise_multiplier
    pools = tuple(slot.with_steps(trials * slot.steps) for slot, (trials, _) in zip(slots, sweep.stages, strict=True))
    assert 2.7 < claim(Composed(pools), digits_task.delta).epsilon <= 3.0  # the rest is spare
    assert 1.0 < sweep.ratio(sweep.stages) < 1.35
    assert sweep.ratio(((4, 0.2), (3, 0.8))) < 2.2


@pytest.mark.long
def test_candidates_of_a_selection_cost_the_price(price, digits_task):
    slot = price.Sweep(digits_task, None, 0, 3.0, ((1, 1.0),)).slot
    event = price.candidate(slot, 3.0, digits_task.delta)
    assert 2.97 < selection_epsilon(event, price._REPETITIONS, digits_task.delta) <= 3.0


@pytest.mark.long
def test_what_explorers_show_reaches_the_finals(script, price, digits_task):
    trainings = Pretended(script)
    sweeps = [price.Sweep(digits_task, trainings, seed, 3.0, ((6, 0.05), (2, 0.15), (1, 0.8))) for seed in range(2)]
    ways = price.compare(sweeps)
    worth = {way: found.validation[2] for way, found in ways.found.items()}
    assert worth["affordable"] > max(worth["total P"], worth["random"])
    assert min(worth["affordable"], worth["rehearsed"]) > 0.8 * worth["each P"]
    assert min(*ways.taus, *ways.rehearsal_taus) > 0.8


def test_figures_are_of_the_points_that_validation_rows_chose(script, price):
    scored = script("_price_training").Scored
    shown, hidden = numpy.array([[0.9, 0.2], [0.5, 0.6], [0.4, 0.1]]), numpy.array([[0.8, 0.1], [0.6, 0.5], [1.0, 1.0]])
    found = price.Found.of(scored(shown, hidden))
    assert found.validation == pytest.approx([0.9, 0.6, 0.9 * 0.2 + 0.5 * 0.4])
    assert found.test == pytest.approx([0.8, 0.5, 0.8 * 0.1 + 0.6 * 0.4])


def test_errors_of_a_mean_over_seeds_are_its_standard_errors(price):
    seeds = [numpy.array([0.1, 0.5, 0.2]), numpy.array([0.3, 0.4, 0.2]), numpy.array([0.2, 0.9, 0.2])]
    means = [numpy.mean([*seeds[:i], *seeds[i + 1 :]], axis=0) for i in range(3)]
    error = price.Found.error([price.Found(mean, 2 * mean) for mean in means])
    assert error.validation == pytest.approx(numpy.std(seeds, axis=0, ddof=1) / 3**0.5)
    assert error.test == pytest.approx(2 * error.validation)


def test_pools_are_large_enough_to_draw_a_whole_sweep_from(price):
    assert price.pools(5, 16) == price.POOLED
    assert all(count == 16 for count in price.pools(1, 16).values())


def test_a_table_is_what_was_written_and_later_measurements_take_the_place_of_earlier_ones(script, tmp_path):
    table, path = script("_price_table"), tmp_path / "price.json"
    assert table.Table.read(path) == table.Table()
    made = table.Table()
    for task, price, accuracy in (
        ("digits", 3.0, 0.5),
        ("adult", 1.0, 0.7),
        ("digits", 1.0, 0.4),
        ("digits", 3.0, 0.6),
    ):
        values = dict.fromkeys(("validation", "test"), (accuracy, 0.3, 0.2))
        errors = dict.fromkeys(("validation_errors", "test_errors"), (0.01, 0.02, 0.03))
        row = table.Row(task=task, price=price, way="each P", seeds=5, **values, **errors)
        pairs = dict.fromkeys(("taus", "rehearsal_taus", "ratios"), (0.5, 0.25))
        made = made.with_([row], table.Note(task=task, price=price, date="2026-11-22", seconds=1, **pairs))
    made.write(path)
    assert table.Table.read(path) == made
    assert [(row.task, row.price, row.validation[0]) for row in made.rows] == [
        ("digits", 1.0, 0.4),
        ("digits", 3.0, 0.6),
        ("adult", 1.0, 0.7),
    ]
    assert "| digits, 5 seeds | 3 | each P | 60.0 ± 1.0 (1.00) | 30.0 ± 2.0 (1.00)" in made.markdown()


def test_results_and_the_picture_have_the_numbers_of_the_table(script):
    table = script("_price_table").Table.read()
    results = (BENCHMARKS / "RESULTS.md").read_text(encoding="utf-8")
    assert table.rows
    assert table.markdown() in results
    ways = script("_measured_ways")
    drawn = ways.rows(ways.info([row.spending() for row in table.rows]))
    measured = {(row.task, row.price, row.way): row for row in table.rows}
    assert len(drawn) == len(measured)
    for row in drawn:
        source = measured[row["task"], row["epsilon"], row["way"]]
        assert (row["accuracy"], row["certified"]) == source.validation[:2]
        assert (row["accuracy_error"], row["certified_error"]) == (source.validation_errors or (None, None))[:2]


def test_a_training_is_done_once(script, monkeypatch, tmp_path, digits_task):
    training = script("_price_training")
    digits_task.content["training"]["epochs"] = 1
    (proposal,) = sample(digits_task.spec(), 1)
    first = training.Trainings(tmp_path).scores(digits_task, proposal, 5.0, 0)
    monkeypatch.delattr(training, "_train")
    again = training.Trainings(tmp_path).scores(digits_task, proposal, 5.0, 0)
    assert first.validation.shape == first.test.shape == (1 + len(training.DECAYS), 2)
    assert (first.validation == again.validation).all()
    assert (first.test == again.test).all()


def test_a_rehearsal_reads_validation_rows_alone(script, monkeypatch, tmp_path, digits_task):
    training = script("_price_training")
    digits_task.content["training"]["epochs"] = 1
    (proposal,) = sample(digits_task.spec(), 1)
    data, rows = digits_task.data, []
    train = training._train
    monkeypatch.setattr(training, "_train", lambda _, half, *rest: rows.append(half) or train(_, half, *rest))
    training.Trainings(tmp_path).rehearsed(digits_task, proposal, 5.0, 0)
    assert sorted(len(half.train) for half in rows) == [130, 131]
    for half in rows:
        seen = torch.cat([half.train.x, half.validation.x])
        assert torch.equal(seen.sum(dim=0), data.validation.x.sum(dim=0))
        assert half.test is half.validation


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize(
    "part",
    ["waiting", "noise", "steps", "layers", "evaluation"]
    + [pytest.param(part, marks=pytest.mark.long) for part in ("exact", "stacks")],
)
def test_the_script_for_a_gpu_measures_on_a_cpu(script, part, monkeypatch):
    gpu = script("gpu")
    monkeypatch.setattr(gpu, "CONTENDERS", {"private": (512,), "opacus": (64,)})
    monkeypatch.setattr(gpu, "by_processes", lambda *_: 1.0)
    monkeypatch.setattr(gpu, "ARCHITECTURES", ["mlp"])
    text = gpu.report(gpu.PARTS[part], gpu.Place("cpu", gpu.SMALL))
    assert "Failed" not in text
    assert len([line for line in text.splitlines() if line.startswith("|")]) >= 3


def test_a_part_that_fails_costs_the_others_nothing(script):
    def broken(_):
        """Breaks."""
        yield "a", "b"
        raise RuntimeError("no such kernel")

    text = script("gpu").report(broken, None)
    assert "| a | b |" in text
    assert "no such kernel" in text


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


@pytest.mark.long
def test_curves_are_measured_against_what_the_thesis_and_a_bound_say(script, monkeypatch, capsys, tmp_path):
    curves, peers = script("curves"), script("_curve_peers")
    assert peers.levels(1) == 0
    assert [peers.levels(leaves) for leaves in (2, 3, 128, 129)] == [1, 2, 7, 8]
    error = curves.counts_error(peers.thesis_noise(0.5, 32, curves.MOVED), 32, curves.MOVED, 1500)
    assert error == pytest.approx(2.0 * 6**3 / 0.25, rel=0.06)
    for leaves in (8, 64):
        root = curves.SquareRoot(leaves).gaussian_variance(curves.ADDED)
        assert 0.5 * root < peers.least_gaussian_variance(leaves) < root
    generator = numpy.random.default_rng(0)
    scores = generator.beta(2, 4, 4000)
    positive = generator.random(4000) < scores
    exact = curves._exact_statistic(scores, positive)
    assert 0.0 < exact < 40.0  # calibrated
    assert peers.algorithm_10(scores, positive, curves.probabilities(), 1e6, generator) == pytest.approx(
        exact, rel=0.05
    )
    monkeypatch.setattr(curves, "scored", lambda *_: (scores, positive))
    monkeypatch.setattr(curves, "TABLES", ("one",))
    monkeypatch.setattr(curves, "EPSILONS", (0.5, 2.0))
    for part in ("roc", "hosmer-lemeshow", "quantiles"):
        first, *_ = curves.PARTS[part](tmp_path, 2)
        assert first.lines[0].y[0] > first.lines[0].y[1] > 0.0
    assert "| one | 4000 |" in capsys.readouterr().out


def test_federated_curves_are_whole_and_their_picture_is_drawn(script, tmp_path):
    federated = script("federated")
    bits, seconds = federated.aggregation(4, 10, 6)
    assert bits == federated.roster.communication_bits(4, federated.words(10))
    assert seconds > 0.0
    assert federated.sharing_bits(100, 1000, servers=4) == 2 * federated.sharing_bits(100, 1000)
    assert federated.sharing_bits(1000, 1000) < federated.words_bits(1000, 1000)
    assert federated.sharing_bits(1000, 10) > federated.words_bits(1000, 10)
    federated.picture(tmp_path / "federated.svg")
    assert len(list(ElementTree.parse(tmp_path / "federated.svg").iter("{http://www.w3.org/2000/svg}polyline"))) == 6


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
def test_a_step_is_measured_beside_that_of_another_worktree(script):
    before = script("step_before")
    options = argparse.Namespace(batch=20, threads=1, steps=1, rounds=1, earlier=BENCHMARKS.parent)
    line = before.line("mlp, 13 inputs", options)
    assert "| 32 -> 32 |" in line
