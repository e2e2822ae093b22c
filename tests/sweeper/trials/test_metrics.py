"""Metrics beside the objectives: which there are, what they may read, and that no report contradicts itself."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import clipless
from clipless.attacks import AutoAttack, autoattack
from clipless.datasets import Evaluation, Split, load
from clipless.errors import UnsupportedError
from clipless.losses import TauCCE
from clipless.testing import SeededSource
from sweeper.errors import RefutedError, SpecError
from sweeper.pareto.dominance import FrontArchive
from sweeper.privacy.claims import Claim
from sweeper.records import MEMBERSHIP, Direction, Objective, Point
from sweeper.specification import objectives
from sweeper.specification.spec import Spec
from sweeper.specification.trial_config import TrialConfig
from sweeper.trials import metrics
from sweeper.trials.metrics import MEMBERSHIP_ROWS, TrialMetrics, check_metrics, some_rows
from sweeper.trials.trial import TrialRun
from tests.factories import Untouchable, plan_sweep

NAMES = ("attacked@0.25", "attacked@1", "membership-auroc", "membership-advantage")
OBJECTIVES = tuple(Objective.named(name) for name in ("epsilon", "accuracy", "certified@1/4"))


@pytest.fixture(scope="module")
def digits():
    """Digits with fewer validation rows, which attacks take their time on."""
    data = load("digits")
    return replace(data, validation=Split(data.validation.x[:120], data.validation.y[:120]))


@pytest.fixture
def declare(digits):
    """The public facts of digits, changed."""
    return lambda **changes: replace(digits.metadata, **changes)


def with_metrics(content, *names, **changes):
    content["search"] = {"metrics": list(names), **changes.pop("search", {})}
    return content | changes


def config(epochs=6, **loss):
    return TrialConfig.from_json(
        {
            "model": {"architecture": "mlp", "width": 16, "input_clip": 4.0},
            "training": {
                "method": "clipless",
                "epochs": epochs,
                "batch_size": 256,
                "learning_rate": 0.05,
                "optimizer": "adam",
                "loss": {"name": "tau-cce", "temperature": 0.3, **loss},
                "sensitivity_fraction": 0.1,
            },
            "privacy": {"noise_multiplier": 0.5, "delta": 1e-4, "relation": "add-or-remove-one"},
        }
    )


def rows_of(data, names=NAMES, **options):
    run = TrialRun(
        trial="t0001",
        config=config(**options),
        data=data,
        objectives=OBJECTIVES,
        metrics=names,
        seed=3,
        source=SeededSource(0),
    )
    return run, list(run.epoch_rows())


@pytest.fixture(scope="module")
def rows(digits):
    return rows_of(digits)[1]


# Names


def test_metrics_are_listed_beside_the_objectives_and_there_are_none_by_default(content):
    assert Spec.from_mapping(content).search.metrics == ()
    spec = Spec.from_mapping(with_metrics(content, "certified@1/2", *NAMES))
    assert spec.search.metrics == ("certified@1/2", *NAMES)
    assert [objective.name for objective in spec.objectives] == ["epsilon", "accuracy"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["attcked@1"], r"Expected a metric: certified@R, .* or membership-advantage, got metrics='attcked@1'"),
        (["attacked@0"], r"Expected a radius > 0 such as .*got metrics='attacked@0'"),
        (
            ["attacked@1/4", "attacked@0.25"],
            r"Expected each metric once, got metrics='attacked@0.25'.*search.metrics.1",
        ),
        ("attacked@1", r"Expected a list of metrics such as \[attacked@36/255, membership-auroc\]"),
        (["certified@0.25"], r"Expected no metric that is an objective, got .*certified@0.25.*; leave it out"),
    ],
)
def test_what_is_no_metric_is_refused(content, names, said):
    search = {"metrics": names, "objectives": ["epsilon", "accuracy", "certified@1/4"]}
    with pytest.raises(SpecError, match=said):
        Spec.from_mapping(content | {"search": search}, "f.yaml")


@pytest.mark.parametrize("name", NAMES)
def test_an_attack_is_no_objective(content, name):
    with pytest.raises(SpecError, match=r"Expected no attack among the objectives: list it in search\.metrics, got"):
        Spec.from_mapping(content | {"search": {"objectives": ["epsilon", name]}})


def test_a_metric_of_two_classes_is_refused_for_ten(content):
    spec = Spec.from_mapping(with_metrics(content, "certified-auroc@1"), "f.yaml")
    spec.validate_against(1276, 2)
    with pytest.raises(SpecError, match=r"Expected two classes for the metric certified-auroc@1, .*search\.metrics"):
        spec.validate_against(1276, 10)


def test_an_attacker_gains_where_membership_is_larger():
    assert [objectives.parse_metric(name).direction for name in NAMES] == [Direction.MAXIMIZE] * 2 + [
        Direction.MINIMIZE
    ] * 2


def test_every_attacked_radius_is_certified_once(content):
    search = {"objectives": ["accuracy", "certified@1/4"]}
    names = ("attacked@0.25", "autoattacked@1/2", "attacked@0.5", "membership-auroc")
    assert Spec.from_mapping(with_metrics(content, *names, search=search)).radii == ("1/4", "1/2")


# Accuracy under attack


@pytest.mark.long
def test_certified_attacked_and_accuracy_are_in_order_wherever_an_attack_was_run(rows):
    found = [row.values for row in rows if "attacked@1" in row.values]
    assert found
    for values in found:
        assert values["certified@1/4"] <= values["attacked@0.25"] <= values["accuracy"]
        assert values["certified@1"] <= values["attacked@1"] <= values["attacked@0.25"]
    assert any(values["certified@1"] < values["attacked@1"] for values in found)  # both sides say something
    assert any(values["attacked@1"] < values["accuracy"] for values in found)


def test_attacks_are_run_on_every_validation_row(digits, monkeypatch):
    seen = []

    def attacked(_model, split, radius, gain, **_):
        seen.append((split.x.shape, radius, gain))
        return 0.5

    monkeypatch.setattr(metrics, "attacked_accuracy", attacked)
    found = TrialMetrics(["attacked@1/3"], digits.metadata, TauCCE(), seed=0)
    scores = {"accuracy": 0.6, "certified@1/3": 0.4}
    computed = found.compute(None, scores, train=Untouchable(), validation=digits.validation)
    assert computed == {"attacked@1/3": 0.5}
    assert seen == [(digits.validation.x.shape, "1/3", digits.metadata.input_gain)]


@pytest.mark.parametrize(
    "scores",
    [{"accuracy": 0.6, "certified@1/4": 0.51}, {"accuracy": 0.49, "certified@1/4": 0.1}],
    ids=["certificate refuted", "better under attack"],
)
def test_a_report_that_contradicts_itself_is_refused(digits, monkeypatch, scores):
    monkeypatch.setattr(metrics, "attacked_accuracy", lambda *_, **__: 0.5)
    found = TrialMetrics(["attacked@0.25"], digits.metadata, TauCCE(), seed=0)
    with pytest.raises(RefutedError, match=r"Expected certified <= attacked@0\.25 <= accuracy on the same rows"):
        found.compute(None, scores, train=digits.train, validation=digits.validation)


def test_a_wrong_certificate_fails_the_trial(digits, monkeypatch):
    real = clipless.evaluate

    def boastful(*args, **options):
        return {name: 1.0 if "@" in name else value for name, value in real(*args, **options).items()}

    monkeypatch.setattr(clipless, "evaluate", boastful)
    with pytest.raises(RefutedError):
        rows_of(digits, ["attacked@1"], epochs=1)


def test_attacks_are_run_at_epochs_that_no_earlier_one_dominates_and_at_the_last(digits, monkeypatch):
    accuracies = iter([0.3, 0.2, 0.4, 0.4, 0.1])
    monkeypatch.setattr(clipless, "evaluate", lambda *_, **__: {"accuracy": next(accuracies), "certified@1/4": 0.1})
    monkeypatch.setattr(TrialMetrics, "compute", lambda *_, **__: {"attacked@0.25": 0.1})
    _, found = rows_of(digits, ["attacked@0.25"], epochs=5)
    assert ["attacked@0.25" in row.values for row in found] == [True, False, True, False, True]


@pytest.mark.long
def test_every_point_of_a_trials_own_front_has_every_metric(rows):
    archive = FrontArchive(OBJECTIVES)
    points = [Point(trial="t", epoch=row.epoch, values=row.values) for row in rows]
    archive.add(points)
    assert all(set(NAMES) <= set(point.values) for point in archive.points)
    assert set(NAMES) <= set(points[-1].values)


def test_metrics_change_nothing_in_the_training(digits):
    weights = []
    for names in ((), NAMES):
        run, _ = rows_of(digits, names, epochs=2)
        weights.append(torch.cat([p.detach().flatten() for p in run.model.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.long
def test_the_same_training_gives_the_same_metrics_and_touches_no_test_row(digits):
    object.__setattr__(hidden := replace(digits), "test", Untouchable())
    assert [row.values for row in rows_of(hidden, epochs=2)[1]] == [row.values for row in rows_of(digits, epochs=2)[1]]


@pytest.mark.long
def test_autoattack_keeps_the_order_too(digits, monkeypatch):
    monkeypatch.setattr(metrics, "AutoAttack", lambda: AutoAttack(iterations=5, queries=20))
    monkeypatch.setattr(metrics.AutoAttack, "check_installed", lambda: None, raising=False)
    few = replace(digits, validation=Split(digits.validation.x[:40], digits.validation.y[:40]))
    values = rows_of(few, ["autoattacked@1"], epochs=2)[1][-1].values
    assert values["certified@1"] <= values["autoattacked@1"] <= values["accuracy"]


def test_autoattack_without_its_toolbox_is_refused_before_the_sweep(content, digits, monkeypatch):
    def missing():
        raise UnsupportedError("AutoAttack needs the Adversarial Robustness Toolbox")

    monkeypatch.setattr(autoattack, "_toolbox", missing)
    spec = Spec.from_mapping(with_metrics(content, "autoattacked@1"))
    with pytest.raises(UnsupportedError, match="needs the Adversarial Robustness Toolbox"):
        plan_sweep(spec, digits)


# Membership inference


def test_members_are_training_rows_and_the_others_validation_rows(digits, monkeypatch):
    seen = []

    def attack(_model, loss, inside, outside):
        seen.append((loss, inside, outside))
        return SimpleNamespace(auroc=0.7, advantage=0.2)

    monkeypatch.setattr(metrics, "threshold_attack", attack)
    loss = TauCCE(0.3)
    found = TrialMetrics(MEMBERSHIP, digits.metadata, loss, seed=0)
    computed = found.compute(None, {}, train=digits.train, validation=digits.validation)
    assert computed == {"membership-auroc": 0.7, "membership-advantage": 0.2}
    assert seen == [(loss, digits.train, digits.validation)]


def test_a_model_that_learned_its_rows_by_heart_is_found_out(digits):
    generator = torch.Generator().manual_seed(0)
    train, validation = (
        Split(s.x[:100], s.y[torch.randperm(100, generator=generator)]) for s in (digits.train, digits.validation)
    )
    loss = TauCCE(0.05)
    model = clipless.zoo.build("mlp", (1, 8, 8), 10, input_norm=8.0, width=256, generator=generator)
    found = TrialMetrics(MEMBERSHIP, digits.metadata, loss, seed=0)
    before = found.compute(model, {}, train=train, validation=validation)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        loss(model(train.x), train.y).mean().backward()
        optimizer.step()
    after = found.compute(model, {}, train=train, validation=validation)
    assert before["membership-auroc"] == pytest.approx(0.5, abs=0.1)
    assert after["membership-auroc"] > 0.9
    assert after["membership-advantage"] > before["membership-advantage"]


def test_large_splits_are_thinned_by_the_seed_alone():
    many = MEMBERSHIP_ROWS + 7
    split = Split(torch.arange(float(many))[:, None], torch.arange(many))
    one, again, other = (some_rows(split, seed) for seed in (1, 1, 2))
    assert len(one) == MEMBERSHIP_ROWS == len(set(one.y.tolist()))
    assert torch.equal(one.x[:, 0].long(), one.y)
    assert torch.equal(one.y, again.y)
    assert not torch.equal(one.y, other.y)
    small = Split(split.x[:MEMBERSHIP_ROWS], split.y[:MEMBERSHIP_ROWS])
    assert some_rows(small, 1) is small


# What may be read


def test_bundled_sets_say_that_their_training_rows_are_published(digits):
    assert digits.metadata.training_is_open
    assert load("breast_cancer").metadata.training_is_open
    assert not load("digits", evaluation="private").metadata.training_is_open
    assert load("digits", evaluation="exploratory").metadata.training_is_open


@pytest.mark.parametrize("name", MEMBERSHIP)
def test_membership_on_private_evaluation_rows_is_refused(declare, name):
    private = declare(evaluation=Evaluation.PRIVATE)
    with pytest.raises(SpecError, match=r"certificates alone as metrics of private .*evaluation: private on digits"):
        check_metrics([name], private, "f.yaml")
    with pytest.raises(SpecError, match="private"):
        TrialMetrics([name], private, TauCCE(), seed=0)


def test_every_metric_of_private_evaluation_rows_but_certified_accuracy_is_refused(declare):
    for name in ("attacked@1", "autoattacked@1", "certified-auroc@1", "my-own"):
        with pytest.raises(SpecError, match=rf"got {name} with .*\(search\.metrics in f\.yaml\); leave it out, or"):
            check_metrics(["certified@1", name], declare(evaluation=Evaluation.PRIVATE), "f.yaml")
    check_metrics(["certified@1"], declare(evaluation=Evaluation.PRIVATE))


@pytest.mark.parametrize("name", MEMBERSHIP)
def test_membership_on_rows_that_nobody_says_are_published_is_refused(declare, name):
    unsaid = declare(training_published=False)
    said = (
        rf"Expected published training rows for {name}, .*evaluation: public on digits \(search\.metrics in f\.yaml\); "
    )
    with pytest.raises(SpecError, match=said + "leave it out, or set data.evaluation: exploratory"):
        check_metrics(["attacked@1", name], unsaid, "f.yaml")
    with pytest.raises(SpecError, match="published"):
        TrialMetrics([name], unsaid, TauCCE(), seed=0)
    check_metrics(["attacked@1"], unsaid)


@pytest.fixture
def own_table(tmp_path):
    """Data section of a table of one's own, of which ``evaluation`` is still to be said."""
    lines = [f"{i % 50},{i % 7},{'yes' if (i * i) % 11 > 5 else 'no'}" for i in range(400)]
    (tmp_path / "mine.csv").write_text("\n".join(["age,ward,left", *lines]))
    (tmp_path / "ranges.yaml").write_text(
        'source: made up\ntarget: {column: left, classes: ["no", "yes"]}\nothers: {low: 0, high: 50}\n'
    )
    return {"path": str(tmp_path / "mine.csv"), "ranges": str(tmp_path / "ranges.yaml")}


def own_spec(content, own_table, evaluation, *names):
    content |= {"data": own_table | {"evaluation": evaluation}, "training": {"epochs": 1, "batch_size": 64}}
    content["privacy"] = {"epsilon": 3.0, "delta": 1e-3}
    return Spec.from_mapping(with_metrics(content, *names), "f.yaml")


def test_membership_on_a_table_of_ones_own_is_refused_before_the_sweep(content, own_table):
    spec = own_spec(content, own_table, "public", "membership-auroc")
    data = load(**spec.data_options())
    with pytest.raises(SpecError, match=r"published training rows for membership-auroc.*search\.metrics in"):
        plan_sweep(spec, data)


def test_membership_on_a_table_of_ones_own_is_exploratory_or_nothing(content, own_table):
    spec = own_spec(content, own_table, "exploratory", "membership-auroc")
    data = load(**spec.data_options())
    plan_sweep(spec, data)
    assert Claim.about(data.metadata, len(data.train), delta=1e-3, reads_training_rows=True).exploratory
