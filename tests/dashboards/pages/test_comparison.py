"""Sweeps side by side: figures, page and files."""

import csv
import io
import json
import re
from dataclasses import replace
from importlib.metadata import entry_points

import pytest

from dashboards import commands
from dashboards.export.files import export_comparison
from dashboards.figures import DARK, LIGHT, as_json, comparison_figures, has_content
from dashboards.figures._common import WATERMARK
from dashboards.figures._tested import BEST_ON_TEST
from dashboards.figures.comparison import attainment, certified_fronts, hypervolumes
from dashboards.figures.comparison import fronts as overlay
from dashboards.figures.sweep import repeats
from dashboards.pages.comparison import HYPERVOLUME, build_comparison
from sweeper.errors import ExportError, UnknownFigureError
from sweeper.privacy.baselines import Baselines
from sweeper.privacy.pricing import Price
from sweeper.results.comparison import ONE_RUN, PRICE, compare

FIGURES = comparison_figures()


@pytest.fixture(scope="module")
def fronts(sweep):
    """Three runs of one spec and two of another that reaches less."""

    def worse(front, by, name):
        points = tuple(replace(p, values=p.values | {"accuracy": p.values["accuracy"] - by}) for p in front.points)
        return replace(front, sweep=name, points=points)

    shifts = {"digits": (0.0, 0.01, 0.02), "<b>cold": (0.1, 0.12)}
    return [(f"{n}-{by}", worse(sweep.result, by, n)) for n, each in shifts.items() for by in each]


@pytest.fixture(scope="module")
def comparison(fronts):
    return compare(fronts)


def test_every_run_is_a_line_of_what_it_achieves_and_every_spec_a_legend_entry(comparison, fronts):
    figure = overlay.plot(overlay.info(comparison))
    assert [trace.name for trace in figure.data if trace.showlegend] == [
        "digits (3 runs of 24 trials, price: epsilon 13.61 each)",
        "&lt;b&gt;cold (2 runs of 24 trials, price: epsilon 13.61 each)",
    ]
    lines = [trace for trace in figure.data if "lines" in trace.mode]
    assert len(lines) == 5
    assert len({(trace.line.color, trace.line.dash, trace.marker.symbol) for trace in lines}) == 2
    crosses = [trace for trace in figure.data if trace.marker.symbol == "x" and trace.showlegend is False]
    assert [trace.y[0] for trace in crosses] == [0.9385553793882327] * 5, "what the best of each reaches on test rows"
    assert figure.data[-1].name == f"{BEST_ON_TEST} (at the right)"
    for line, (label, front) in zip(overlay.info(comparison).lines, fronts, strict=True):
        assert line.run == label
        assert line.steps[-1].value == max(p.values["accuracy"] for p in front.points)


def test_the_table_of_compared_fronts_has_the_crosses(comparison):
    found = [row for row in overlay.rows(overlay.info(comparison)) if row["rows"] == "test"]
    assert [row["accuracy"] for row in found] == [0.9385553793882327] * 5
    assert all(row["low"] < row["accuracy"] < row["high"] for row in found if row["low"] is not None)


def test_fronts_are_compared_in_certified_accuracy_too_where_all_sweeps_have_one(comparison):
    info = certified_fronts.info(comparison)
    for line, run in zip(info.lines, comparison.runs, strict=True):
        assert line.steps[-1].value == max(p.values["certified@0.25"] for p in run.front.points)
    figure = certified_fronts.plot(info)
    assert figure.layout.yaxis.title.text.startswith("certified accuracy<br>at L2 radius 0.25 (")
    bare = replace(comparison, objectives=tuple(o for o in comparison.objectives if "certified" not in o.name))
    assert not has_content(certified_fronts.FIGURE, bare)


def test_the_baseline_that_all_sweeps_share_is_beside_their_fronts(comparison):
    def given(*majorities):
        runs = iter(majorities)
        groups = tuple(
            replace(group, runs=tuple(_with_majority(run, next(runs)) for run in group.runs))
            for group in comparison.groups
        )
        return replace(comparison, groups=groups)

    figure = overlay.plot(overlay.info(given(*[0.52] * 5)))
    assert (figure.data[-1].name, figure.layout.shapes[-1].y0) == ("majority class: 52.0 %", 0.52)
    low, high = figure.layout.yaxis.range
    assert low < 0.52 < high
    assert overlay.info(given(*[0.52] * 4, 0.6)).references == ()


def _with_majority(run, share):
    claim = replace(run.front.claim, baselines=Baselines(classes=("a", "b"), majority={"validation": share}))
    return replace(run, front=replace(run.front, claim=claim))


def test_lines_of_a_comparison_end_where_the_last_training_does(comparison):
    last = max(p.values["epsilon"] for run in comparison.runs for p in run.front.points)
    for info in (overlay.info(comparison), certified_fronts.info(comparison)):
        ends = {trace.x[-1] for trace in overlay.plot(info).data if "lines" in trace.mode}
        assert ends == {last}


def test_the_bands_lie_between_what_all_and_what_one_attain_and_are_filled_where_all_have_a_point(comparison):
    info = attainment.info(comparison)
    assert [(band.spec, band.runs) for band in info.bands] == [("digits", 3), ("<b>cold", 2)]
    best, median, worst = (info.bands[0].surface(name) for name in ("best", "median", "worst"))
    for epsilon, value in median.steps:
        assert worst.at(epsilon) == pytest.approx(value - 0.01)
        assert best.at(epsilon) == pytest.approx(value + 0.01)
    info = attainment.info(comparison)
    filled = [trace for trace in attainment.plot(info).data if trace.fill == "toself"]
    assert len(filled) == 2
    worst = info.bands[0].surface("worst")
    assert min(filled[0].x) == worst.steps[0][0]
    assert min(filled[0].y) == worst.steps[0][1]


def test_the_repeats_of_a_sweep_are_runs_too(sweep, small):
    info = repeats.info(sweep)
    ((spec, runs, (best, median, worst)),) = [(band.spec, band.runs, band.surfaces) for band in info.bands]
    assert (spec, runs, info.runs) == ("digits", 3, "repeats")
    assert {row["name"] for row in repeats.rows(info)} == {"digits"}
    assert "median of 3 repeats" in [trace.name for trace in repeats.FIGURE.draw(sweep).data], (
        "the title names the sweep"
    )
    highest = max(point.values["accuracy"] for point in sweep.points)
    assert [s.steps[-1][1] for s in (best, median, worst)] == pytest.approx([highest + d for d in (0.01, 0.01, -0.02)])
    assert repeats.info(small([])).bands == ()


def test_few_runs_of_one_spec_are_told_apart_and_two_have_no_median(fronts):
    two = compare(fronts[:2])
    lines = [trace for trace in overlay.plot(overlay.info(two)).data if "lines" in trace.mode]
    assert [trace.name for trace in lines if trace.showlegend] == [
        "digits-0.0 (24 trials, price: epsilon 13.61)",
        "digits-0.01 (24 trials, price: epsilon 13.61)",
    ]
    assert len({(trace.line.color, trace.marker.symbol) for trace in lines}) == 2
    assert [row["surface"] for row in attainment.rows(attainment.info(two)) if row["surface"] == "median"] == []
    (named,) = [trace.name for trace in attainment.plot(attainment.info(two)).data if trace.showlegend is not False]
    assert named == "digits: from worst to best of 2 runs"


def test_runs_without_a_band_have_their_best_in_the_legend(fronts):
    found = attainment.info(compare(fronts[:2]))
    (band,) = found.bands
    alone = replace(band, surfaces=tuple(one for one in band.surfaces if one.name == "best"))
    drawn = attainment.plot(replace(found, bands=(alone,))).data
    assert [trace.name for trace in drawn if trace.showlegend is not False] == ["digits: best of 2 runs"]


def test_runs_of_one_name_are_told_apart_by_tints_and_so_are_their_crosses(comparison):
    first, *_others = comparison.groups
    info = overlay.info(replace(comparison, groups=(first, replace(first, name="other"))))
    drawn = overlay.plot(info).data
    lines = [trace for trace in drawn if trace.mode == "lines+markers" and trace.marker.symbol != "x"]
    assert [line.opacity for line in lines[:6]] == [1.0, 0.75, 0.55] * 2
    assert len({line.line.color for line in lines[:3]}) == 1
    crosses = [trace for trace in drawn if trace.marker.symbol == "x" and trace.x[0] is not None]
    assert [cross.opacity for cross in crosses] == [1.0, 0.75, 0.55][: len(crosses) // 2] * 2
    few = overlay.plot(replace(info, lines=(*info.lines[:3], replace(info.lines[3], spec="other")))).data
    marks = [trace.marker.symbol for trace in few if trace.mode == "lines+markers" and trace.marker.symbol != "x"]
    assert marks == ["circle", "circle-open", "circle", "square"]
    assert [trace.name for trace in few if trace.showlegend] == [
        *(f"digits, run {number} (24 trials, price: epsilon 13.61)" for number in (1, 2, 3)),
        "other (24 trials, price: epsilon 13.61)",
    ]


def test_hypervolumes_of_noisy_scores_have_bars(comparison):
    first, *others = comparison.groups[0].runs
    noisy = replace(first, interval=(first.hypervolume - 0.1, first.hypervolume + 0.2))
    group = replace(comparison.groups[0], runs=(noisy, *others))
    found = replace(comparison, groups=(group, *comparison.groups[1:]))
    bars = hypervolumes.plot(hypervolumes.info(found)).data[0].error_x
    assert (bars.arrayminus[0], bars.array[0]) == pytest.approx((0.1, 0.2))
    assert set(bars.array[1:]) == {None}
    row, *rest = hypervolumes.rows(hypervolumes.info(found))
    assert (row["low"], row["high"]) == noisy.interval
    assert {one["low"] for one in rest} == {None}
    assert f"[{noisy.interval[0]:.3f}, {noisy.interval[1]:.3f}]" in build_comparison(found)


def test_runs_are_marks_and_a_mean_is_a_tick(comparison):
    runs, _, mean, *_ = hypervolumes.plot(hypervolumes.info(comparison)).data
    assert list(runs.x) == list(comparison.groups[0].volumes)
    assert mean.x == (pytest.approx(sum(runs.x) / 3),) * 3
    assert list(mean.y) == list(runs.y) == [0, 1, 2]
    named = hypervolumes.plot(hypervolumes.info(comparison)).layout.yaxis.ticktext
    assert list(named[:3]) == [f"digits, run {number}<br>24 trials, price: epsilon 13.61" for number in (1, 2, 3)]
    low, high = hypervolumes.plot(hypervolumes.info(comparison)).layout.xaxis.range
    volumes = [run.hypervolume for run in comparison.runs]
    assert 0 <= low < min(volumes)
    assert max(volumes) < high <= 1
    assert "A tick is the mean" in hypervolumes.FIGURE.remarks(comparison)


def test_crosses_say_what_the_models_of_each_run_have_on_test_rows(fronts):
    def tested(front, by):
        points = tuple(replace(p, test={**p.values, "accuracy": p.values["accuracy"] - by}) for p in front.points)
        return replace(front, points=points)

    found = compare([(fronts[0][0], tested(fronts[0][1], 0.05)), fronts[1], (fronts[3][0], tested(fronts[3][1], 0.0))])
    info = hypervolumes.info(found)
    (first, second), (other,) = info.on_test
    assert first < found.runs[0].hypervolume
    assert other == pytest.approx(found.runs[2].hypervolume)
    drawn = hypervolumes.plot(info).data
    crosses = [trace for trace in drawn if trace.marker.symbol == "x" and trace.text]
    assert [list(trace.x) for trace in crosses] == [[first, second], [other]]
    assert [trace.marker.color for trace in crosses] == [LIGHT.hue(0), LIGHT.hue(1)], "those of their runs"
    assert [trace.name for trace in drawn[-2:]] == ["validation scores", "the models of the front on test rows"]
    assert [row["on_test"] for row in hypervolumes.rows(info)] == [first, second, other]
    assert "Crosses" in hypervolumes.FIGURE.remarks(found)


def test_a_picture_names_few_sweeps_the_mean_and_the_box(fronts, comparison):
    figure = hypervolumes.plot(hypervolumes.info(compare(fronts[:2])))
    assert [name.partition("<br>")[0] for name in figure.layout.yaxis.ticktext] == ["digits, run 1", "digits, run 2"]
    for drawn in (figure, hypervolumes.plot(hypervolumes.info(comparison))):
        keys = {trace.name: trace.marker.color for trace in drawn.data if trace.showlegend is not False}
        assert next(iter(keys)) == "mean of the sweeps of one name"
        assert {*keys.values()} == {LIGHT.muted}, "of no name"
    title = figure.layout.xaxis.title.text.replace("<br>", " ").replace("\xa0", " ")
    assert "price of both together" in title
    assert "box: own epsilon (0.01 to 100, log), accuracy" in title
    linear = compare(fronts[:2], reference={"epsilon": 10.0}, log_epsilon=False)
    assert "own epsilon (0.01\xa0to\xa010)" in hypervolumes.plot(hypervolumes.info(linear)).layout.xaxis.title.text
    alike = compare([(f"{place}/run", front) for place, (_, front) in zip("ab", fronts, strict=False)])
    runs, *_ = hypervolumes.plot(hypervolumes.info(alike)).data
    assert (list(runs.y), [text.partition("<br>")[0] for text in runs.text]) == (
        [0, 1],
        ["<b>a/run</b>", "<b>b/run</b>"],
    )
    many = compare([(f"{label}-{i}", front) for label, front in fronts for i in range(3)])
    assert hypervolumes.plot(hypervolumes.info(many)).layout.yaxis.ticktext[0] == "digits<br>price: epsilon 13.61"


def test_in_a_column_the_terms_of_hypervolumes_stand_below(comparison):
    page, column = (hypervolumes.FIGURE.draw(comparison, narrow=narrow, still=True).layout for narrow in (False, True))
    assert not [note for note in page.annotations if note.name == "terms"]
    (terms,) = (note for note in column.annotations if note.name == "terms")
    assert (terms.x, terms.xanchor, terms.y, terms.yanchor) == (1, "right", 0, "top")
    assert column.margin.b > -terms.yshift + 10 * len(terms.text.split("<br>")), "there is room for it"
    assert column.xaxis.title.text == "hypervolume (share of the box)"
    below = page.xaxis.title.text.removeprefix(f"{column.xaxis.title.text}<br>")
    said, beside = (re.split(r"(?:;? |<br>|;<br>)+", text) for text in (terms.text, below))
    assert said == beside, "the box, what chose, and the price"
    assert column.yaxis.ticktext[1] == "digits, run 2: 24 trials<br>price 13.61"


def test_prices_of_runs_are_a_range_and_one_that_is_not_known_makes_all_unknown(fronts):
    label, front = fronts[0]
    cheap = replace(front, ledger={"winner": Price(epsilon=2.997, delta=1e-4, events=1)})
    other = ("other", replace(front, sweep="other", ledger={}))
    found = compare([(label, front), ("cheap", cheap), other])
    assert [group.price_in_words for group in found.groups] == ["price: epsilon 2.997 to 13.61", "unknown price"]
    said = "hypervolume of digits (price: epsilon 2.997 to 13.61) minus other (unknown price): "
    assert str(found.differences[0]).startswith(said)


def test_single_runs_have_no_bands_and_no_ticks(fronts):
    alone = compare([fronts[0], fronts[3]])
    assert attainment.info(alone).bands == ()
    assert [a.text for a in attainment.plot(attainment.info(alone)).layout.annotations] == ["no spec with two runs"]
    drawn = hypervolumes.plot(hypervolumes.info(alone)).data
    told = [trace for trace in drawn if trace.text]
    assert [trace.marker.symbol for trace in told] == ["circle", "x", "circle", "x"]
    assert [trace.marker.color for trace in told] == [LIGHT.hue(0)] * 2 + [LIGHT.hue(1)] * 2
    rows = hypervolumes.plot(hypervolumes.info(alone)).layout.yaxis.ticktext
    assert [name.partition("<br>")[0] for name in rows] == ["digits", "&lt;b&gt;cold"], "which run is no question"
    assert "tick" not in hypervolumes.FIGURE.caption + hypervolumes.FIGURE.remarks(alone)
    assert ONE_RUN in build_comparison(alone)


def test_a_sweep_has_one_colour_in_all_figures_beside_one_without_a_point(fronts):
    empty = replace(fronts[0][1], sweep="empty", points=(), on_front=frozenset())
    found = compare([("empty", empty), fronts[0], fronts[3]])
    colours = [
        {trace.marker.color for trace in kind.draw(found).data if trace.marker.symbol == "x" and trace.text}
        for kind in (FIGURES["fronts"], FIGURES["hypervolumes"])
    ]
    assert colours == [{LIGHT.hue(1), LIGHT.hue(2)}] * 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_numbers_and_a_watermark_where_it_is_due(fronts, comparison, name):
    rows = FIGURES[name].numbers(comparison)
    assert {row["name"] for row in rows} == {"digits", "<b>cold"}
    assert all(row.keys() == rows[0].keys() for row in rows)
    label, front = fronts[0]
    marked = compare([(label, replace(front, claim=replace(front.claim, exploratory=True))), *fronts[1:]])
    for theme in (LIGHT, DARK):
        assert WATERMARK in [a.text for a in FIGURES[name].draw(marked, theme).layout.annotations]
        assert WATERMARK not in [a.text for a in FIGURES[name].draw(comparison, theme).layout.annotations]
    assert "<b>cold" not in str(as_json(FIGURES[name].draw(comparison, LIGHT)))


def test_the_page_says_which_sweeps_of_one_name_are_of_different_specs(fronts):
    specs = {label: {"training": {"epochs": place}} for place, (label, _) in enumerate(fronts[:3])}
    assert "digits-0.0 and digits-0.01 differ in training.epochs." in build_comparison(compare(fronts, specs=specs))


def test_the_page_says_what_can_be_said(comparison, fronts):
    page = build_comparison(comparison)
    assert "95 % interval" in page
    assert PRICE in page
    assert "not comparable" not in page
    assert "<b>cold" not in page.replace("&lt;b&gt;cold", "")
    assert all(f'id="plot-{name}"' in page for name in FIGURES)
    assert page.count("<tr>") == 1 + 5
    best = max(fronts[0][1].front_points, key=lambda point: point.values["accuracy"])
    tested, chosen = (f"{100 * values['accuracy']:.1f}\xa0%" for values in (best.test, best.values))
    noted = (
        f"</strong> ({chosen} on the validation rows that chose it as the mean of 3 trainings) for epsilon 13.61</p>"
    )
    assert (
        f"digits, the best of 3 on validation rows (digits-0.0): <strong>{tested} accuracy on test rows{noted}" in page
    )
    labels = re.findall(r'<td class="number" data-label="([^"]+)">([^<]+)</td>', page)
    assert labels[:2] == [("best accuracy, test", tested), ("validation", chosen)]
    assert page.index(f"costs {comparison.bound}.</p>") < page.index('<section id="fronts">')
    assert HYPERVOLUME in page
    assert page.index('<section id="fronts">') < page.index('<section id="differences">')


def test_what_was_compared_all_the_same_is_named_first(fronts):
    label, front = fronts[0]
    other = replace(front, claim=replace(front.claim, data="mnist"))
    page = build_comparison(compare([(label, front), ("o", other)], anyway=True))
    assert page.index("Expected sweeps of the same data, got digits") < page.index("Differences")


@pytest.mark.long
def test_a_comparison_is_a_page_a_table_or_numbers(comparison, tmp_path):
    (exporter,) = entry_points(group="sweeper.exporters", name="comparison")
    assert exporter.load() is commands.export_compared
    assert commands.export_compared(comparison, tmp_path / "c.html").read_text().startswith("<!DOCTYPE html>")
    table = commands.export_compared(comparison, tmp_path / "c.csv").read_text()
    assert [row["name"] for row in csv.DictReader(io.StringIO(table))] == ["digits"] * 3 + ["<b>cold"] * 2
    content = json.loads(export_comparison(comparison, tmp_path / "c.json").read_text())
    assert len(content["runs"]) == 5
    steps = export_comparison(comparison, tmp_path / "a.csv", figure="attainment").read_text()
    assert steps.startswith("name,runs,surface,at_least,epsilon,accuracy")


def test_an_unknown_figure_of_a_comparison_is_refused(comparison, tmp_path):
    with pytest.raises(ExportError, match="Expected the name of a figure, got 'front'; did you mean 'fronts'"):
        export_comparison(comparison, tmp_path / "c.html", figure="front")


def test_a_comparison_draws_its_figures_in_python(comparison):
    assert [trace.name for trace in comparison.plot().data] == [
        trace.name for trace in FIGURES["fronts"].draw(comparison).data
    ]
    drawn = comparison.plot("hypervolumes", preset="column", caption=True)
    assert "price of all 5 together" in drawn.caption
    with pytest.raises(UnknownFigureError, match="got 'pie'; choose one of fronts, "):
        comparison.plot("pie")
