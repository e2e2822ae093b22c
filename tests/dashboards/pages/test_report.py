import json
import math
import re
import subprocess
import time
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from clipless.audits.finding import AuditKind, Finding
from clipless.privacy.exposure import Basis, Exposure, GroupCost, Risk
from dashboards import build_report
from dashboards.export.pictures import find_browser
from dashboards.figures import plotly_js, sweep_figures
from dashboards.pages import _html, report
from dashboards.pages import _sections as sections
from dashboards.pages import _tables as tables
from dashboards.pages._html import Html, each, json_script, tag
from dashboards.pages._page import strip_title
from dashboards.pages._sections import attacks, cost
from dashboards.pages._tables import decisions_table
from dashboards.pages._top import RUNNING, smoothing_in_words, top
from dashboards.summary import best_of
from dashboards.text import MISSING, number, show_epsilon
from sweeper.privacy.baselines import Baselines, MajoritySource
from sweeper.privacy.claims import CERTIFIED_MODEL, FLOATING_NOISE
from sweeper.privacy.held_out import wilson
from sweeper.privacy.pricing import FIXED, GROWS
from sweeper.program import program
from sweeper.records import ClassCounts, NoisyScores, Point, SmoothedCounts, SweepStatus, Trial, TrialStatus
from sweeper.results.pick import pick
from sweeper.rounding import round_up
from sweeper.store.evidence import Evidence
from sweeper.store.manifest import Manifest
from sweeper.store.trial_standings import LOST_REASON

FIGURES = sweep_figures()

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
VOID = {"meta", "br", "col", "input"}


class Page(HTMLParser):
    """Text by section, and every tag with its attributes; fails on tags that do not nest."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.text, self.ids = [], [], [], set()
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids.add(dict(attrs).get("id"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    @property
    def words(self):
        return re.sub(r"\s+", " ", "".join(self.text))


@pytest.fixture(scope="module")
def html(sweep):
    return build_report(sweep)


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


@pytest.fixture(scope="module")
def own(html):
    """The page without plotly.js."""
    assert html.count(plotly_js()) == 1
    return html.replace(plotly_js(), "")


@pytest.fixture
def without_figures(monkeypatch):
    """Figures, which take most of the time of a report, are left out of it."""
    monkeypatch.setattr("dashboards.pages.report.sweep_figures", dict)


def test_the_page_loads_nothing(page, own):
    assert not [attrs for _, attrs in page.tags if "src" in attrs or "href" in attrs]
    assert not [tag for tag, _ in page.tags if tag in ("link", "iframe", "img", "object", "base", "form")]
    assert not re.search(r"https?:|//cdn|@import|url\(", own)
    (policy,) = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy


def test_every_part_is_there_with_the_terms_and_nothing_is_uploaded(page, own):
    parts = {"headline", *(name for name in FIGURES), "points", "cost", "claim", "pick", "trials"}
    assert parts <= page.ids
    assert {f"plot-{name}" for name in FIGURES} <= page.ids
    for words in ("digits", "1e-4", "add-or-remove-one", "20 completed, 2 stopped, 1 failed, 1 interrupted"):
        assert words in page.words
    assert "showSendToCloud: false" in own
    assert 'plotlyServerURL: ""' in own


def test_the_headline_has_validation_and_test_of_one_point(sweep, page):
    from dashboards.summary import budgets

    for budget in budgets(sweep):
        best = budget.best["accuracy"]
        assert f"own epsilon ≤ {budget.epsilon:g}" in page.words
        assert f"{100 * best.test['accuracy']:.1f} % accuracy on test rows" in page.words
        assert f"{100 * best.values['accuracy']:.1f} % on the validation rows that chose it" in page.words
        assert f"{best.trial}, epoch {best.epoch}, own epsilon" in page.words


def test_the_best_in_a_further_score_is_said_to_be_chosen_on_validation_rows(small):
    """On test rows it may be behind the score of the most accurate point, which stands above it."""
    points = [
        Point(
            trial="t1",
            epoch=epoch,
            values={"epsilon": float(epoch), "accuracy": accuracy, "smoothed@0.5": smoothed},
            test={"accuracy": accuracy, "smoothed@0.5": tested},
        )
        for epoch, accuracy, smoothed, tested in ((1, 0.7, 0.12, 0.08), (2, 0.9, 0.07, 0.093))
    ]
    names = ("epsilon", "accuracy", "smoothed@0.5")
    shown = str(sections.headline(small(points, objectives=names)))
    title = "smoothed accuracy at radius 0.5"
    assert shown.index(f"its {title}") < shown.index(f"best {title}, chosen on validation rows")
    untested = str(sections.headline(small([replace(point, test=None) for point in points], objectives=names)))
    assert f"best {title}</th>" in untested


def test_cards_of_the_best_have_test_before_validation(sweep):
    cards = str(sections.headline(sweep))
    assert cards.index(">test</th>") < cards.index(">validation</th>")
    best = best_of(sweep, "accuracy")
    row = cards.partition("its certified")[2].partition("</tr>")[0]
    tested, chose = (100 * values["certified@0.25"] for values in (best.test, best.values))
    assert row.index(f"{tested:.1f}") < row.index(f"{chose:.1f}")


def test_the_price_stands_before_what_points_cost_by_themselves(page):
    assert "The price of this sweep is epsilon 13.61, whether one of its models leaves or all." in page.words
    assert GROWS in page.words
    assert page.words.index("price: epsilon 13.61") < page.words.index("own epsilon ≤ 1")
    assert "not proven" not in page.words


def test_a_price_that_results_steered_says_so_in_the_headline_and_where_it_is_explained(sweep):
    result = sweep.result
    ledger = result.claim.with_chosen("batch_size").qualify(result.ledger)
    steered = replace(sweep, result=replace(result, ledger=ledger))
    said = "they choose batch_size; fix batch_size, or set privacy.sweep_epsilon."
    assert said in sections.facts(steered)["price"][1]
    assert said in str(sections.cost(steered))
    assert "<small>epsilon (not proven)</small>" in str(sections.cost(steered))
    assert "(not proven)" in sections.facts(steered)["price"][0]
    for data, doubted in ((steered, True), (sweep, False)):
        page = build_report(data)
        assert ("the price of one model or all (not proven)." in page) is doubted
        assert (f"price: epsilon {show_epsilon(result.price.epsilon)} (not proven)" in page) is doubted


def test_the_price_stands_beside_its_costliest_training_which_may_outlast_the_front(sweep):
    costliest, last = (max(p.values["epsilon"] for p in found) for found in (sweep.points, sweep.front_points))
    ratio = number(sweep.result.price.epsilon / costliest, up=True)
    _, note = sections.facts(sweep)["price"]
    assert note.startswith(f"{ratio} times the own epsilon of the costliest training, {show_epsilon(costliest)}")
    ends = f"The front ends at own epsilon {show_epsilon(last)}: trainings above it are in the price"
    assert (ends in note) is (last < costliest)
    kept = frozenset(p.key for p in sweep.front_points if p.values["epsilon"] < costliest / 2)
    _, note = sections.facts(replace(sweep, result=replace(sweep.result, on_front=kept)))["price"]
    assert note.startswith(f"{ratio} times")
    assert "The front ends at own epsilon" in note


@pytest.mark.usefixtures("without_figures")
def test_the_headline_says_whether_the_price_was_fixed_and_for_what(sweep):
    fixed = {name: replace(answer, fixed=True) for name, answer in sweep.result.ledger.items()}
    words = Page(build_report(replace(sweep, result=replace(sweep.result, ledger=fixed)))).words
    assert FIXED in words
    assert "composes every training so far" not in words
    secret = fixed | {"everything": replace(fixed["everything"], epsilon=float("inf"), events=0)}
    words = Page(build_report(replace(sweep, result=replace(sweep.result, ledger=secret)))).words
    assert "for its winner; nothing else of this sweep may leave." in words


def test_the_result_and_the_front_come_before_all_else(sweep, page, own):
    best = max(sweep.front_points, key=lambda point: point.values["accuracy"])
    (tested, chosen), (certified, other) = (
        [f"{100 * values[name]:.1f}\xa0%" for values in (best.test, best.values)]
        for name in ("accuracy", "certified@0.25")
    )
    result = (
        f"{tested} accuracy on test rows for epsilon 13.61, the price of one model or all."
        f"{chosen} on the validation rows that chose it as the mean of 3 trainings."
    )
    top = "".join(page.text[: page.text.index("The front")])
    assert result in top
    assert f"Same model: {certified} certified accuracy at radius 0.25 on test rows ({other} validation)." in top
    assert "digits, 1078 training rows, scored on public rows. delta = 1e-4, add-or-remove-one." in top
    order = ["front", "headline", "cost", "terms", "claim", "pick", "points", "robustness", "trials"]
    places = [own.index(f'<section id="{name}">') for name in order]
    assert places == sorted(places)


def test_how_to_read_a_figure_opens_and_what_privacy_depends_on_stays(own):
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", own)
    folded = [re.sub("<details>.*", "", one) for one in captions if "<details>" in one]
    assert len(folded) > 10
    for name in ("caught", "price", "trajectories"):
        (terms,) = [one for one in folded if FIGURES[name].terms in unescape(one)]
        assert FIGURES[name].caption not in unescape(terms)
        assert FIGURES[name].caption in unescape(own)
    assert FIGURES["stages"].caption in [unescape(one)[: len(FIGURES["stages"].caption)] for one in captions]


def test_figures_of_trials_and_of_the_search_are_below_a_heading_that_opens(own):
    topics = dict(re.findall(r'<details id="topic-(\w+)" class="topic">(.*?)</section></details>', own, re.DOTALL))
    inside = {topic: re.findall(r'<section id="([\w-]+)">', content) for topic, content in topics.items()}
    assert inside == {
        topic.value: [name for name, kind in FIGURES.items() if kind.topic is topic] for topic in report.FOLDS
    }
    assert re.search(rf"<span>{len(inside['trials'])} figures: [^<]*How the trials got there; ", topics["trials"])


def test_the_place_of_a_figure_is_kept_until_it_is_drawn(page):
    plots = [attrs for _, attrs in page.tags if attrs.get("class") == "plot"]
    places = [attrs["style"] for attrs in plots if attrs.get("style")]
    assert places
    assert all(re.fullmatch(r"--height: \d+px", place) for place in places)


def test_a_smoothed_certificate_says_how_many_rows_and_draws_it_rests_on(small):
    counts = SmoothedCounts(sigma=0.25, alpha=0.001, draws=300, selection_draws=75, rows=100, abstained=1, correct=90)
    values = {"epsilon": 1.6, "accuracy": 0.8, "smoothed@0.25": 0.7}
    point = Point(trial="t1", epoch=1, values=values, test=values, smoothed=counts)
    data = small([point], objectives=("epsilon", "accuracy", "smoothed@0.25"))
    told = smoothing_in_words(data, point)
    assert "100 test rows, 300 draws each (1 row undecided, counted as wrong)" in told
    assert "validation" not in told
    spec = {"search": {"smoothing": {"draws": 50, "rows": 40}}}
    known = Manifest(name="s", status=SweepStatus.COMPLETED, spec=spec, source="spec.yaml")
    assert "at most 40 validation rows, 50 draws each; 100 test rows" in smoothing_in_words(
        replace(data, manifest=known), point
    )
    plain = replace(point, values={"epsilon": 1.6, "accuracy": 0.8}, smoothed=None)
    assert smoothing_in_words(small([plain]), plain) == ""


def test_budgets_that_buy_the_same_points_have_one_card(small):
    values = {"epsilon": 1.6, "accuracy": 0.8}
    page = str(sections.headline(small([Point(trial="t1", epoch=1, values=values)])))
    assert page.count("t1, epoch 1, own epsilon 1.6") == 1
    assert "own epsilon ≤ 3 to 8" in page
    assert "own epsilon ≤ 1<" in page


@pytest.mark.parametrize("price", [2.9966, 3.00001, 0.05157])
def test_a_price_is_never_shown_as_less_than_it_is_and_everywhere_alike(sweep, price):
    costs = {name: replace(one, epsilon=price) for name, one in sweep.result.ledger.items()}
    data = replace(sweep, result=replace(sweep.result, ledger=costs))
    shown = round_up(price)
    assert float(shown) >= price
    assert f"price of this sweep is epsilon {shown}, " in str(sections.cost(data))
    assert f"price: epsilon {shown}<" in str(sections.headline(data))
    assert f" --max-price {shown}" in str(sections.how_to_pick(data))
    assert f">{shown} <small>epsilon" in str(sections.cost(data))
    assert f">{shown}</td>" in str(tables.front_table(data))


def test_the_ledger_states_one_price_once_with_conditions_and_public_facts(page):
    assert page.words.count("13.61 epsilon") == 1
    assert page.words.count("Price: epsilon 13.61 at delta 0.0001") == 1
    assert "rows were assigned by keyed hash" in page.words
    assert "The ten classes are known in advance." in page.words


@pytest.mark.long
def test_what_attacks_attained_is_told_by_kind_with_the_finding_that_attained_most(sweep):
    def row(kind, subject, attained, epsilon=2.5, *, contradicted=False):
        numbers = {"epsilon": epsilon, "delta": 1e-5, "attained": attained, "confidence": 0.95, "p_value": 0.5}
        finding = Finding(kind=kind, subject=subject, contradicted=contradicted, **numbers)
        return Evidence(trial="t0001", finding=finding, found="now", program="1")

    rows = (
        row(AuditKind.STEP, "trial <b>1</b>", 2.0, contradicted=True),
        row(AuditKind.NOISE, "trial 1", 0.1, math.inf),
        row(AuditKind.STEP, "trial 2", 1.0),
    )
    shown = str(attacks(replace(sweep, evidence=rows)))
    found = [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", line) for line in shown.split("<tr>")[2:]]
    assert found == [
        ["step", "2", "1", "2.5", "2", "80.0 %", "1e-5", "trial &lt;b&gt;1&lt;/b&gt;"],
        ["noise", "1", "0", "∞", "0.1", MISSING, "1e-5", "trial 1"],
    ]
    assert 'id="attacks"' in build_report(replace(sweep, evidence=rows))
    assert attacks(replace(sweep, evidence=())) is None


def test_the_commands_can_be_met_by_this_front(sweep, page):
    assert f"{program()} pick {sweep.directory} --max-price 13.61" in page.words
    wanted = float(re.search(r"--min certified@0.25=([0-9.]+)", page.words).group(1))
    assert any(p.values["certified@0.25"] >= wanted for p in sweep.front_points)
    assert f'clipless.load("{sweep.directory}/{pick(sweep.result).model}")' in page.words


def test_a_table_of_the_front_hides_what_is_one_value_for_all_and_writes_ends_of_intervals_as_shares(sweep):
    def noisy(point):
        ends = {"accuracy": (point.values["accuracy"] - 0.125, 0.9871)}
        return replace(point, noisy=NoisyScores(is_final=False, released={}, intervals=ends))

    points = tuple(map(noisy, sweep.points))
    table = str(tables.front_table(replace(sweep, result=replace(sweep.result, points=points))))
    hidden = re.findall(r'data-name="([^"]+)" data-hidden', table)
    assert {"price", "own epsilon, pld", "own epsilon, rdp", "accuracy low", "accuracy high", "model"} <= set(hidden)
    assert not {"trial", "own epsilon", "accuracy", "accuracy, test", "certified@0.25"} & set(hidden)
    assert ">98.7 %</td>" in table
    shown = [re.sub("<.*?>", "", cell) for cell in re.findall(r'<td class="number" data-value="0[^>]*>.*?</td>', table)]
    assert any(re.fullmatch(r"[\d.]+.% \([\d.]+ to 98\.7.%\)", cell) for cell in shown), "beside the score itself"


def test_the_table_has_a_sortable_row_for_every_point_of_the_front(sweep, own):
    start = own.index('id="points"')
    table = own[start : own.index("</section>", start)]
    assert table.count("<tr>") == 1 + len(sweep.result.on_front)
    epsilons = re.findall(
        r'<tr><td data-value="t\d+">.*?</td><td .*?</td><td class="number" data-value="([^"]+)"', table
    )
    assert [float(e) for e in epsilons] == [p.values["epsilon"] for p in sweep.front_points]
    assert table.count('<button type="button">') == table.count("<th ")


@pytest.mark.usefixtures("without_figures")
def test_why_trials_ended_early_is_a_table(sweep, page):
    assert "ended early" not in page.words
    rung = {"trial": "t0005", "epoch": 8, "goes_on": False, "reason": "rank 11 of 12", "rung": 8}
    projected = {"trial": "t0017", "epoch": 8, "goes_on": False, "reason": "stays behind", "rung": None}
    passed = {"trial": "t0000", "epoch": 8, "goes_on": True, "reason": "rank 1 of 12", "rung": 8}
    html = build_report(replace(sweep, decisions=(passed, rung, projected)))
    words = Page(html).words
    assert "2 trials ended early (1 at a rung, 1 between rungs); 1 time one continued" in words
    assert "stays behind" in words
    assert "<details open>" in html
    html = decisions_table(replace(sweep, decisions=(rung,) * 301))
    assert "<details open>" not in html
    cut = "Shown: 300 of 301 of these decisions, evenly spread; all of them are in decisions.jsonl."
    assert cut in Page(html).words


@pytest.mark.long
def test_a_huge_sweep_has_a_report_that_opens_quickly(small):
    generator = np.random.default_rng(0)
    count, epochs = 500, 10
    trials = tuple(
        Trial(
            id=f"t{i:04d}", config={"training": {"rate": float(r), "width": int(64 * r)}}, status=TrialStatus.COMPLETED
        )
        for i, r in enumerate(generator.uniform(size=count))
    )
    points = [
        Point(trial=t.id, epoch=e, values={"epsilon": e * (0.1 + r), "accuracy": r * a, "certified@0.25": a * (1 - r)})
        for t in trials
        for r, a in [(t.config["training"]["rate"], 1.0)]
        for e, a in enumerate(np.sort(generator.uniform(size=epochs)).tolist(), start=1)
    ]
    data = small(points, objectives=("epsilon", "accuracy", "certified@0.25"), trials=trials)
    started = time.process_time()
    html = build_report(data)
    assert time.process_time() - started < 20.0  # about 1.5 on an idle machine
    assert len(html) - len(plotly_js()) < 3_000_000
    words = Page(html).words
    assert f"Drawn: 200 of {count} trials, those on the front among them." in words
    assert all(trial.id in words for trial in trials)
    assert "points of the front, evenly spread over epsilon; all of them are in front.csv." in words


@pytest.mark.usefixtures("without_figures")
def test_an_exploratory_sweep_says_so_first(exploratory_sweep, page):
    words = Page(build_report(exploratory_sweep)).words
    assert words.index("Exploratory: no guarantee.") < words.index("The best models, and their price")
    assert "Exploratory" not in page.words


def test_no_name_becomes_markup(make_front, load):
    front = make_front(name=EVIL)
    front["trials"]["t0003"]["config"]["model"]["architecture"] = EVIL
    front["trials"]["t0011"]["reason"] = EVIL
    front["claim"] |= dict.fromkeys(("data", "unit", "evaluation", "radius_unit"), EVIL)
    front["claim"] |= {"conditions": [EVIL], "public": [EVIL]}
    front["ledger"]["winner"]["statement"] = EVIL
    for trial in front["trials"].values():
        trial["relation"] = EVIL
    data = replace(
        load(front),
        directory=f"x/{EVIL}",
        manifest=Manifest(
            name="digits", status=SweepStatus.COMPLETED, spec={}, source="spec.yaml", versions={EVIL: EVIL}
        ),
    )
    hostile, harmless = Page(build_report(data)), Page(build_report(load(make_front())))
    assert {tag for tag, _ in hostile.tags} == {tag for tag, _ in harmless.tags}
    assert sum(tag == "script" for tag, _ in hostile.tags) == sum(tag == "script" for tag, _ in harmless.tags)
    assert not [attrs for _, attrs in hostile.tags if "onerror" in attrs]
    assert EVIL in hostile.words


def test_figures_travel_as_json_and_every_colour_has_a_dark_one(own):
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', own).group(1))
    colors = json.loads(re.search(r'id="dark-colors">(.*?)</script>', own).group(1))
    assert set(figures) == {f"plot-{name}" for name in FIGURES}
    assert all("title" not in figure["layout"] for figure in figures.values())
    used = set(re.findall(r"#[0-9a-f]{6}\b", json.dumps(figures)))
    assert used <= set(colors)


def test_a_sweep_that_has_nothing_yet_has_a_report(small):
    words = Page(build_report(small([]))).words
    for expected in (
        "No points yet: each point of the front gets a row here.",
        "as soon as a trial has finished its first epoch",
        "Nothing is priced yet.",
        "delta not recorded",
        "Choose two or more trials to compare them.",
    ):
        assert expected in words


@pytest.mark.usefixtures("without_figures")
def test_a_point_without_test_values_or_certificate_is_shown_with_dashes(make_front, load):
    front = make_front()
    for point in front["points"]:
        point["test"] = None
        point["model"] = None
        del point["values"]["certified@0.25"]
    words = Page(build_report(load(front))).words
    assert words.count("not scored on test rows") > 1
    assert "accuracy on the validation rows that chose it as the mean of 3 trainings for epsilon" in words
    assert "clipless.load" not in words


CLICKS = """<script>
const heads = [...document.querySelectorAll("#points th button")];
const head = heads.find((button) => button.textContent === "accuracy");
const column = [...head.closest("tr").children].indexOf(head.closest("th"));
const shown = () => [...document.querySelectorAll("#points tbody tr")].map((row) => Number(row.children[column].dataset.value));
head.click(); const up = shown(); head.click(); const down = shown();
const have = () => [...document.querySelectorAll(".plot")].filter((plot) => plot.querySelector(".main-svg")).map((plot) => plot.id);
const first = have();
const closed = () => document.querySelectorAll(".topic:not([open]), figcaption details:not([open])").length;
const before = closed();
dispatchEvent(new Event("beforeprint"));
const onPaper = closed();
dispatchEvent(new Event("afterprint"));
const folds = [before, onPaper, closed()];
location.hash = "stages";
dispatchEvent(new Event("hashchange"));
const revealed = [...document.querySelectorAll(".topic[open]")].map((topic) => topic.id);
const front = document.getElementById("plot-front").getBoundingClientRect();
const seen = front.bottom + scrollY <= innerHeight && front.height >= 340;
for (const topic of document.querySelectorAll(".topic")) {
  topic.open = true;
  topic.dispatchEvent(new Event("toggle"));
}
const drawn = have();
document.body.innerHTML = "";
document.body.append(JSON.stringify({up, down, first, folds, revealed, drawn, seen, sort: head.closest("th").getAttribute("aria-sort")}));
</script>"""


BARS = """<script>
const place = (name) => document.querySelector(`#plot-front ${name}`).getBoundingClientRect();
const [title, bar, plot] = [place(".xtitle"), place(".cbtitle"), document.getElementById("plot-front").getBoundingClientRect()];
const ends = {lines: document.querySelectorAll("#plot-front .xtitle tspan").length, title: title.bottom, bar: bar.top};
const last = Math.max(...[...document.querySelectorAll("#plot-front .cbaxis text")].map((one) => one.getBoundingClientRect().bottom));
document.body.innerHTML = "";
document.body.append(JSON.stringify({...ends, last, end: plot.bottom}));
</script>"""


def browse(html, names, script, size, folder):
    """What a script leaves in a report with some of its figures."""
    path = folder / "report.html"
    figures = re.search(r'id="figures">(.*?)</script>', html).group(1)
    chosen = json.dumps({plot: figure for plot, figure in json.loads(figures).items() if plot[5:] in names})
    path.write_text(html.replace(figures, chosen).replace("</html>", f"{script}</html>"))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage"]
    options += ["--disable-background-networking", f"--window-size={size}", f"--user-data-dir={folder / 'profile'}"]
    command = [str(find_browser()), *options, "--dump-dom", path.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    return json.loads(re.search(r"<body[^>]*>(\{.*?\})", dom).group(1))


@pytest.mark.long
@pytest.mark.chromium
@pytest.mark.parametrize("names", [("front", "stages"), pytest.param(tuple(FIGURES), marks=pytest.mark.long)])
def test_in_a_browser_every_figure_is_drawn_and_the_table_sorts(sweep, html, tmp_path, names):
    seen = browse(html, names, CLICKS, "1280,720", tmp_path)
    accuracies = sorted(p.values["accuracy"] for p in sweep.front_points)
    assert seen["up"] == accuracies
    assert seen["down"] == accuracies[::-1]
    assert seen["sort"] == "descending"
    assert seen["seen"]  # the front, above the fold
    assert set(seen["drawn"]) == {f"plot-{name}" for name in names}
    assert set(seen["first"]) == {f"plot-{name}" for name in names if FIGURES[name].topic not in report.FOLDS}
    before, on_paper, after = seen["folds"]
    assert before == after > on_paper == 0, "on paper everything is open"
    assert seen["revealed"] == ["topic-search"], "where the address is that of a figure below it"


@pytest.mark.long
@pytest.mark.chromium
def test_on_a_phone_the_colour_bar_of_the_front_is_below_a_title_of_two_lines(html, tmp_path):
    low = re.sub(r'"height":\s*\d+', '"height":420', html)  # as flat as a plot below a legend of many lines
    seen = browse(low, ("front",), BARS, "400,900", tmp_path)
    assert seen["lines"] == 2
    assert seen["title"] <= seen["bar"] < seen["last"] <= seen["end"]


def test_text_is_escaped_markup_is_not_and_json_cannot_hold_what_javascript_cannot():
    assert tag("p", "<", Html("<br>"), None, 3) == "<p>&lt;<br>3</p>"
    assert tag("a", "x", title='"&') == '<a title="&quot;&amp;">x</a>'
    assert tag("details", open=True, hidden=None) == "<details open></details>"
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert each("li", ["<"]) == "<li>&lt;</li>"
    assert _html.join([]) == ""
    with pytest.raises(ValueError, match="JSON"):
        json_script("x", float("nan"))


# --- class by class

CONSTANT = ClassCounts(rows=(760, 240), decided=(970, 30), correct=(755, 25))


def counted(sweep, counts, **baselines):
    """The sweep as one with such counts of every point of its front."""
    points = [replace(p, classes=counts if p.key in sweep.result.on_front else None) for p in sweep.points]
    claim = replace(sweep.result.claim, baselines=Baselines(**baselines))
    return replace(sweep, result=replace(sweep.result, points=tuple(points), claim=claim))


def test_a_score_of_public_test_rows_has_the_interval_of_their_number(sweep):
    counts = ClassCounts(rows=(100, 160), decided=(90, 170), correct=(80, 150))
    data = counted(sweep, counts, classes=("no", "yes"))
    shown = str(top(data))
    best = max(data.front_points, key=lambda point: point.values["accuracy"])
    for name in ("accuracy", "certified@0.25"):
        low, high = wilson(best.test[name], 260)
        assert f"{100 * low:.1f} to {100 * high:.1f}\xa0%; " in shown
    private = replace(data, result=replace(data.result, claim=replace(data.result.claim, evaluation="private")))
    assert " to " not in str(top(private)).partition("the price of")[0].partition('class="result"')[2]


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("fixed", [True, False])
def test_the_report_of_a_running_sweep_says_so_first_and_whether_its_price_may_change(sweep, fixed):
    assert RUNNING not in str(top(sweep))
    ledger = {name: replace(one, fixed=fixed) for name, one in sweep.result.ledger.items()}
    manifest = replace(sweep.manifest, status=SweepStatus.RUNNING)
    shown = str(top(replace(sweep, manifest=manifest, result=replace(sweep.result, ledger=ledger))))
    assert shown.index(RUNNING) < shown.index("for <strong>epsilon 13.61")
    assert ("the price is an upper bound of what is charged so far" in shown) is not fixed


@pytest.mark.usefixtures("without_figures")
def test_the_report_of_a_sweep_that_lost_its_driver_says_so_and_what_to_do(sweep):
    manifest = replace(sweep.manifest, status=SweepStatus.RUNNING)
    later = (Point(trial="t0001", epoch=38, values={"epsilon": 1.0, "accuracy": 0.5}),)
    shown = str(top(replace(sweep, manifest=manifest, lost=True, directory="out/digits-1", later=later)))
    assert RUNNING not in shown
    assert "Not in the front yet: 1 point of its trials, up to epoch 38. " in shown
    assert f"Lost: {LOST_REASON}" in shown
    assert f"If it was killed, go on with it: {program()} resume out/digits-1" in shown


def test_a_row_of_the_front_says_what_its_model_was_made_from(small):
    values = {"epsilon": 1.6, "accuracy": 0.8}
    points = [Point(trial="t1", epoch=3, made_from=made, values=values) for made in ("", "slow-midpoint")]
    table = str(tables.front_table(small(points)))
    assert '<td class="number" data-value="3">3</td>' in table
    assert '<td class="number" data-value="3">3, slow-midpoint</td>' in table


@pytest.mark.usefixtures("without_figures")
def test_a_classifier_that_nearly_always_says_the_same_is_warned_of(sweep):
    data = counted(sweep, CONSTANT, classes=("no", EVIL), majority={"validation": 0.3, "test": 0.76})
    page = Page(build_report(data))
    count = len(data.useful_points)
    assert f"{count} of {count} points of the front give nearly every row the same answer" in page.words
    assert (
        "'no' for 97.0 % of the test rows. Its balanced accuracy is 54.9 %, that of the majority-class baseline 50.0 %"
        in page.words
    )
    assert "balanced accuracy 54.9 %" in page.words
    assert EVIL in page.words  # as text


def test_without_counts_there_is_no_table_by_class_and_no_warning(page):
    assert "classes" not in page.ids
    assert "balanced accuracy" not in page.words.lower()
    assert "Nearly constant" not in page.words


@pytest.mark.usefixtures("without_figures")
def test_what_a_constant_answer_reaches_stands_at_the_top_and_its_equals_are_not_in_the_table(sweep):
    data = counted(sweep, None, classes=("no", "yes"), majority={"validation": 0.7})
    words = Page(build_report(data)).words
    left_out = sum(p.values["accuracy"] <= 0.7 for p in sweep.front_points)
    assert "majority-class baselineaccuracy 70.0 % on validation rowsalways predicts the most frequent class" in words
    assert left_out > 1
    assert f"{left_out} points of the front are left out: no better than the majority-class baseline" in words
    assert "Always predicting the most frequent class reaches 70.0 % on validation rows." in words
    private = counted(sweep, None, classes=("no", "yes"))
    words = Page(build_report(private)).words
    assert "majority-class baselineaccuracy 50.0 %at least: 2 classes" in words
    assert "reaches at least 50.0 %; how often that class occurs in the private rows is neither declared" in words
    claim = replace(private.result.claim, evaluation="private", baselines=data.result.claim.baselines)
    declared = replace(private, result=replace(private.result, claim=claim))
    for source, said in (
        (None, "by its declared or"),
        ("declared", "the share that the ranges"),
        ("sketch", "its share in"),
    ):
        known = replace(claim.baselines, majority_source=source and MajoritySource(source))
        known = replace(declared, result=replace(declared.result, claim=replace(claim, baselines=known)))
        assert f"reaches 70.0\xa0%, {said}" in sections.constant_in_words(known)


@pytest.mark.usefixtures("without_figures")
def test_a_noisy_score_has_its_interval_and_says_when_a_constant_answer_may_do_as_well(sweep):
    def noisy(point):
        ends = {"accuracy": (point.values["accuracy"] - 0.07, point.values["accuracy"] + 0.07)}
        noise = NoisyScores(is_final=False, released={}, intervals=ends, test_intervals={"accuracy": (0.5, 0.6)})
        return replace(point, noisy=noise, test={"accuracy": 0.55})

    data = counted(sweep, None, classes=("no", "yes"), majority={"validation": 0.5})
    best = max(point.values["accuracy"] for point in data.front_points)
    for constant, doubted in ((0.51, True), (0.49, False)):  # judged by the interval that is shown: that of test rows
        majority = {"validation": best - 0.06, "test": constant}
        data = counted(sweep, None, classes=("no", "yes", "perhaps"), majority=majority)
        words = Page(
            build_report(replace(data, result=replace(data.result, points=tuple(map(noisy, data.points)))))
        ).words
        assert f"{100 * (best - 0.07):.1f} to {100 * (best + 0.07):.1f}" in words
        assert "Finals come first" not in words  # none is a final
        assert (
            f"on the validation rows that chose it as the mean of 3 trainings, 95 % interval {100 * (best - 0.07):.1f} to"
            in words
        )
        assert ("On test rows this model is perhaps no better in accuracy than always" in words) is doubted


@pytest.mark.usefixtures("without_figures")
def test_a_best_point_that_a_constant_answer_beats_says_so(sweep):
    data = counted(sweep, None, classes=("no", "yes"), majority={"validation": 0.99})
    words = Page(build_report(data)).words
    assert "On test rows this model is no better in accuracy than always predicting the most frequent class." in words


def test_what_the_price_means_to_a_person_stands_below_it(sweep, page):
    assert "What that means for a person" not in page.words
    groups = (GroupCost(rows=2, epsilon=float("inf"), shift=0.5001, basis=Basis.PAIR, own=False),)
    risk = Risk(caught=(0.01, 0.0801, 0.4), advantage=0.45, basis=Basis.PAIR)
    price = replace(sweep.result.price, exposure=Exposure(risk=risk, groups=groups))
    told = str(cost(replace(sweep, result=replace(sweep.result, ledger={"winner": price}))))
    assert risk.in_words() in told
    assert "an epsilon is not known where nothing follows at this delta" in told
    assert "from epsilon and delta alone, which allow more than most mechanisms do" in told
    for words in ("finds a row, accusing 1 % of innocents", "8.01 %", "at delta 1e-4", ">not known<", "50.1 %"):
        assert words in told
    assert "moves the probability of an outcome, with 2 planted rows" in told


def test_what_a_sweep_has_not_is_not_explained(sweep, small):
    points = [Point(trial="t1", epoch=n, values={"epsilon": float(n), "accuracy": 0.6 + n / 10}) for n in (1, 2)]
    plain = small(points)
    claimed = replace(plain.result.claim, conditions=(CERTIFIED_MODEL, FLOATING_NOISE))
    plain = replace(plain, result=replace(plain.result, claim=claimed))
    said = str(sections.claim(plain))
    assert FLOATING_NOISE in said
    assert CERTIFIED_MODEL not in said
    assert "Certified radii" not in said
    assert "Certified radii are Euclidean" in str(sections.claim(sweep))
    front, price = (sweep_figures()[name] for name in ("front", "price"))
    assert price.remarks(plain) == ""
    paid = f" The price of the sweep is epsilon {show_epsilon(sweep.result.price.epsilon)}."
    assert "better value in another" not in front.remarks(plain)
    assert "better value in another" in front.remarks(sweep)
    assert price.remarks(sweep).startswith(
        f"{paid} Dashed: what is certified. Crosses: the same models on test rows, which did not choose them"
    )


@pytest.mark.parametrize(("rows", "overlap"), [(40, True), (4000, False)])
def test_cards_say_when_their_difference_may_be_chance(small, rows, overlap):
    counts = ClassCounts(rows=(rows, rows), decided=(rows, rows), correct=(rows, rows))
    points = [
        Point(trial="t1", epoch=n, values=values, test={"accuracy": values["accuracy"]}, classes=counts)
        for n, values in enumerate(({"epsilon": 0.5, "accuracy": 0.8}, {"epsilon": 2.0, "accuracy": 0.85}), start=1)
    ]
    said = "Where the intervals of two cards overlap, their difference may be chance."
    assert (said in str(sections.headline(small(points)))) is overlap


@pytest.mark.parametrize(("own", "above"), [({}, 40), ({"t": 102}, 62), ({"t": 40, "l": 8}, 40)])
def test_a_figure_on_a_page_has_no_room_for_the_title_that_the_page_has_above_it(own, above):
    layout = strip_title({"data": [], "layout": {"title": {"text": "digits"}, "margin": own}})["layout"]
    assert "title" not in layout
    assert (layout["margin"]["t"], layout["margin"]["l"]) == (above, own.get("l", 0))
