"""A private sketch under attack: how far one row moves it, and the noise that hides that."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipless.datasets import Evaluation, Metadata, Split
from clipless.errors import AccountingError, DataError
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.sketches.release import (
    STEPS,
    Sketch,
    SketchForm,
    contributions,
    release_sketch,
    split_sums,
    sum_contributions,
)
from clipless.testing import SeededSource

EVENT = PoissonGaussian(noise_multiplier=2.0, sampling_rate=1.0, steps=1, relation=Relation.ADD_OR_REMOVE_ONE)
FORMS = [
    SketchForm(classes=2, norm=2.0, widths=(1, 1, 1, 1), bounded=True),
    SketchForm(classes=3, norm=3**0.5, widths=(1, 3, 1), bounded=True),
    SketchForm(classes=2, norm=2**0.5, widths=(2, 4), bounded=True),
    SketchForm(classes=4, norm=7.0, widths=(1,) * 9, bounded=False),
]


class SilentSource(SeededSource):
    """No noise: what is left is the statistic."""

    def normal(self, count, device="cpu"):
        return torch.zeros(count, dtype=torch.float64, device=device)


def extreme_rows(form):
    """Rows at the declared norm, on one entry and on all; at its corners, beyond it, of zeros, and not finite."""
    size, norm = form.size, form.norm
    axes = norm * torch.eye(size)
    corners = torch.sign(torch.randn((64, size), generator=torch.Generator().manual_seed(0))) * norm / size**0.5
    inside = torch.randn((256, size), generator=torch.Generator().manual_seed(1))
    inside *= norm / inside.norm(dim=1, keepdim=True)
    beyond = torch.full((3, size), 1e30) * torch.tensor([[1.0], [-1.0], [3e8]])
    broken = torch.tensor([[float("nan")], [float("inf")], [-float("inf")]]).expand(3, size)
    return torch.cat([axes, -axes, corners, inside, beyond, broken, torch.zeros(1, size)])


@pytest.mark.parametrize("form", FORMS)
def test_no_row_contributes_more_than_one_and_the_most_is_nearly_reached(form):
    steps_NM = contributions(form, extreme_rows(form))
    assert bool((steps_NM == steps_NM.trunc()).all())
    norm_N = (steps_NM**2).sum(dim=1)
    assert bool((norm_N <= STEPS**2).all())
    assert float(norm_N.max()) > 0.97 * STEPS**2
    for value in (float("nan"), float("inf")):
        broken = torch.zeros((2, form.size))
        broken[:, -1] = value
        assert bool((contributions(form, broken) == 0.0).all())


@pytest.mark.parametrize("form", FORMS)
def test_neighbours_differ_by_the_contribution_of_their_row_alone(form):
    """Adding any extreme row of any class moves the computed sums by at most 1, replacing one by at most 2."""
    rows = extreme_rows(form)
    labels = torch.arange(len(rows)) % form.classes
    whole = sum_contributions(form, Split(rows, labels))
    largest = 0.0
    for i in range(0, len(rows), 7):
        kept = torch.arange(len(rows)) != i
        fewer = sum_contributions(form, Split(rows[kept], labels[kept]))
        one = contributions(form, rows[i : i + 1])[0]
        assert torch.equal(whole[labels[i]] - fewer[labels[i]], one)
        others = torch.arange(form.classes) != labels[i]
        assert torch.equal(whole[others], fewer[others])
        assert float((whole - fewer).norm()) <= STEPS
        replaced = sum_contributions(
            form, Split(torch.cat([rows[kept], rows[:1]]), torch.cat([labels[kept], labels[:1]]))
        )
        largest = max(largest, float((whole - replaced).norm()))
    assert largest <= 2 * STEPS


def test_sums_do_not_depend_on_the_order_of_rows_nor_on_pieces(monkeypatch):
    form, generator = FORMS[3], torch.Generator().manual_seed(0)
    rows = torch.randn((5000, form.size), generator=generator) * 3
    labels = torch.randint(form.classes, (5000,), generator=generator)
    whole, order = sum_contributions(form, Split(rows, labels)), torch.randperm(5000, generator=generator)
    monkeypatch.setattr("clipless.sketches.release._CHUNK", 37)
    assert torch.equal(sum_contributions(form, Split(rows[order], labels[order])), whole)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=4, max_size=4), st.integers(1, 40))
def test_a_row_contributes_the_same_at_every_place(row, place):
    """Whatever stands before it: no kernel rounds by the place of a row, none looks at other rows."""
    form, rows = FORMS[0], torch.randn((place, 4), generator=torch.Generator().manual_seed(place)) * 5
    alone = contributions(form, torch.tensor([row]))
    assert torch.equal(contributions(form, torch.cat([rows, torch.tensor([row]), rows]))[place], alone[0])
    assert float((alone**2).sum()) <= STEPS**2


@pytest.mark.usefixtures("exact_sums")
def test_sums_are_those_of_counts_rows_and_squares():
    """Empty classes and constant columns included; categories have no squares."""
    form = SketchForm(classes=3, norm=3**0.5, widths=(1, 2, 1), bounded=True)
    x = torch.tensor([[0.5, 1, 0, -1], [0.25, 0, 1, -1], [-0.5, 1, 0, -1]])
    sketch = release_sketch(form, Split(x, torch.tensor([0, 0, 2])), EVENT, SilentSource(0))
    counts, sums, squares = split_sums(form, sketch)
    assert counts.tolist() == pytest.approx([2, 0, 1], abs=1e-4)
    assert sums.tolist() == [pytest.approx(row, abs=1e-4) for row in ([0.75, 1, 1, -2], [0] * 4, [-0.5, 1, 0, -1])]
    assert squares.tolist() == [pytest.approx(row, abs=1e-4) for row in ([0.3125, 2], [0, 0], [0.25, 1])]


def test_noise_has_the_deviation_of_the_event_and_no_bias():
    form = SketchForm(classes=2, norm=1.0, widths=(1,) * 500, bounded=False)
    rows = Split(torch.zeros((1, 500)), torch.zeros(1, dtype=torch.int64))
    quiet = torch.tensor(release_sketch(form, rows, EVENT, SilentSource(0)).sums)
    loud = torch.stack([torch.tensor(release_sketch(form, rows, EVENT, SeededSource(s)).sums) for s in range(50)])
    noise = (loud - quiet).flatten()
    assert float(noise.std()) == pytest.approx(2.0, rel=0.01)
    assert abs(float(noise.mean())) < 5 * 2.0 / len(noise) ** 0.5
    assert bool((loud * STEPS == (loud * STEPS).round()).all())


def test_other_events_are_not_drawn():
    rows = Split(torch.zeros((1, 4)), torch.zeros(1, dtype=torch.int64))
    for wrong in ({"sampling_rate": 0.5}, {"steps": 2}, {"noise_multiplier": 0.0}, {"noise_multiplier": float("inf")}):
        with pytest.raises(AccountingError, match="one release of all rows with finite noise"):
            release_sketch(FORMS[0], rows, replace(EVENT, **wrong), SeededSource(0))
    with pytest.raises(AccountingError, match="leave gaps"):
        release_sketch(FORMS[0], rows, replace(EVENT, noise_multiplier=1e12), SeededSource(0))


def test_too_many_rows_would_not_be_summed_exactly(monkeypatch):
    monkeypatch.setattr("clipless.sketches.release._MOST_ROWS", 2)
    rows = Split(torch.zeros((3, 4)), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(DataError, match="at most 2 units"):
        release_sketch(FORMS[0], rows, EVENT, SeededSource(0))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 2, 7, 100, 1000])
def test_the_rows_of_a_unit_contribute_no_more_than_one_row(form, count):
    """Extreme rows, all alike or not, of one class or of all."""
    others = Split(torch.zeros((2, form.size)), torch.zeros(2, dtype=torch.int64))
    extreme = extreme_rows(form)
    for rows in (extreme[torch.arange(count) % len(extreme)], extreme[:1].expand(count, -1)):
        for labels in (torch.arange(count) % form.classes, torch.zeros(count, dtype=torch.int64)):
            offsets = torch.tensor([0, 1, 2, 2 + count])
            whole = Split(torch.cat([others.x, rows]), torch.cat([others.y, labels]), offsets)
            moved = sum_contributions(form, whole) - sum_contributions(form, others)
            assert float(moved.norm()) <= STEPS
    assert float(moved.norm()) > 0.9 * STEPS


def metadata(shape, widths=()):
    return Metadata(
        name="t",
        input_shape=shape,
        classes=("a", "b"),
        evaluation=Evaluation.PRIVATE,
        unit="row",
        input_norm=2.0,
        input_gain=1.0,
        radius_unit="units",
        public_facts=(),
        conditions=(),
        column_widths=widths,
    )


def test_the_form_is_that_of_declared_columns_or_of_numbers():
    declared = SketchForm.of(metadata((5,), (1, 3, 1)))
    assert (declared.numbers, declared.categories, declared.bounded) == ((0, 4), (range(1, 4),), True)
    other = SketchForm.of(metadata((5,)))
    assert (other.numbers, other.categories, other.bounded) == ((0, 1, 2, 3, 4), (), False)
    for shape in ((1, 8, 8), (5000,)):
        with pytest.raises(DataError, match="rows of one dimension"):
            SketchForm.of(metadata(shape))


def test_a_sketch_is_read_back_and_one_of_another_form_refused():
    rows = Split(torch.zeros((1, 4)), torch.zeros(1, dtype=torch.int64))
    sketch = release_sketch(FORMS[0], rows, EVENT, SeededSource(0))
    assert Sketch.from_json(sketch.to_json()) == sketch
    with pytest.raises(DataError, match="a sketch of 3 classes and 5 coordinates"):
        split_sums(FORMS[1], sketch)
