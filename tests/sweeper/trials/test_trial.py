"""One trial: its plan before any noise, one row per epoch, and which rows of data it may see."""

from dataclasses import replace

import pytest
import torch

import clipless
from clipless.datasets import Split
from clipless.errors import PlanError
from clipless.losses import HKR, Reduction
from clipless.network import Network
from clipless.privacy.accounting.claim import claim
from clipless.testing import SeededSource
from clipless.training import checkpoint
from clipless.training.optimizers import SGD, Adam
from sweeper.adapters import dump
from sweeper.errors import SpecError
from sweeper.privacy.card.make import make_card
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import price
from sweeper.records import Objective, Point, Trial
from sweeper.specification.trial_config import TrialConfig
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.build import build_loss, build_model, build_optimizer
from sweeper.trials.trial import TrialRun
from tests.factories import Untouchable

OBJECTIVES = tuple(Objective.named(name) for name in ("epsilon", "accuracy", "certified@1/4"))
EPOCHS = 5


def config(**changes):
    """A small trial; ``changes`` replace keys of its sections."""
    content = {
        "model": {"architecture": "mlp", "width": 16, "input_clip": 4.0},
        "training": {
            "method": "clipless",
            "epochs": EPOCHS,
            "batch_size": 256,
            "learning_rate": 0.05,
            "optimizer": "adam",
            "loss": {"name": "tau-cce", "temperature": 0.3},
            "sensitivity_fraction": 0.1,
        },
        "privacy": {"noise_multiplier": 0.5, "delta": 1e-4, "noise": "min-variance", "relation": "add-or-remove-one"},
    }
    for section, keys in changes.items():
        content[section] = {k: v for k, v in (content[section] | keys).items() if v is not None}
    return TrialConfig.from_json(content)


def trial(data, *, seed=0, source=None, folder=None, recorded=0, repeats=1, **changes):
    return TrialRun(
        trial="t0003",
        config=config(**changes),
        data=data,
        objectives=OBJECTIVES,
        seed=seed,
        folder=folder,
        source=source,
        recorded=recorded,
        repeats=repeats,
    )


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def trained(data, **options):
    run = trial(data, **options)
    rows = list(run.epoch_rows())
    return run, rows


class CountingSource(SeededSource):  # type: ignore[misc]
    drawn = 0

    def random_bytes(self, count):
        self.drawn += count
        return super().random_bytes(count)


def test_the_plan_comes_before_any_noise(digits):
    source = CountingSource(0)
    run = trial(digits, source=source)
    row = run.plan_row()
    assert row.KIND == "plan"
    assert source.drawn == 0
    curve = run.plan.epsilon_curve()
    assert len(curve) == EPOCHS
    bounds = {"pld": [one.pld for one in run.plan.claims()], "rdp": [one.rdp for one in run.plan.claims()]}
    more = {"secure_generator": False, "epsilon_curve": curve, "accountants": bounds, "repeats": 1}
    more["risks"] = [dump(risk) for risk in run.plan.risks()]
    assert dump(row.plan) == run.plan.to_json() | more
    assert [min(both) for both in zip(*bounds.values(), strict=True)] == curve
    assert row.kept == 0
    assert run.plan_row().attempt != row.attempt
    assert row.plan.population == len(digits.train)


def test_one_event_has_one_price_wherever_it_is_shown(digits, claim, tmp_path):
    """A budget of 3 is asked for: the epochs, the plan, the ledger, the card and the claim say the same, at most 3."""
    run, rows = trained(digits, source=SeededSource(0), privacy={"epsilon": 3.0, "noise_multiplier": None})
    plan, values, ledger = run.plan_row().plan, rows[-1].values, Ledger(tmp_path / "ledger.jsonl")
    ledger.open("t0003", run.plan.event())
    answers = ledger.answers(1e-4)
    point = Point(trial="t0003", epoch=EPOCHS, values=values)
    kept = Trial(id="t0003", config={}, plan=plan)
    facts = {"sweep": "s", "trial": kept, "point": point, "claim": claim, "ledger": answers, "attempts": ()}
    card = make_card(**facts).to_json()["guarantee"]
    everywhere = {
        "epoch": values["epsilon"],
        "plan": plan.epsilon_curve[-1],
        "check": run.plan.claims()[-1].epsilon,
        "claim": price([run.plan.event()], 1e-4).epsilon,
        "ledger": answers["winner"].epsilon,
        "ledger, tight": ledger.answers(1e-4, tight=True)["everything"].epsilon,
        "card, fixed in advance": card["fixed_in_advance"]["epsilon"],
        "card, chosen afterwards": card["chosen_afterwards"]["epsilon"],
    }
    assert len(set(everywhere.values())) == 1, everywhere
    assert 0.99 * 3.0 <= values["epsilon"] <= 3.0


def test_the_plan_says_that_batches_and_noise_are_secure_unless_a_source_was_injected(digits):
    assert trial(digits).plan_row().plan.secure_generator is True
    assert trial(digits, source=SeededSource(0)).plan_row().plan.secure_generator is False


def test_every_epoch_is_a_row_with_its_epsilon_and_the_scores_of_the_validation_rows(digits):
    run, rows = trained(digits, source=SeededSource(0))
    assert [(row.KIND, row.epoch) for row in rows] == [("epoch", t + 1) for t in range(EPOCHS)]
    assert [row.done for row in rows] == [False] * (EPOCHS - 1) + [True]
    assert [row.values["epsilon"] for row in rows] == run.plan.epsilon_curve()
    assert {tuple(row.values) for row in rows} == {("epsilon", "accuracy", "certified@1/4")}
    assert all(row.model is None for row in rows)
    assert rows[-1].values["accuracy"] > 0.5
    expected = clipless.evaluate(run.model, digits.validation, ["1/4"], digits.metadata.input_gain)
    assert rows[-1].values == {"epsilon": rows[-1].values["epsilon"], **expected}


def test_validation_rows_never_enter_training(digits):
    """Whatever stands in their place, the same source trains the same weights, bit for bit."""
    count = len(digits.validation)
    generator = torch.Generator().manual_seed(0)
    poison = Split(torch.rand(count, 1, 8, 8, generator=generator), torch.randint(0, 10, (count,), generator=generator))
    honest, _ = trained(digits, source=SeededSource(1))
    poisoned, _ = trained(replace(digits, validation=poison), source=SeededSource(1))
    assert torch.equal(weights(honest.model), weights(poisoned.model))


def test_training_rows_do_enter_training(digits):
    y = digits.train.y.clone()
    y[:20] = (y[:20] + 1) % 10
    honest, _ = trained(digits, source=SeededSource(1))
    changed, _ = trained(replace(digits, train=Split(digits.train.x, y)), source=SeededSource(1))
    assert not torch.equal(weights(honest.model), weights(changed.model))


def test_the_test_split_is_not_touched(digits, tmp_path):
    data = replace(digits)
    object.__setattr__(data, "test", Untouchable())
    (tmp_path / "models").mkdir()
    run, rows = trained(data, folder=tmp_path)
    assert len(rows) == EPOCHS
    assert run.plan.population == len(digits.train)


def test_the_validation_split_is_not_touched_before_the_first_epoch_is_done(digits):
    data = replace(digits)
    object.__setattr__(data, "validation", Untouchable())
    trial(data).plan_row()


def dominated(rows, epoch):
    """Whether an earlier epoch, cheaper by definition, was at least as good in every score."""
    scores = ("accuracy", "certified@1/4")
    return any(all(rows[t].values[s] >= rows[epoch].values[s] for s in scores) for t in range(epoch))


def test_models_are_saved_for_the_points_that_no_earlier_one_dominates(digits, tmp_path):
    (tmp_path / "models").mkdir()
    _, rows = trained(digits, folder=tmp_path, source=SeededSource(2), training={"epochs": 12, "learning_rate": 0.2})
    kept = [row.epoch for row in rows if row.model]
    assert kept == [t + 1 for t in range(12) if not dominated(rows, t)]
    assert 1 < len(kept) < 12
    assert [row.model for row in rows if row.model] == [SweepFolder.model_name("t0003", t) for t in kept]
    files = sorted(p.relative_to(tmp_path).as_posix() for p in (tmp_path / "models").iterdir())
    assert files == sorted(row.model for row in rows if row.model)


def test_the_seed_fixes_the_initial_weights_and_nothing_else(digits):
    first, second, third = trial(digits, seed=1), trial(digits, seed=1), trial(digits, seed=2)
    assert torch.equal(weights(first.model), weights(second.model))
    assert not torch.equal(weights(first.model), weights(third.model))
    for run in (first, second):
        next(run.epoch_rows())
    assert not torch.equal(weights(first.model), weights(second.model))


def test_batches_do_not_follow_from_the_seed(digits, monkeypatch):
    """Without noise, two runs of one seed differ by their batches alone, and they do differ."""
    from clipless.privacy import randomness

    monkeypatch.setattr(randomness.SecureSource, "normal", lambda _, count, device: torch.zeros(count, device=device))
    runs = [trial(digits, seed=1) for _ in range(2)]
    for run in runs:
        next(run.epoch_rows())
    assert (weights(runs[0].model) - weights(runs[1].model)).norm() > 1e-2


@pytest.mark.long
def test_micro_batches_change_nothing_but_memory(digits):
    whole, _ = trained(digits, source=SeededSource(5))
    pieces, _ = trained(digits, source=SeededSource(5), training={"micro_batch_size": 50})
    torch.testing.assert_close(weights(whole.model), weights(pieces.model), rtol=1e-3, atol=1e-3)


def test_a_budget_becomes_noise(digits):
    run = trial(digits, privacy={"noise_multiplier": None, "epsilon": 3.0}, training={"epochs": 2})
    assert run.plan.epochs == 2
    assert run.plan.noise_multiplier > 0.3
    assert 2.97 <= claim(run.plan.event(), 1e-4).epsilon <= 3.0


def test_every_setting_of_privacy_reaches_the_plan(digits):
    run = trial(digits, privacy={"noise": "global", "delta": 1e-5}, training={"sensitivity_fraction": 0.3})
    assert run.plan.allocation.value == "global"
    assert (run.plan.delta, run.plan.sensitivity_fraction, run.plan.batch_size) == (1e-5, 0.3, 256)
    with pytest.raises(PlanError, match="delta"):
        trial(digits, privacy={"delta": 0.01})
    assert trial(digits, privacy={"delta": 0.01, "accept_large_delta": True}).plan.delta == 0.01


@pytest.mark.parametrize(
    ("keys", "built"),
    [
        ({"optimizer": "adam", "learning_rate": 0.1}, Adam(0.1)),
        ({"optimizer": "sgd", "learning_rate": 0.1}, SGD(0.1)),
        ({"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9}, SGD(0.1, 0.9)),
    ],
)
def test_the_optimiser_is_the_configured_one(keys, built):
    assert build_optimizer(config(training=keys)) == built


def test_the_loss_is_the_configured_one():
    assert build_loss(config()) == clipless.TauCCE(0.3)
    assert build_loss(config(training={"loss": {"name": "tau-bce"}})) == clipless.TauBCE()
    hkr = {"name": "hkr", "alpha": 5.0, "margin": 0.5, "reduction": "sum"}
    assert build_loss(config(training={"loss": hkr})) == HKR(5.0, 0.5, reduction=Reduction.SUM)


@pytest.mark.parametrize(("clip", "radius"), [(4.0, 4.0), (None, 8.0), (100.0, 8.0)])
def test_inputs_are_clipped_no_wider_than_the_data_are_declared(digits, clip, radius):
    model = build_model(config(model={"input_clip": clip}), digits, clipless.TauCCE(), seed=0)
    assert type(model) is Network
    assert model.layers[0].radius == radius


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"architecture": "transformer"}},
        {"model": {"dropout": 0.5}},
        {"model": {"depth": 0}},
        {"model": {"architecture": "convnet", "depth": 5}},
        {"training": {"loss": {"name": "tau-bce"}}},
    ],
)
def test_a_model_that_does_not_fit_is_refused_naming_the_architecture(digits, changes):
    with pytest.raises(SpecError, match=r"Expected .*\(model\.architecture=.* on digits\)"):
        trial(digits, **changes)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "model",
    [
        {"architecture": "lenet", "width": 4, "hidden": 20, "pooling": "avg", "bias": True},
        {"architecture": "vgg", "width": 4, "hidden": 8, "convolutions": 1, "activation": "relu", "pooling": "max"},
        {"architecture": "resnet", "width": 4, "blocks": 1, "skip": 0.3, "learned_skip": True, "bias": True},
        {"architecture": "wide-resnet", "width": 2, "widening": 2, "activation": "householder"},
        {"architecture": "mixer", "width": None, "patch": 4, "depth": 1, "skip": 0.5, "constraint": "standardised"},
    ],
    ids=lambda model: model["architecture"],
)
def test_every_architecture_makes_a_trial(digits, model):
    run = trial(digits, model=model, training={"epochs": 1})
    (point,) = list(run.epoch_rows())[-1:]
    assert 0 <= point.values["accuracy"] <= 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("changes", "private"),
    [
        ({"method": "lip-dp-sgd"}, True),
        ({"method": "clipless", "follow_weights": True, "schedule": "cosine", "averaging": 0.9}, True),
        ({"method": "clipless", "exact_norms": True}, True),
        ({"method": "clipless", "freeze_after": 0.5}, True),
        ({"method": "clipless", "shift": 1, "copies": 2}, True),
        ({"method": "clipless", "gradient_clip": 0.5, "gradient_clip_schedule": "cosine"}, True),
        ({"method": "lip-dp-sgd", "gradient_clip": 1.4, "gradient_clip_schedule": "adaptive"}, True),
        ({"method": "dp-sgd", "sensitivity_fraction": None, "clip_norm": 0.5}, True),
        ({"method": "dp-sgd", "sensitivity_fraction": None, "clip_norm": 0.5, "ghost_clipping": True}, True),
        ({"method": "non-private", "sensitivity_fraction": None}, False),
    ],
)
def test_every_method_is_one_trial_like_any_other(digits, changes, private):
    privacy = {} if private else {"noise_multiplier": None, "noise": None}
    run, rows = trained(digits, training=changes, privacy=privacy, source=SeededSource(0))
    assert run.plan.method.value == changes["method"]
    assert [row.epoch for row in rows] == list(range(1, EPOCHS + 1))
    epsilons = [row.values["epsilon"] for row in rows]
    assert all(epsilon < float("inf") for epsilon in epsilons) == private
    assert rows[-1].values["accuracy"] > 0.3


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("model", "releases"),
    [
        ({"standardise": True, "input_clip": 10.0}, 1),
        ({"input_quantile": 0.5}, 1),
        ({"standardise": True, "input_quantile": 0.9}, 2),
    ],
)
def test_private_statistics_are_part_of_the_trial(digits, model, releases):
    run, rows = trained(digits, model=model, source=SeededSource(0))
    assert run.plan.preliminary_steps == releases
    assert rows[-1].values["epsilon"] == run.plan.epsilon_curve()[-1]
    assert rows[-1].values["accuracy"] > 0.3
    again = clipless.evaluate(run.model, digits.validation, ["1/4"], digits.metadata.input_gain)
    assert again["accuracy"] == rows[-1].values["accuracy"]


def test_a_norm_that_follows_a_quantile_pays_for_it(digits):
    clip = {"gradient_clip": 1.0, "gradient_clip_schedule": "adaptive"}
    fixed, default, other = (
        trial(digits, training=changes).plan_row().plan
        for changes in ({"gradient_clip": 1.0}, clip, clip | {"clip_quantile": 0.5})
    )
    assert default.clipping == {"kind": "adaptive", "quantile": 0.9, "share": 0.01, "rate": 0.2}
    assert other.clipping["quantile"] == 0.5
    assert default.count_std > 0 == fixed.count_std
    for name, std in fixed.noise_stds.items():
        assert default.noise_stds[name] == pytest.approx(std / 0.99**0.5)


def test_clipped_gradients_of_the_logits_lower_every_sensitivity(digits):
    plain, clipped = (trial(digits, training={"gradient_clip": clip}) for clip in (None, 0.1))
    assert set(plain.plan.sensitivities) == set(clipped.plan.sensitivities)
    for name, delta in clipped.plan.sensitivities.items():
        assert delta < 0.15 * plain.plan.sensitivities[name]


def test_a_trial_goes_on_from_its_last_epoch_and_reports_what_was_not_recorded(digits, tmp_path):
    (tmp_path / "models").mkdir()
    first = trial(digits, folder=tmp_path, source=SeededSource(1))
    rows = first.epoch_rows()
    before = [next(rows) for _ in range(2)]
    second = trial(digits, folder=tmp_path, source=SeededSource(2), recorded=1)
    assert second.plan_row().kept == 2 * second.plan.steps_per_epoch
    after = list(second.epoch_rows())
    assert [row.epoch for row in after] == list(range(2, EPOCHS + 1))
    assert after[0].values == before[1].values
    third = trial(digits, folder=tmp_path, source=SeededSource(3), recorded=EPOCHS - 1)
    assert [(row.epoch, row.done) for row in third.epoch_rows()] == [(EPOCHS, True)]


def test_a_trial_whose_state_is_lost_after_its_plan_draws_nothing(digits, tmp_path, monkeypatch):
    """The plan was charged for the rest alone: a state that cannot be read then is no training from the beginning."""
    (tmp_path / "models").mkdir()
    rows = trial(digits, folder=tmp_path, source=SeededSource(1)).epoch_rows()
    for _ in range(2):
        next(rows)
    again = trial(digits, folder=tmp_path, source=SeededSource(2), recorded=2)
    assert again.plan_row().kept == 2 * again.plan.steps_per_epoch
    monkeypatch.setattr(checkpoint, "read_tensors", _no_room)
    drawn = []
    monkeypatch.setattr(SeededSource, "normal", lambda *_: drawn.append("noise"))
    monkeypatch.setattr(SeededSource, "random_bytes", lambda *_: drawn.append("batch"))
    with pytest.raises(PlanError, match="state of epoch 2"):
        next(again.epoch_rows())
    assert drawn == []


def _no_room(_path):
    raise MemoryError


def test_repeats_are_trainings_of_their_own_whose_means_are_reported(digits, tmp_path):
    (tmp_path / "models").mkdir()
    run = trial(digits, folder=tmp_path, source=SeededSource(1), repeats=3)
    one = trial(digits)
    assert torch.equal(weights(run.model), weights(one.model))  # the first repeat is what the trial would be alone
    starts = [weights(repeat.model) for repeat in run._repeats]
    assert not any(torch.equal(starts[0], other) for other in starts[1:])
    row = next(run.epoch_rows())
    assert row.values["accuracy"] == pytest.approx(sum(row.repeats["accuracy"]) / 3)
    assert len(set(row.repeats["accuracy"])) > 1
    assert row.values["epsilon"] == run.plan.epsilon_curve()[0]
    kept = clipless.load(tmp_path / row.model)
    assert clipless.evaluate(kept, digits.validation)["accuracy"] == row.repeats["accuracy"][0]
    assert run.plan_row().plan.repeats == 3


@pytest.mark.long
def test_repeats_that_were_cut_off_between_two_of_them_go_on_side_by_side(digits, tmp_path):
    (tmp_path / "models").mkdir()
    rows = trial(digits, folder=tmp_path, source=SeededSource(1), repeats=2).epoch_rows()
    next(rows)
    before = (tmp_path / SweepFolder.checkpoint_name("t0003", 1)).read_bytes()
    second = next(rows)
    (tmp_path / SweepFolder.checkpoint_name("t0003", 1)).write_bytes(before)  # killed while it trained the second
    again = trial(digits, folder=tmp_path, source=SeededSource(2), repeats=2, recorded=1)
    assert again.plan_row().kept == 3 * again.plan.steps_per_epoch
    after = list(again.epoch_rows())
    assert [row.epoch for row in after] == list(range(2, EPOCHS + 1))
    assert after[0].repeats["accuracy"][0] == second.repeats["accuracy"][0]
