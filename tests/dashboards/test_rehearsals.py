"""Rehearsals are shown, marked as such, and never among the trials, points or models of a sweep."""

import json
from dataclasses import replace
from math import inf

import pytest

from dashboards.data import read
from dashboards.figures import as_json, sweep_figures
from dashboards.figures._comparable import STAR
from dashboards.figures.hyperparameters import configurations, contours, importances, ranks, slices
from dashboards.figures.hyperparameters._compared import compare, half_width_of
from dashboards.pages import _sections as sections
from dashboards.pages._html import tag
from dashboards.pages._rehearsals import rehearsals_table
from dashboards.pages._trials import trials_table
from dashboards.summary import front_rows
from dashboards.text import number
from sweeper.privacy.held_out import wilson
from sweeper.privacy.pricing import Price
from sweeper.records import RehearsalSource
from sweeper.results.front import read_front
from sweeper.results.importance import rehearsed_importances
from sweeper.results.rehearsal_ranking import Rehearsed
from sweeper.store.sweep_folder import SweepFolder

MARK = "Rehearsals on public rows; none is a model of this sweep"
OVER_HYPERPARAMETERS = {"importances", "configurations", "slices", "contours", "ranks"}


def test_rehearsals_are_read_beside_trials_and_never_as_such(rehearsed_sweep):
    assert [one.id for one in rehearsed_sweep.rehearsals][:2] == ["c0004", "c0017"]
    assert rehearsed_sweep.rehearsals[0].trials == ("t0001",)
    assert set(rehearsed_sweep.trials) == {"t0001"}
    assert {point.trial for point in rehearsed_sweep.points} == {"t0001"}
    assert {point.trial for point in rehearsed_sweep.front_points} == {"t0001"}
    assert {row["trial"] for row in front_rows(rehearsed_sweep)} == {"t0001"}
    front = read_front(SweepFolder(rehearsed_sweep.directory).front)
    assert {row["trial"] for row in front.rows()} == {"t0001"}
    assert "c0004" not in json.dumps(front.to_json())


def test_only_figures_over_hyperparameters_show_rehearsals_and_each_of_them_says_so(rehearsed_sweep):
    for name, kind in sweep_figures().items():
        text = json.dumps(as_json(kind.draw(rehearsed_sweep)), default=str)
        assert (MARK in text) is (name in OVER_HYPERPARAMETERS and kind.numbers(rehearsed_sweep) != []), name
        assert "c0004" not in text or name in OVER_HYPERPARAMETERS, name
        assert (MARK in kind.remarks(rehearsed_sweep)) is (name in OVER_HYPERPARAMETERS), name


def test_figures_over_hyperparameters_are_of_trials_where_these_are_more(sweep, rehearsed_sweep):
    both = replace(sweep, rehearsals=rehearsed_sweep.rehearsals)
    assert compare(both) == compare(sweep)
    assert importances.info(both) == importances.info(sweep)
    assert MARK not in json.dumps(as_json(sweep_figures()["configurations"].draw(both)), default=str)


def test_each_line_is_the_best_that_a_configuration_reached(rehearsed_sweep):
    info = configurations.info(rehearsed_sweep)
    assert (info.subject, len(info.trials)) == ("configuration", 16)
    assert "c0005" not in info.trials
    reached = dict(zip(info.trials, info.colors, strict=True))
    assert reached["c0004"] == pytest.approx(0.9)
    assert [axis.name for axis in info.axes][-2:] == ["accuracy", "certified@0.25"]
    assert "epsilon" not in {axis.name for axis in info.axes}
    assert all(
        "trial" not in row
        for kind in (configurations, slices, ranks, contours)
        for row in kind.rows(kind.info(rehearsed_sweep))
    )


def test_what_mattered_is_learnt_from_enough_rehearsals(rehearsed_sweep):
    objectives = rehearsed_sweep.result.objectives
    assert rehearsed_importances(Rehearsed(rehearsed_sweep.rehearsals[:7]), objectives) == ()
    found = rehearsed_importances(rehearsed_sweep.rehearsals, objectives)
    assert [one.target for one in found] == ["accuracy", "certified@0.25", "hypervolume"]
    assert "training.learning_rate" in found[0].losses


def test_the_table_names_every_configuration_its_scores_and_what_trains_it(rehearsed_sweep):
    words = str(rehearsals_table(rehearsed_sweep, lambda trial: tag("a", trial, href="#")))
    assert f"17 configurations. {MARK}." in words
    assert all(f"c{number:04d}" in words for number in range(1, 18))
    assert '<a href="#">t0001</a>' in words
    assert "accuracy is not a number in epoch 1" in words
    assert words.index("c0004") < words.index("c0017") < words.index("c0005")
    assert "90.0 %" in words
    first = "are trained: the one whose epochs dominate the largest hypervolume"
    assert f"{first}.</p>" in words, "a single final is planned"
    several = replace(rehearsed_sweep, result=replace(rehearsed_sweep.result, stages=(1, 3)))
    assert f"{first}, and then those that add most" in str(rehearsals_table(several, lambda trial: tag("a", trial)))
    preferred = replace(rehearsed_sweep, rehearsals=Rehearsed([replace(rehearsed_sweep.rehearsals[0], error=0.01)]))
    said = "are trained: the one that did best on public tables, which none beat by more than the margin"
    assert said in str(rehearsals_table(preferred))


def test_a_sweep_without_rehearsals_has_no_table_of_them(sweep):
    assert rehearsals_table(sweep) is None
    assert "rehears" not in str(sections.facts(sweep))


def test_the_header_says_how_many_were_rehearsed_and_trained(rehearsed_sweep):
    assert "17 rehearsed, 1 trained" in str(sections.facts(rehearsed_sweep))
    assert "rehearsed on public rows; 1 completed" in str(sections.facts(rehearsed_sweep))
    assert str(trials_table(rehearsed_sweep)).count("data-choose") == 1


def test_while_nothing_is_trained_delta_and_relation_are_those_of_the_plan(rehearsed_sweep):
    price = Price(epsilon=2.997, delta=1e-4, events=0, fixed=True)
    result = replace(rehearsed_sweep.result, trials={}, points=(), ledger={"everything": price})
    spec = {"privacy": {"relation": "replace-one"}}
    early = replace(rehearsed_sweep, result=result, manifest=replace(rehearsed_sweep.manifest, spec=spec))
    early = replace(early, rehearsals=Rehearsed(rehearsed_sweep.rehearsals[:3]))
    head = str(sections.facts(early))
    assert "not recorded" not in head + str(sections.claim(early))
    assert (early.deltas, early.relations) == ((1e-4,), ("replace-one",))
    assert "3 of 17 rehearsed, 0 trained" in head
    assert "3 of 17 configurations so far" in str(rehearsals_table(early))
    assert early.rehearses
    assert "0 of 17 configurations so far" in str(rehearsals_table(replace(early, rehearsals=Rehearsed())))


def test_constraints_of_the_spec_rank_rehearsals(rehearsed_sweep, tmp_path):
    folder, before = SweepFolder(tmp_path), SweepFolder(rehearsed_sweep.directory)
    for name in ("front.json", "rehearsals.jsonl"):
        (tmp_path / name).write_bytes((before.path / name).read_bytes())
    spec = {
        "search": {"constraints": ["certified@0.25 >= 0.7"], "objectives": ["epsilon", "accuracy", "certified@0.25"]}
    }
    folder.write_manifest(replace(rehearsed_sweep.manifest, spec=spec))
    assert read(tmp_path).rehearsals[0].id == "c0004"  # of those that miss it the nearest
    spec["search"]["constraints"] = ["accuracy <= 0.5"]
    folder.write_manifest(replace(rehearsed_sweep.manifest, spec=spec))
    assert read(tmp_path).rehearsals[0].id == "c0001"


@pytest.fixture
def explained(monkeypatch):
    """Hyperparameters explain the rehearsals, and these are enough, so that contours are drawn."""
    monkeypatch.setattr(contours, "explained_share", lambda *_: 0.5)
    monkeypatch.setattr(contours, "_LEAST_MARKS", 4)


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("explained")
@pytest.mark.parametrize("kind", [configurations, slices, ranks, contours])
def test_rehearsed_configurations_that_were_trained_have_stars(rehearsed_sweep, kind):
    trained = {row["configuration"]: row["trained_as"] for row in kind.rows(kind.info(rehearsed_sweep))}
    assert {id_: trials for id_, trials in trained.items() if trials} == {"c0004": "t0001"}
    figure = kind.FIGURE.draw(rehearsed_sweep, still=True)
    named = [trace.name for trace in figure.data if trace.showlegend is not False and trace.name]
    is_picture = kind is configurations  # of lines, which have names
    assert named == [
        STAR,
        *["trained as t0001: 83.1 % on validation rows, rehearsed 90.0 %"] * is_picture,
    ]
    marked = [trace for trace in figure.data if trace.type == "scatter" and trace.text]
    stars = [trace.text[trace.marker.symbol.index("star")] for trace in marked]
    assert all(trace.marker.symbol[-1] == "star" for trace in marked)  # no other mark covers it
    assert all(text.startswith("<b>c0004</b>, trained as t0001<br>") for text in stars)
    assert bool(stars) is (kind is not configurations)
    assert "trained afterwards" in kind.FIGURE.remarks(rehearsed_sweep)
    early = replace(rehearsed_sweep, result=replace(rehearsed_sweep.result, trials={}, points=()))
    early = replace(early, rehearsals=Rehearsed(replace(one, trials=()) for one in rehearsed_sweep.rehearsals))
    assert STAR not in [trace.name for trace in kind.FIGURE.draw(early, still=True).data]
    assert "trained afterwards" not in kind.FIGURE.remarks(early)


@pytest.mark.long
def test_a_page_tells_trained_configurations_by_an_axis_and_a_picture_by_their_lines(rehearsed_sweep):
    info = configurations.info(rehearsed_sweep)
    last = configurations.plot(info).data[0].dimensions[-1]
    assert (last.label, last.ticktext) == ("trained", ("no", "yes"))
    assert [bool(value) for value in last.values] == [id_ == "c0004" for id_ in info.trials]
    drawn = configurations.FIGURE.draw(rehearsed_sweep, still=True).data
    *lines, key = (trace for trace in drawn if trace.line.width)
    (wide,) = (trace for trace in lines if trace.line.width > 2)
    assert len(lines) == len(info.trials)
    assert (key.name, key.x) == ("trained as t0001: 83.1 % on validation rows, rehearsed 90.0 %", (None,))
    assert key.line.width == wide.line.width
    assert key.line.dash == wide.line.dash == "solid"
    (star,) = (trace for trace in drawn if trace.x[0] is not None and trace.marker.symbol == ("star",))
    place = [axis.name for axis in info.axes].index(info.color_name)
    assert (star.marker.symbol, star.marker.opacity) == (("star",), 1)
    assert (star.x[0], star.y[0]) == (place, wide.y[place]), "at the score that was rehearsed"


def test_a_picture_names_trained_lines_and_says_why_the_best_is_not_one_of_them(rehearsed_sweep):
    begins = "trained: what did best on public tables; "
    why = f"{begins}others are better by less than 0.012 of hypervolume, the error of rehearsals"
    assert why not in configurations.info(rehearsed_sweep).terms

    def train(trials, error=0.012):
        found = [replace(one, trials=trials.get(one.id, ()), error=error) for one in rehearsed_sweep.rehearsals]
        data = replace(rehearsed_sweep, rehearsals=Rehearsed(found))
        keys = [trace for trace in configurations.FIGURE.draw(data, still=True).data if trace.x[0] is None]
        return configurations.info(data).terms, [(key.name, key.line.dash) for key in keys if key.mode == "lines"]

    terms, keys = train({"c0008": ("t0001",), "c0017": ("t0002",)})
    assert f"; {why}; " in terms
    assert [name.partition(":")[0] for name, _ in keys] == ["trained as t0002, rehearsed 82.0 %", "trained as t0001"]
    assert [dash for _, dash in keys] == ["solid", "dash"], "the better first"
    assert f"; {begins}too few show an error of rehearsals; " in train({"c0008": ("t0001",)}, inf)[0]
    one, two = (train(trained, None)[0] for trained in ({"c0008": ("t1",)}, {"c0008": ("t1",), "c0017": ("t2",)}))
    assert begins not in one, "nothing was preferred"
    assert "; trained: the best in accuracy and certified accuracy at radius 0.25 together (hypervolume); " in one
    assert " together (hypervolume), and the one that adds most to it; " in two
    assert begins not in train({"c0008": ("t0001",), "c0004": ("t0002",)})[0], "the best is one of them"
    assert begins not in train({})[0], "none was trained yet"


@pytest.mark.long
@pytest.mark.usefixtures("explained")
def test_scores_of_rehearsals_say_how_sure_they_are(rehearsed_sweep):
    claim = rehearsed_sweep.result.claim
    known = replace(claim, baselines=replace(claim.baselines, rows={"validation": 261}), unit="row")
    data = replace(rehearsed_sweep, result=replace(rehearsed_sweep.result, claim=known))
    words = "Scores of 261 public validation rows; 95 % CI ≤ ±"
    shares = [value for values in compare(data).reached.values() for value in values.values()]
    low, high = wilson(min(shares, key=lambda share: abs(share - 0.5)), 261)
    assert compare(data).certainty == f"{words}{number(50 * (high - low), 2, up=True)} points, ignoring selection"
    for kind in (configurations, slices, ranks, contours):
        assert words in json.dumps(as_json(kind.FIGURE.draw(data)), default=str, ensure_ascii=False)
        assert "scored once" in kind.FIGURE.remarks(data)
    people = replace(data, result=replace(data.result, claim=replace(known, unit="person")))
    assert (compare(people).certainty, half_width_of(people)) == ("", None)
    source = replace(data.rehearsals[0].configuration, source=RehearsalSource.SKETCH)
    first = replace(data.rehearsals[0], configuration=source)
    sketched = replace(data, rehearsals=Rehearsed([first, *data.rehearsals[1:]]))
    assert half_width_of(sketched) is None
    assert compare(sketched).certainty == "Scores are of synthetic rows, not of rows of the data"


@pytest.mark.usefixtures("explained")
def test_the_interval_of_rehearsals_is_that_of_their_rows_or_the_error_that_they_show(rehearsed_sweep):
    claim = rehearsed_sweep.result.claim
    known = replace(claim, baselines=replace(claim.baselines, rows={"validation": 261}), unit="row")
    data = replace(rehearsed_sweep, result=replace(rehearsed_sweep.result, claim=known))
    best = max(values["accuracy"] for values in compare(data).reached.values())
    assert (compare(data).sure, compare(data).sure_as) == (wilson(best, 261), "95 % CI of the best")
    alone = tuple(one for one in data.result.objectives if one.name in ("epsilon", "accuracy"))
    source = replace(data.rehearsals[0].configuration, source=RehearsalSource.SKETCH)
    shown = [replace(one, error=0.02) for one in data.rehearsals]
    shown[0] = replace(shown[0], configuration=source)
    for objectives, error, sure in ((alone, 0.02, (best - 0.02, best + 0.02)), (alone, inf, None), (None, 0.02, None)):
        result = replace(data.result, objectives=objectives or data.result.objectives)
        sketched = replace(data, result=result, rehearsals=Rehearsed(replace(one, error=error) for one in shown))
        assert compare(sketched).sure == (None if sure is None else pytest.approx(sure))
        assert (compare(sketched).sure_as == "error of rehearsals around the best") is (sure is not None)


@pytest.mark.usefixtures("explained")
def test_a_contour_has_the_colours_of_its_bar_and_says_what_is_interpolated(rehearsed_sweep):
    figure = contours.FIGURE.draw(rehearsed_sweep)
    filled = [trace for trace in figure.data if trace.type == "contour"][::2]  # each has one above that fades it
    marked = [trace for trace in figure.data if trace.type == "scatter" and trace.text]
    for fill, mark in zip(filled, marked, strict=True):
        assert (fill.opacity, fill.contours.coloring, mark.marker.opacity) == (None, "heatmap", 1)
        assert (fill.zmin, fill.zmax, fill.colorscale) == (mark.marker.cmin, mark.marker.cmax, mark.marker.colorscale)
    assert set(marked[0].marker.color) == set(contours.info(rehearsed_sweep).colors)
    assert "guessed between marks" in filled[0].colorbar.title.text
