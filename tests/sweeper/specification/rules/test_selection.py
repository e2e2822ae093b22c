"""Private selection in a spec: every condition that can be read off beforehand, and which slots change an event."""

import itertools

import pytest

from clipless.datasets import load
from clipless.privacy.accounting.private_selection import Repetitions
from sweeper.errors import SpecError
from sweeper.search.space import sample
from sweeper.specification.dimensions import OF_THE_SWEEP
from sweeper.specification.rules.selection import EVENT_DIMENSIONS
from sweeper.specification.search import Sampler
from sweeper.specification.settings import ModelSettings, PrivacySettings, TrainingSettings
from sweeper.specification.spec import Spec
from sweeper.trials.build import build_loss, build_model, build_plan
from tests.factories import set_key, spec_error

FILE = "mnist.yaml"


@pytest.fixture
def private(content):
    """A valid spec with private selection, to be changed freely."""
    content["search"] = {"selection": "private", "sampler": "random"}
    content["training"]["learning_rate"] = {"log": [0.01, 1.0]}
    return content


def test_private_selection_has_sensible_defaults(private):
    spec = Spec.from_mapping(private)
    assert spec.search.repetitions == Repetitions(mean=10.0)
    assert spec.trials == 10
    assert Spec.from_mapping(spec.to_plain()) == spec
    private["search"]["selection_mean"] = 2.5
    spec = Spec.from_mapping(private)
    assert (spec.search.repetitions, spec.trials) == (Repetitions(mean=2.5), 3)
    assert Spec.from_mapping(spec.to_plain()).search.repetitions == Repetitions(mean=2.5)


def test_without_it_nothing_is_drawn_and_nothing_is_refused(content):
    assert Spec.from_mapping(content).search.repetitions is None
    set_key(content, "search", {"selection": "none", "trials": 1, "hours": 1, "scheduler": "hyperband", "seed": 3})
    content["training"] |= {"batch_size": [64, 128]}
    assert Spec.from_mapping(content).search.repetitions is None


def test_the_number_of_candidates_is_not_bounded_by_that_of_configurations(private):
    private["training"]["learning_rate"] = [0.1, 0.2]
    private["search"]["selection_mean"] = 40
    assert Spec.from_mapping(private).trials == 40


UNDER = "under selection: private"


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("search.sampler", "tpe", f"Expected sampler random {UNDER}, whose candidates are drawn independently from one fixed prior, got sampler='tpe' (search.sampler in mnist.yaml); set sampler: random"),
        ("search.scheduler", "hyperband", f"Expected scheduler none {UNDER}, whose candidates all train to their end, got scheduler='hyperband' (search.scheduler in mnist.yaml); leave it out"),
        ("search.trials", 10, f"Expected no trials {UNDER}, where their number is drawn at random, got trials=10 (search.trials in mnist.yaml); give its mean, selection_mean, instead"),
        ("search.first", [{"training": {"learning_rate": 0.1}}], f"Expected no configurations to try first {UNDER}, whose candidates all come from one prior (search.first in mnist.yaml); leave them out"),
        ("search.hours", 2, f"Expected no hours {UNDER}: a time limit looks at how long training takes, got hours=2.0 (search.hours in mnist.yaml); leave it out"),
        ("search.repeats", 3, f"Expected repeats = 1 {UNDER}, which prices candidates, not means of them, got repeats=3 (search.repeats in mnist.yaml); leave it out"),
        ("search.seed", 7, f"Expected no seed {UNDER}, which draws configurations and initial weights from secret randomness, got seed=7 (search.seed in mnist.yaml); leave it out"),
        ("search.selection_share", 0.2, "Expected no selection_share without privacy.sweep_epsilon, the budget that is divided, got selection_share=0.2 (search.selection_share in mnist.yaml); add sweep_epsilon, or leave it out"),
        ("privacy.relation", "replace-one", f"Expected relation add-or-remove-one {UNDER}, where two accountants check each other, got relation='replace-one' (privacy.relation in mnist.yaml); leave it out"),
        ("privacy.epsilon", [1, 3], f"Expected one value for epsilon {UNDER}, whose candidates all spend the same, got epsilon=[1.0, 3.0] (privacy.epsilon in mnist.yaml); give one value"),
        ("training.epochs", {"int": [5, 9]}, "got epochs={'int': [5, 9]} (training.epochs in mnist.yaml); give one value"),
        ("training.batch_size", [64, 128], "got batch_size=[64, 128] (training.batch_size in mnist.yaml); give one value"),
        ("training.method", ["clipless", "dp-sgd"], "got method=['clipless', 'dp-sgd'] (training.method in mnist.yaml); give one value"),
        ("model.standardise", [True, False], "got standardise=[True, False] (model.standardise in mnist.yaml); give one value"),
        ("model.input_quantile", [0.5, 0.9], "got input_quantile=[0.5, 0.9] (model.input_quantile in mnist.yaml); give one value"),
        ("data.evaluation", "exploratory", f"Expected scores that are public or paid for {UNDER}, which is a guarantee, got evaluation='exploratory' (data.evaluation in mnist.yaml); declare the rows public, or leave selection out"),
        ("search.metrics", ["membership-auroc"], f"Expected no metric of training rows {UNDER}: it is no part of what a candidate spends, got metrics='membership-auroc' (search.metrics.0 in mnist.yaml); leave it out"),
        ("search.selection", "secret", "Expected selection none or private, got selection='secret' (search.selection in mnist.yaml)"),
        ("search.selection_distribution", "geometric", "Unknown key 'selection_distribution' (search.selection_distribution in mnist.yaml); did you mean 'selection_share'?"),
        ("search.selection_mean", 1, "Expected 1.1 <= selection_mean <= 10000.0, got selection_mean=1 (search.selection_mean in mnist.yaml)"),
    ],
)  # fmt: skip
def test_every_condition_is_refused_by_name_when_it_is_broken(private, path, value, sentence):
    Spec.from_mapping(private)
    assert spec_error(private, **{path: value}).endswith(sentence)


def test_no_noisy_score_has_to_meet_a_bound_for_its_luck_would(private):
    private["search"] |= {"objectives": ["epsilon", "accuracy", "certified@1/4"]}
    private["search"]["constraints"] = ["epsilon <= 8", "certified@0.25 >= 0.5"]
    assert len(Spec.from_mapping(private).search.outcomes) == 2, "free scores have no noise"
    said = spec_error(private, **{"data.evaluation": "private", "privacy.score_noise": 20.0})
    assert said.endswith(
        f"Expected no constraint on scores of private rows {UNDER}: the luck of their noise would meet it, got "
        "constraints='certified@0.25 >= 0.5' (search.constraints.1 in mnist.yaml); make it the first objective, or "
        "leave it out"
    )


def test_candidates_are_drawn_at_random_unless_the_spec_says_otherwise(content):
    content["search"] = {"selection": "private"}
    spec = Spec.from_mapping(content)
    assert spec.search.sampler is Sampler.RANDOM
    assert Spec.from_mapping(spec.to_plain()) == spec
    content["search"] = {"selection": "none"}
    assert Spec.from_mapping(content).search.sampler is Sampler.TPE


@pytest.fixture
def explored(private):
    """A valid spec of a private selection with a final, to be changed freely."""
    private["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-6}
    return private


def test_a_budget_and_a_selection_are_all_that_a_final_needs(explored):
    explored["search"] = {"selection": "private"}
    spec = Spec.from_mapping(explored)
    assert (spec.privacy.sweep_epsilon, spec.search.selection_share, spec.stages) == (3.0, None, ())
    assert spec.rehearsals == 0
    explored["search"] |= {"selection_share": 0.4, "selection_mean": 6}
    explored["privacy"] |= {"spare_epochs": 2, "finals": 1, "accounting": "slots"}
    assert Spec.from_mapping(explored).search.selection_share == 0.4


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("privacy.stages", [{"trials": 4, "share": 0.1}, {"trials": 1}], f"Expected no stages {UNDER}, whose budget is that of the candidates and of one final (privacy.stages in mnist.yaml); divide it by search.selection_share"),
        ("privacy.finals", 2, f"Expected one final {UNDER}, which has one winner, got finals=2 (privacy.finals in mnist.yaml); leave it out"),
        ("privacy.accounting", "filter", f"Expected accounting slots {UNDER}, whose price is fixed beforehand, got accounting='filter' (privacy.accounting in mnist.yaml); leave it out"),
        ("search.rehearse", True, f"Expected no rehearse {UNDER}, whose candidates all come from one prior, got rehearse=True (search.rehearse in mnist.yaml); leave it out"),
        ("search.selection_share", 1.0, "Expected 0 < selection_share < 1, got selection_share=1.0 (search.selection_share in mnist.yaml)"),
    ],
)  # fmt: skip
def test_what_cannot_be_combined_with_a_selection_in_a_budget_is_refused_by_name(explored, path, value, sentence):
    Spec.from_mapping(explored)
    assert spec_error(explored, **{path: value}).endswith(sentence)


def test_a_method_without_privacy_cannot_be_selected_privately(private):
    set_key(private, "privacy", {"delta": 1e-4, "noise_multiplier": 1.0})
    said = spec_error(private, training__method="non-private")
    assert said.startswith(f"Expected a private method {UNDER}, got method='non-private' (training.method in {FILE})")


@pytest.mark.parametrize(("key", "value"), [("selection_mean", 20), ("selection_share", 0.5)])
def test_no_law_of_a_number_without_private_selection(content, key, value):
    said = spec_error(content, **{f"search.{key}": value})
    assert said.startswith(f"Expected no {key} without selection: private, got {key}=")


def test_trials_of_the_command_line_are_refused_as_well(private):
    with pytest.raises(SpecError, match="give its mean, selection_mean, instead"):
        Spec.from_mapping(private).with_search(trials=5)


OPEN = {
    "model.width": [8, 16],
    "model.depth": [2, 3],
    "model.activation": ["groupsort", "relu"],
    "model.bias": [True, False],
    "model.bias_norm": [0.5, 1.0],
    "model.constraint": ["orthogonal", "spectral_ball"],
    "model.weight_norm": [1.0, 2.0],
    "model.input_clip": [1.0, 2.0],
    "model.standardise": [True, False],
    "training.method": ["clipless", "lip-dp-sgd"],
    "training.epochs": [1, 2],
    "training.batch_size": [64, 128],
    "training.learning_rate": [0.1, 0.2],
    "training.optimizer": ["adam", "sgd"],
    "training.momentum": [0.0, 0.9],
    "training.schedule": ["constant", "cosine"],
    "training.averaging": [0.9, 0.99],
    "training.loss": ["tau-cce", {"name": "hkr", "alpha": [1.0, 10.0]}],
    "training.sensitivity_fraction": [0.1, 1.0],
    "training.exact_norms": [True, False],
    "training.gradient_clip": [0.5, 1.0],
    "training.gradient_clip_schedule": ["constant", "linear", "adaptive"],
    "training.clip_quantile": [0.5, 0.9],
    "training.freeze_after": [0.25, 0.5],
    "training.freeze_layers": [1],
    "privacy.noise_multiplier": [1.0, 2.0],
    "privacy.noise": ["global", "per-layer", "min-variance"],
}


def test_whatever_is_open_beside_the_listed_slots_spends_the_same(content):
    """Plans of random configurations with everything open that may be, and with one of the listed slots as well."""
    data = load("digits")
    fixed = {"privacy.noise_multiplier": 1.0, "training.epochs": 1, "training.batch_size": 64}
    del content["privacy"]["epsilon"]
    for path, value in OPEN.items():
        if path not in EVENT_DIMENSIONS:
            set_key(content, path, value)

    def events(changes):
        for path, value in (fixed | changes).items():
            set_key(content, path, value)
        spec = Spec.from_mapping(content)
        for proposal in sample(spec.space, 12):
            config = spec.space.resolve(proposal)
            loss = build_loss(config)
            yield build_plan(config, build_model(config, data, loss, 0), loss, len(data.train)).event()

    assert len(set(events({}))) == 1
    for name in fixed:
        assert len(set(events({name: OPEN[name]}))) > 1
    assert len(set(itertools.chain(events({}), events({"model.standardise": True})))) > 1


# What decides no event and is not tried above: it needs images, another method, or is not open.
ELSEWHERE = {
    "model": {
        "architecture",
        "hidden",
        "patch",
        "convolutions",
        "blocks",
        "widening",
        "skip",
        "learned_skip",
        "pooling",
    }
    | {"scales", "orientations", "order", "order0_gain", "order2_gain"}
    | {"feature_groups", "feature_floor", "feature_clip"},
    "training": {"class_weights", "follow_weights", "clip_norm", "ghost_clipping", "copies", "flip", "shift"}
    | {"input_noise", "micro_batch_size"},
    "privacy": {"delta", "relation", "accept_large_delta", *OF_THE_SWEEP},
}


@pytest.mark.parametrize(
    ("section", "settings"), [("model", ModelSettings), ("training", TrainingSettings), ("privacy", PrivacySettings)]
)
def test_every_hyperparameter_is_known_to_change_what_is_spent_or_not_to(section, settings):
    """A new one has to be put into ``EVENT_DIMENSIONS``, or into one of the lists above."""
    for name in settings.model_fields:
        tried, listed = f"{section}.{name}" in OPEN, f"{section}.{name}" in EVENT_DIMENSIONS
        assert tried or listed or name in ELSEWHERE[section], name
