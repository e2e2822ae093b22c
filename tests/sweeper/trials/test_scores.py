"""Paid scores of private rows: what is one, that each row answers for itself, and that noise is all that leaves."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import clipless
from clipless import row_independence
from clipless.certificates import certify
from clipless.certificates.certify import float64_features
from clipless.certificates.outputs import Outputs
from clipless.datasets import Evaluation, Split
from clipless.privacy.events import Relation
from clipless.testing import SeededSource
from sweeper.errors import SpecError
from sweeper.privacy.evaluation.paid_scores import ScoreNoise
from sweeper.trials.scores import MOST_CLASSES, answers_of_rows, class_counts, mean_errors, release, scorer
from tests.clipless.factories import RecordingSource

NAMES = ("accuracy", "certified@0.1", "certified@1/2")


@pytest.fixture(scope="module")
def model():
    generator = torch.Generator().manual_seed(0)
    return clipless.zoo.build("mlp", (6,), 3, input_norm=2.0, width=8, generator=generator)


@pytest.fixture
def split(model):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(60, 6, generator=generator)
    y = model(x).argmax(dim=1)
    y[::4] = (y[::4] + 1) % 3
    return Split(x=x, y=y)


def test_answers_are_those_that_public_rows_are_scored_by(model, split):
    shares = answers_of_rows(Outputs.of(model, split), split, NAMES, 0.3).double().mean(dim=0).tolist()
    scores = clipless.evaluate(model, split, ["0.1", "1/2"], 0.3)
    assert shares == pytest.approx([scores[name] for name in NAMES])
    assert 0.0 < shares[2] < shares[1] < shares[0] < 1.0


def test_a_row_answers_for_itself(model, split):
    """Whatever is done to one row, also to make it undefined, no other row's answers move."""
    whole = answers_of_rows(Outputs.of(model, split), split, NAMES, 1.0)
    for value in (0.0, 1e3, torch.inf, torch.nan):
        x = split.x.clone()
        x[7] = value
        changed = Split(x=x, y=split.y)
        moved = answers_of_rows(Outputs.of(model, changed), changed, NAMES, 1.0)
        others = torch.arange(60) != 7
        assert torch.equal(moved[others], whole[others])
    fewer = Split(x=split.x[1:], y=split.y[1:])
    assert torch.equal(answers_of_rows(Outputs.of(model, fewer), fewer, NAMES, 1.0), whole[1:])


@pytest.mark.usefixtures("exact_sums")
def test_one_release_is_one_noisy_vector_of_the_declared_rows(model, split):
    source = RecordingSource(4)
    released = release(model, split, None, noise=NOISE, multiplier=2.0, population=60, input_gain=1.0, source=source)
    (noise,) = source.normals
    exact = answers_of_rows(Outputs.of(model, split), split, NAMES, 1.0).double().mean(dim=0)
    expected = exact + 2.0 * 3**0.5 / 2 / 60 * noise.double()
    assert tuple(released) == NAMES
    assert list(released.values()) == pytest.approx(expected.tolist(), abs=1e-6)


def test_no_two_releases_share_their_noise(model, split):
    given = {"noise": NOISE, "multiplier": 5.0, "population": 60, "input_gain": 1.0}
    source = SeededSource(0)
    assert release(model, split, None, source=source, **given) != release(model, split, None, source=source, **given)


# --- the door


def declared(evaluation):
    return replace(clipless.datasets.load("digits").metadata, evaluation=evaluation, input_gain=0.3)


NOISE = ScoreNoise(
    names=NAMES,
    noise_multiplier=2.0,
    test_noise_multiplier=3.0,
    relation=Relation.ADD_OR_REMOVE_ONE,
    apart=True,
    validation=60,
    test=30,
)


def test_free_rows_are_scored_exactly(model, split):
    features = float64_features(model, split.x)
    for evaluation in (Evaluation.PUBLIC, Evaluation.EXPLORATORY):
        found = scorer(declared(evaluation), ["0.1", "1/2"], None)(model, split, features)
        assert found == clipless.evaluate(model, split, ["0.1", "1/2"], 0.3)


def test_private_rows_without_noise_are_not_scored():
    with pytest.raises(SpecError, match=r"Expected noise for scores of the private rows of digits, got none; set priv"):
        scorer(declared(Evaluation.PRIVATE), ["0.1"], None)


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.parametrize(("test", "population"), [(False, 60), (True, 30)])
def test_private_rows_are_scored_with_the_noise_of_their_split(model, split, monkeypatch, test, population):
    monkeypatch.setattr(clipless, "evaluate", lambda *_, **__: pytest.fail("scored exactly"))
    source = RecordingSource(4)
    score = scorer(declared(Evaluation.PRIVATE), ["0.1", "1/2"], NOISE, test=test, source=source)
    rows = Split(x=split.x[:population], y=split.y[:population])
    released = score(model, rows, float64_features(model, rows.x))
    exact = answers_of_rows(Outputs.of(model, rows), rows, NAMES, 0.3).double().mean(dim=0)
    (noise,) = source.normals
    sigma = 3.0 if test else 2.0
    expected = exact + sigma * 3**0.5 / 2 / population * noise.double()
    assert list(released.values()) == pytest.approx(expected.tolist(), abs=1e-6)


def test_private_rows_are_scored_in_passes_of_their_own_whatever_a_stack_made_of_them(model, split):
    others = replace(Outputs.of(model, split), logits=torch.full((60, 3), torch.nan).double())
    given = {"noise": NOISE, "multiplier": 2.0, "population": 60, "input_gain": 1.0, "outputs": others}
    alone = release(model, split, None, source=SeededSource(0), **given | {"outputs": None})
    assert release(model, split, None, source=SeededSource(0), **given) == alone


def test_private_rows_are_scored_alone(model, split, monkeypatch):
    """Where passes of many rows look at places, each row is scored by itself: a row more moves no other's answer."""
    expected = release(
        model, split, None, noise=NOISE, multiplier=2.0, population=60, input_gain=1.0, source=SeededSource(0)
    )
    whole = certify._through
    monkeypatch.setattr(
        certify, "_through", lambda layers, x: whole(layers, x) if len(x) == 1 else whole(layers, x).roll(1, dims=0)
    )
    row_independence.forget()
    found = release(
        model, split, None, noise=NOISE, multiplier=2.0, population=60, input_gain=1.0, source=SeededSource(0)
    )
    row_independence.forget()
    assert found == expected


def test_noise_comes_from_the_secure_generator_unless_one_is_injected(monkeypatch, model, split):
    made = []
    monkeypatch.setattr("sweeper.trials.scores.SecureSource", lambda: made.append(RecordingSource(0)) or made[-1])
    score = scorer(declared(Evaluation.PRIVATE), [], NOISE)
    score(model, split, float64_features(model, split.x))
    assert len(made) == len(made[0].normals) == 1


# --- counts by class


def rows_that_are(evaluation, classes=("a", "b", "c")):
    return SimpleNamespace(evaluation=evaluation, classes=classes)


@pytest.mark.parametrize("evaluation", [Evaluation.PUBLIC, Evaluation.EXPLORATORY])
def test_public_rows_are_counted_by_class(model, split, evaluation):
    found = class_counts(model, split, rows_that_are(evaluation))
    said = model(split.x).argmax(dim=1)
    for label in range(3):
        assert found.rows[label] == int((split.y == label).sum())
        assert found.decided[label] == int((said == label).sum())
        assert found.correct[label] == int(((said == label) & (split.y == label)).sum())
    accuracy = clipless.evaluate(model, split)["accuracy"]
    assert sum(found.correct) / len(split) == pytest.approx(accuracy)


@pytest.mark.parametrize("evaluation", [Evaluation.PRIVATE, "private", "open", None])
def test_rows_that_are_not_declared_open_are_not_counted_and_not_even_looked_at(model, split, evaluation, monkeypatch):
    monkeypatch.setattr("sweeper.trials.scores.float64_logits", lambda *_args, **_named: pytest.fail("looked"))
    assert class_counts(model, split, rows_that_are(evaluation)) is None


def test_a_table_of_very_many_classes_is_not_kept(model, split):
    many = tuple(map(str, range(MOST_CLASSES + 1)))
    assert class_counts(model, split, rows_that_are(Evaluation.PUBLIC, many)) is None


def test_a_row_without_a_decision_counts_for_no_class(model, split, monkeypatch):
    logits = torch.zeros(60, 3)
    logits[7] = torch.nan
    monkeypatch.setattr("sweeper.trials.scores.float64_logits", lambda *_args, **_named: logits)
    found = class_counts(model, split, rows_that_are(Evaluation.PUBLIC))
    assert (sum(found.rows), sum(found.decided)) == (60, 59)


# --- units of several rows

SIZES = (1, 2, 8, 9, 30, 10)


@pytest.mark.usefixtures("exact_sums")
def test_the_rows_of_a_unit_share_the_weight_of_one_in_paid_scores_as_in_free_ones(model, split):
    units = Split(split.x, split.y, torch.tensor([0, *SIZES]).cumsum(0))
    source = RecordingSource(4, scale=0.0)
    paid = release(
        model, units, None, noise=NOISE, multiplier=2.0, population=len(units), input_gain=1.0, source=source
    )
    free = clipless.evaluate(model, units, ["0.1", "1/2"])
    assert [*paid.values()] == pytest.approx([free[name] for name in paid], abs=2.0**-20)
    rows = release(model, split, None, noise=NOISE, multiplier=2.0, population=60, input_gain=1.0, source=source)
    assert rows["accuracy"] != pytest.approx(paid["accuracy"], abs=0.01)


@pytest.mark.parametrize("size", [1, 2, 8, 9, 1000])
def test_a_unit_moves_paid_scores_no_further_than_a_row(model, split, size):
    others = torch.tensor([0, *SIZES]).cumsum(0)
    generator = torch.Generator().manual_seed(size)
    x, y = torch.randn(size, 6, generator=generator), torch.randint(0, 3, (size,), generator=generator)
    whole = Split(torch.cat([split.x, x]), torch.cat([split.y, y]), torch.cat([others, others[-1:] + size]))
    given = {"noise": NOISE, "multiplier": 2.0, "population": 7, "input_gain": 1.0}
    without, found = (
        torch.tensor([*release(model, one, None, source=RecordingSource(4, scale=0.0), **given).values()])
        for one in (Split(split.x, split.y, others), whole)
    )
    assert (found - without).norm() * 7 <= 3**0.5 / 2 + 1e-5


# --- scores by class

BY_CLASS = replace(NOISE, names=("accuracy", "balanced_accuracy", "certified@0.1"), classes=3)


@pytest.fixture(scope="module")
def binary():
    generator = torch.Generator().manual_seed(0)
    model = clipless.zoo.build("mlp", (6,), 2, input_norm=2.0, width=8, generator=generator)
    x = torch.randn(900, 6, generator=torch.Generator().manual_seed(1))
    y = (model(x).diff(dim=1)[:, 0] + 0.3 * torch.randn(900, generator=generator) > 0.5).long()
    return model, Split(x=x, y=y)


def quietly(model, rows, noise, scale=0.0, sigma=2.0):
    source = RecordingSource(4, scale=scale)
    return release(
        model, rows, None, noise=noise, multiplier=sigma, population=len(rows), input_gain=1.0, source=source
    )


def test_scores_by_class_are_those_that_public_rows_are_scored_by(model, split, binary):
    free = clipless.evaluate(model, split, ["0.1"], classes=3)
    paid = quietly(model, split, BY_CLASS)
    assert {"balanced_accuracy", "recall@0", "recall@1", "recall@2"} < free.keys()
    assert {**paid} == pytest.approx({name: free[name] for name in paid}, abs=1e-6)
    model, split = binary
    names = ("accuracy", "auroc")
    paid = quietly(model, split, replace(NOISE, names=names, classes=2))
    free = clipless.evaluate(model, split)
    assert {**paid} == pytest.approx({name: free[name] for name in names}, abs=1e-4)
    assert paid.errors.keys() == {"accuracy", "auroc"}


def test_scores_by_class_weigh_units_alike(model, split):
    units = Split(split.x, split.y, torch.tensor([0, *SIZES]).cumsum(0))
    free = clipless.evaluate(model, units, ["0.1"], classes=3)
    found = quietly(model, units, BY_CLASS, sigma=1e-3)
    sizes = [float(units.weights()[split.y == label].sum()) for label in range(3)]
    several = [f"recall@{label}" for label in range(3) if sizes[label] > 1.0]  # fewer count as one
    assert several
    assert {name: found[name] for name in several} == pytest.approx({name: free[name] for name in several}, abs=1e-4)
    assert found["accuracy"] == pytest.approx(free["accuracy"], abs=1e-4)


@pytest.mark.usefixtures("exact_sums")
def test_shares_beside_scores_by_class_have_the_noise_of_the_whole_release(model, split):
    loud, quiet = (quietly(model, split, BY_CLASS, scale=scale) for scale in (1.0, 0.0))
    source = RecordingSource(4)
    source.normal(BY_CLASS.form.numbers)
    of_certified = float(source.normals[0][1])
    std = BY_CLASS.stds["validation"]
    assert loud["certified@0.1"] - quiet["certified@0.1"] == pytest.approx(std * of_certified, rel=1e-6)
    assert std == pytest.approx(2.0 * ((2 + 1) / 4 + 0.25 * (9 / 16 + 2 / 16)) ** 0.5 / 60)


def test_a_class_without_rows_has_no_recall_where_scores_are_free(model, split):
    rows = Split(split.x[split.y != 2], split.y[split.y != 2])
    free = clipless.evaluate(model, rows, classes=3)
    assert "recall@2" not in free
    assert free["balanced_accuracy"] == pytest.approx((free["recall@0"] + free["recall@1"]) / 2)


def test_repeats_have_less_noise_and_the_same_rows(model, split):
    several = [quietly(model, split, BY_CLASS, scale=scale) for scale in (0.0, 0.0, 0.0, 0.0)]
    std, rows = several[0].errors["recall@0"]
    assert mean_errors(several)["recall@0"] == pytest.approx((std / 2, rows))
    assert mean_errors([quietly(model, split, NOISE)]) is None
