from fractions import Fraction

import pytest

from sweeper.errors import SpecError
from sweeper.records import Direction, Objective
from sweeper.specification import objectives


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("certified@36/255", Fraction(36, 255)),
        ("certified@0.25", Fraction(1, 4)),
        ("certified@.1", Fraction(1, 10)),
        ("certified@1", Fraction(1)),
        ("certified@2.5e-1", Fraction(1, 4)),
        ("certified@0.5/2", Fraction(1, 4)),
        ("certified-auroc@36/255", Fraction(36, 255)),
        ("accuracy", None),
    ],
)
def test_a_radius_is_read_exactly(name, exact):
    assert objectives.radius(name) == exact


@pytest.mark.parametrize(
    "text", ["", "0", "0/3", "1/0", "-1", "nan", "inf", "1//2", " 1", "1 ", "0x1", "1_0", "1e9999", "\u0661", "9" * 41]
)
def test_a_radius_that_is_no_positive_number_is_refused(text):
    with pytest.raises(SpecError, match="radius > 0"):
        objectives.parse(f"certified@{text}")
    with pytest.raises(SpecError, match="radius > 0"):
        objectives.parse(f"certified-auroc@{text}")


def test_epsilon_alone_is_minimised():
    names = ("epsilon", "accuracy", "certified-auroc@1/4", "certified@1/4")
    assert [objectives.parse(name).direction is Direction.MINIMIZE for name in names] == [True, False, False, False]


@pytest.mark.parametrize("name", ["", "accurracy", "certified", "Epsilon", "certified 1"])
def test_an_unknown_objective_is_refused(name):
    with pytest.raises(SpecError, match=f"Expected an objective.*got {name!r}"):
        objectives.parse(name)


def test_names_are_compared_by_what_they_mean():
    assert objectives.same("certified@36/255", "certified@12/85")
    assert objectives.same("accuracy", "accuracy")
    assert not objectives.same("certified@0.14", "certified@36/255")
    assert not objectives.same("accuracy", "auroc")
    assert objectives.same("certified-auroc@0.5", "certified-auroc@1/2")
    assert not objectives.same("certified-auroc@0.5", "certified@0.5")


def test_a_list_is_compared_in_time_that_grows_with_it_alone(monkeypatch):
    read, original = [], objectives._exact
    monkeypatch.setattr(objectives, "_exact", lambda name, text: read.append(name) or original(name, text))
    names = [f"certified@{i}/99" for i in range(1, objectives.MOST + 1)]
    assert objectives.metric_list(names) == tuple(names)
    assert len(read) <= 4 * len(names)


def test_radii_keep_their_text_and_both_kinds_of_certificate_share_them():
    names = ("epsilon", "certified@36/255", "accuracy", "certified@0.50")
    assert objectives.radii(map(Objective.named, names)) == ("36/255", "0.50")
    names = ("certified@0.5", "certified-auroc@0.5", "certified-auroc@1/2")
    assert objectives.radii(map(Objective.named, names)) == ("0.5", "1/2")
    assert [objectives.radius_text(name) for name in names] == ["0.5", None, None]
    assert [objectives.auroc_radius_text(name) for name in names] == [None, "0.5", "1/2"]


def test_some_objectives_need_two_classes():
    names = ("epsilon", "accuracy", "certified@1", "auroc", "certified-auroc@1")
    assert [objectives.needs_two_classes(name) for name in names] == [False, False, False, True, True]
