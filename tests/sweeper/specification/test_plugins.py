"""Plug-ins: found by name, imported when used, refused where they could release what nobody paid for."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import optuna
import pytest
import torch

import clipless
from clipless.datasets import Evaluation
from clipless.losses import TauCCE
from sweeper.driver.recording.held_out_scores import score_front
from sweeper.errors import SpecError
from sweeper.planning.make import make_score_noise, make_trial_settings
from sweeper.records import Direction, Objective, Point
from sweeper.specification import plugins
from sweeper.specification.objectives import metric_list, parse, parse_metric, reads_training_rows
from sweeper.specification.plugins import METRICS, SAMPLERS, Metric, find_metric, metric, sampler
from sweeper.specification.search import Sampler, SamplerName
from sweeper.specification.spec import Spec
from sweeper.trials.metrics import TrialMetrics, check_metrics
from sweeper.trials.scores import scorer
from tests.factories import install_plugins, make_run


@metric("maximize")
def kappa(model, split, declared):
    return 0.25 if len(declared.classes) == 10 and model(split.x).shape == (len(split), 10) else 0.5


@metric("minimize", reads_training_rows=True)
def leak(_model, split, _declared):
    return float(len(split))


@metric("maximize", share=True)
def light(model, split, _declared):
    """How many logits are small: what moves against accuracy."""
    return float((model(split.x).abs() < 0.5).double().mean())


THINGS = SimpleNamespace(
    light=light,
    far=metric("maximize", share=True)(lambda *_: 1.5),
    loss=metric("minimize", share=True)(lambda *_: 0.5),
    inside=metric("maximize", reads_training_rows=True, share=True)(lambda *_: 0.5),
    kappa=kappa,
    leak=leak,
    bad=lambda *_: 1.0,
    text=metric("maximize")(lambda *_: "0.5"),
    gap=metric("maximize")(lambda *_: float("nan")),
    mine=lambda seed: optuna.samplers.RandomSampler(seed=seed),
    wrong=lambda _seed: "tpe",
)


@pytest.fixture
def install(monkeypatch):
    """Install plug-ins: (name, value, group); value ``things:attribute`` is one of ``THINGS``."""
    monkeypatch.setitem(sys.modules, "things", THINGS)
    return lambda *entries: install_plugins(monkeypatch, *entries)


@pytest.fixture
def some(install):
    names = ("kappa", "leak", "bad", "text", "gap", "light", "far", "loss", "inside")
    install(
        *((name, f"things:{name}", METRICS) for name in names),
        *((name, f"things:{name}", SAMPLERS) for name in ("mine", "wrong")),
    )


def test_nothing_is_imported_to_know_a_name(install):
    install(("far", "no_such_module:far", METRICS), ("away", "no_such_module:away", SAMPLERS))
    assert plugins.installed(METRICS) == ("far",)
    assert plugins.is_metric("far")
    assert plugins.check_sampler("away") == "away"
    with pytest.raises(SpecError, match=r"a plug-in that can be imported \(no_such_module:far: ModuleNotFoundError"):
        find_metric("far")


# Metrics


@pytest.mark.usefixtures("some")
def test_a_plug_in_is_a_metric_with_its_direction():
    assert metric_list(["attacked@1", "kappa"]) == ("attacked@1", "kappa")
    assert parse_metric("leak").direction is Direction.MINIMIZE
    assert parse_metric("kappa").direction is Direction.MAXIMIZE
    with pytest.raises(SpecError, match=r"membership-advantage, bad, .* light, loss or text, got 'kapa'"):
        parse_metric("kapa")


@pytest.mark.usefixtures("some")
def test_a_share_to_be_maximised_on_validation_rows_is_an_objective():
    assert parse("light") == Objective("light", Direction.MAXIMIZE)
    for name in ("kappa", "loss", "inside", "leak"):
        with pytest.raises(SpecError, match=rf"metric\('maximize', share=True\), of validation rows.*got '{name}'"):
            parse(name)
    with pytest.raises(SpecError, match=r"smoothed@R, bad, .* or text, got 'ligth'"):
        parse("ligth")


@pytest.fixture
def own(content):
    """A spec with an objective of a plug-in."""
    content["model"]["width"] = 8
    content["training"] = {"epochs": 3, "batch_size": 256, "learning_rate": 0.05}
    return content | {"search": {"objectives": ["epsilon", "accuracy", "light"]}}


@pytest.mark.usefixtures("some")
def test_an_objective_of_a_plug_in_is_scored_after_every_epoch_and_on_test_rows(own, digits, folder):
    spec = Spec.from_mapping(own)
    assert [o.name for o in spec.objectives] == ["epsilon", "accuracy", "light"]
    run = make_run(digits, spec, folder)
    rows = list(run.epoch_rows())
    assert [set(row.values) for row in rows] == [{"epsilon", "accuracy", "light"}] * 3
    assert rows[-1].values["light"] == light.function(run.model, digits.validation, None)
    assert all(row.model is not None for row in rows)  # later epochs are better in accuracy or in the plug-in's
    points = {}
    for row in rows:
        point = Point(trial="t0001", epoch=row.epoch, values=row.values, model=row.model)
        points[point.key] = point
    scored = {}
    records = SimpleNamespace(
        points=points,
        trials={"t0001": SimpleNamespace(config={})},
        archive=SimpleNamespace(points=points.values()),
        add_test=lambda point, scores, *_, **__: scored.update({point.epoch: scores}),
    )
    assert (
        list(
            score_front(
                make_trial_settings(spec, digits), digits, folder, SimpleNamespace(records=records), lambda: False
            )
        )
        == []
    )
    assert set(scored) == {1, 2, 3}
    assert scored[3]["light"] == light.function(run.model, digits.test, None)


@pytest.mark.usefixtures("some")
def test_a_share_beyond_one_is_refused():
    with pytest.raises(SpecError, match=r"Expected a number in \[0, 1\] from the metric far.*got 1.5"):
        find_metric("far").compute("far", None, None, None)


@pytest.mark.usefixtures("some")
def test_an_objective_of_a_plug_in_is_refused_on_private_rows(own, digits):
    declared = replace(digits.metadata, evaluation=Evaluation.PRIVATE, split_by_row=True)
    private, paid = replace(digits, metadata=declared), {"epsilon": 3.0, "delta": 1e-4, "score_noise": 60}
    with pytest.raises(
        SpecError,
        match=r"Expected accuracy, balanced_accuracy, auroc and certified@R only with evaluation: private.*light",
    ):
        make_score_noise(Spec.from_mapping(own | {"privacy": paid}), private)
    noise = make_score_noise(
        Spec.from_mapping(own | {"privacy": paid, "search": {"objectives": ["accuracy"]}}), private
    )
    with pytest.raises(
        SpecError, match=r"Expected accuracy, balanced_accuracy, auroc and certified@R only.*got the objective light"
    ):
        scorer(declared, (), noise, own=["light"])


@pytest.mark.usefixtures("some")
def test_a_plug_in_gets_a_copy_of_the_model_and_the_validation_rows(digits):
    model = clipless.zoo.build("mlp", (1, 8, 8), 10, input_norm=8.0, width=8)
    seen = []

    def spoil(given, split, declared):
        seen.append((split, declared))
        given.layers[-1].weight.data.zero_()
        return 1

    THINGS.kappa, before = metric("maximize")(spoil), model.layers[-1].weight.clone()
    try:
        found = TrialMetrics(["kappa"], digits.metadata, TauCCE(), seed=0)
        assert found.compute(model, {}, train=None, validation=digits.validation) == {"kappa": 1.0}
    finally:
        THINGS.kappa = kappa
    ((split, declared),) = seen
    assert declared == digits.metadata
    for given, own in ((split.x, digits.validation.x), (split.y, digits.validation.y)):
        assert torch.equal(given, own)
        assert given.data_ptr() != own.data_ptr(), "what is written to must be the plug-in's own"
    assert bool((model.layers[-1].weight == before).all())


@pytest.mark.usefixtures("some")
def test_training_rows_are_given_to_who_declared_it_only(digits):
    model = clipless.zoo.build("mlp", (1, 8, 8), 10, input_norm=8.0, width=8)
    found = TrialMetrics(["leak", "kappa"], digits.metadata, TauCCE(), seed=0)
    computed = found.compute(model, {}, train=digits.train, validation=digits.validation)
    assert computed == {"leak": len(digits.train), "kappa": 0.25}


@pytest.mark.usefixtures("some")
def test_a_plug_in_that_reads_training_rows_is_refused_where_they_are_not_published(digits):
    assert reads_training_rows(["accuracy", "leak"])
    assert not reads_training_rows(["kappa", "certified@1"])
    for declared in (
        replace(digits.metadata, training_published=False),
        replace(digits.metadata, evaluation=Evaluation.PRIVATE),
    ):
        with pytest.raises(SpecError, match=r"published training rows for leak|certificates alone as metrics"):
            check_metrics(["leak"], declared)
        with pytest.raises(SpecError):
            TrialMetrics(["leak"], declared, TauCCE(), seed=0)
    check_metrics(["leak"], replace(digits.metadata, training_published=False, evaluation=Evaluation.EXPLORATORY))
    check_metrics(["kappa"], replace(digits.metadata, training_published=False))
    with pytest.raises(SpecError, match="certificates alone as metrics of private"):
        check_metrics(["kappa"], replace(digits.metadata, evaluation=Evaluation.PRIVATE))


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize(("name", "got"), [("text", "'0.5'"), ("gap", "nan")])
def test_a_metric_that_gives_no_finite_number_is_refused(name, got):
    with pytest.raises(SpecError, match=f"Expected a finite number from the metric {name}, got {got}"):
        find_metric(name).compute(name, None, None, None)


@pytest.mark.usefixtures("some")
def test_a_plain_function_is_no_metric():
    with pytest.raises(SpecError, match=r"a metric declared by .* from the plug-in bad"):
        find_metric("bad")
    with pytest.raises(ValueError, match="sideways"):
        metric("sideways")
    assert isinstance(kappa, Metric)


def test_a_plug_in_cannot_stand_in_for_a_metric_of_this_package(install):
    install(("accuracy", "things:kappa", METRICS), ("attacked@1", "things:leak", METRICS))
    assert not plugins.is_metric("accuracy")
    assert not plugins.is_metric("attacked@1")
    assert not reads_training_rows(["attacked@1"])
    with pytest.raises(SpecError, match=r"under a name of its own.*got the metric 'accuracy' of things:kappa"):
        find_metric("accuracy")


# Samplers


@pytest.mark.usefixtures("some")
def test_a_sampler_is_made_from_the_seed():
    made = sampler("mine", 3, optuna.samplers.BaseSampler)
    assert isinstance(made, optuna.samplers.RandomSampler)
    draws = [
        optuna.create_study(sampler=sampler("mine", 3, optuna.samplers.BaseSampler)).ask().suggest_float("x", 0, 1)
        for _ in range(2)
    ]
    assert draws[0] == draws[1]


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wrong", r"Expected a function of the seed that returns a BaseSampler from the plug-in wrong, got 'tpe'"),
        ("mien", r"Expected a sampler, got 'mien'; did you mean 'mine'\? installed are mine, wrong"),
        ("tpe", "Expected a sampler, got 'tpe'"),
    ],
)
def test_what_is_no_installed_sampler_is_refused(name, said):
    with pytest.raises(SpecError, match=said):
        sampler(name, 0, optuna.samplers.BaseSampler)


def test_two_plug_ins_of_one_name_are_refused(install):
    install(("mine", "things:mine", SAMPLERS), ("mine", "other:mine", SAMPLERS), ("more", "things:mine", SAMPLERS))
    with pytest.raises(SpecError, match=r"one sampler 'mine', got other:mine and things:mine; uninstall .*mine, more"):
        sampler("mine", 0, object)
    install()
    with pytest.raises(SpecError, match="no sampler is installed as a plug-in"):
        sampler("mine", 0, object)


@pytest.mark.usefixtures("some")
def test_a_spec_names_a_sampler_of_a_plug_in(content):
    spec = Spec.from_mapping(content | {"search": {"sampler": "mine", "warm_start": "earlier"}}, "f.yaml")
    assert spec.search.sampler == "mine"
    assert Spec.from_mapping(spec.to_plain()).digest() == spec.digest()
    assert Spec.from_mapping(content | {"search": {"sampler": "gp"}}).search.sampler is Sampler.GP
    with pytest.raises(SpecError) as refused:
        Spec.from_mapping(content | {"search": {"sampler": "mien"}}, "f.yaml")
    assert str(refused.value) == (
        "Expected sampler tpe or gp or nsga2 or nsga3 or quasi-random or random or grid, or a plug-in, got "
        "sampler='mien' (search.sampler in f.yaml); did you mean 'mine'? installed are mine, wrong"
    )


@pytest.mark.usefixtures("some")
def test_editors_are_told_of_both_kinds():
    names = SamplerName().json_schema()["enum"]
    assert names == [*(one.value for one in Sampler), "mine", "wrong"]
    assert names[: len(plugins.BUILT_IN_SAMPLERS)] == list(plugins.BUILT_IN_SAMPLERS)


@pytest.mark.parametrize("value", ["", "mlflow:", "mlflow:  ", 3, ["a"]])
def test_a_warm_start_names_a_sweep(content, value):
    with pytest.raises(SpecError, match=r"folder of an earlier sweep, or mlflow:NAME .*search\.warm_start"):
        Spec.from_mapping(content | {"search": {"warm_start": value}})


def test_a_warm_start_is_for_samplers_that_learn(content):
    with pytest.raises(SpecError, match=r"a sampler that learns from outcomes, which random does not"):
        Spec.from_mapping(content | {"search": {"warm_start": "earlier", "sampler": "random"}})
