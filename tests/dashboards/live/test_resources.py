import gzip
import json
from dataclasses import replace
from datetime import datetime

import pytest

from clipless.audits.finding import AuditKind, Finding
from dashboards.figures import sweep_figures
from dashboards.live import comparison, fragments
from dashboards.live import resources as module
from dashboards.live.fragments import FILES, age, tracking_address
from dashboards.live.resources import Resources, marks
from dashboards.live.view import View
from dashboards.text import MISSING, show_epsilon, whole
from sweeper.adapters import dump
from sweeper.errors import PickError, RecordError, UnknownSweepError
from sweeper.privacy.pricing import UPPER_BOUND
from sweeper.records import SweepStatus
from sweeper.store.evidence import Evidence, append_evidence
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder

from .conftest import ENDED, PLAN, RUNNING

FIGURES = sweep_figures()

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
HERE = View(sweep=ENDED)


def trace(figure, name):
    return next(trace for trace in figure["data"] if trace.get("name") == name)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", sorted(FIGURES))
def test_every_figure_of_the_report_is_served(show, sweep, name):
    figure = show("figure", name)
    rows = FIGURES[name].numbers(sweep)
    if name == "workers":  # the folder has no rows of trials
        assert (figure, len(rows)) == (None, 24)
        return
    assert (figure is None) == (not rows and name == "repeats")
    assert figure is None or "title" not in figure["layout"]


@pytest.mark.usefixtures("growing")
def test_an_empty_figure_says_what_will_appear_while_the_sweep_runs(show):
    view = View(sweep=RUNNING)
    for name in ("front", "trajectories", "architectures", "configurations"):
        figure = show("figure", name, view)
        assert figure["data"] == []
        assert "as soon as" in figure["layout"]["annotations"][0]["text"]
    assert show("figure", "repeats", view) is None


def test_an_empty_figure_of_an_ended_sweep_is_not_shown(show, growing):
    growing.describe("failed")
    for name in ("front", "trajectories", "architectures"):
        assert show("figure", name, View(sweep=RUNNING)) is None


def test_points_of_the_front_say_who_they_are(show, sweep):
    figure = show("figure", "front")
    points = trace(figure, "points of the front")
    assert points["customdata"] == [f"{p.trial}.{p.epoch}" for p in sweep.front_points]
    assert points["x"] == pytest.approx([p.values["epsilon"] for p in sweep.front_points], rel=1e-5)
    solid = show("figure", "front-3d")
    assert solid["data"][-1]["customdata"] == points["customdata"]


def test_the_radius_moves_the_front(show, sweep):
    far = show("figure", "front", View(sweep=ENDED, radius="certified@0.5"))
    values = [p.values["certified@0.5"] for p in sweep.front_points]
    assert trace(far, "points of the front")["y"] == pytest.approx(values, rel=1e-5)
    steps = trace(far, "best certified accuracy at L2 radius 0.5")["y"]
    assert max(steps) == pytest.approx(max(p.values["certified@0.5"] for p in sweep.points), rel=1e-5)
    solid = show("figure", "front-3d", View(sweep=ENDED, radius="certified@0.5"))
    assert solid["data"][-1]["z"] == pytest.approx(values, rel=1e-5)


def test_a_radius_that_the_sweep_does_not_have_makes_no_second_copy(resources):
    plain = resources.get("figure", "front", HERE)
    for radius in ("certified@9", EVIL):
        assert resources.get("figure", "front", View(sweep=ENDED, radius=radius)) is plain


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["front", "front-3d", "trajectories", "robustness"])
def test_epsilon_may_have_a_linear_axis(show, name):
    for view, kind in ((HERE, "log"), (View(sweep=ENDED, linear=True), "linear")):
        layout = show("figure", name, view)["layout"]
        axis = layout["scene"]["xaxis"] if name == "front-3d" else layout["xaxis"]
        assert axis["type"] == kind
        assert ("tickvals" in axis) == (kind == "log")


def test_what_does_not_change_is_made_once(resources, monkeypatch):
    first = resources.get("figure", "trajectories", HERE)
    drawn_again = replace(FIGURES["trajectories"], info=lambda *_: pytest.fail("drawn again"))
    monkeypatch.setattr(module, "sweep_figures", lambda: {**FIGURES, "trajectories": drawn_again})
    for view in (HERE, View(sweep=ENDED, max_epsilon=1.0, radius="certified@0.5", solid=True)):
        assert resources.get("figure", "trajectories", view) is first
    assert resources.get("part", "cost", HERE) is resources.get("part", "cost", HERE)


def test_exploratory_sweeps_carry_the_watermark_everywhere(resources, show, out, write_sweep):
    write_sweep(out / "e-20260105-120000", exploratory=True)
    view = View(sweep="e-20260105-120000")
    for name in ("front", "front-3d", "trajectories", "hypervolume", "importances", "configurations", "robustness"):
        text = gzip.decompress(resources.get("figure", name, view).content).decode()
        assert "exploratory: no guarantee" in text, name
    assert "Exploratory: no guarantee." in show("part", "head", view)
    assert "exploratory" in show("part", "sweeps", View())


def test_the_parts_say_what_the_report_says(show):
    assert "20 completed, 2 stopped, 1 failed, 1 interrupted" in show("part", "head")
    assert ENDED in show("part", "head")
    assert show("part", "cost").count("Price: epsilon 13.61") == 1
    assert "rows were assigned by keyed hash" in show("part", "cost")
    assert "This sweep runs" not in show("part", "cost")
    assert "own epsilon ≤ 3" in show("part", "headline")
    assert show("part", "points").count("<tr>") > 10
    assert "rung 8: rank 11 of 12, cut 4" in show("part", "records")


def test_prices_of_a_running_sweep_are_said_to_grow(show, growing):
    growing.start("t0001")
    assert UPPER_BOUND in show("part", "cost", View(sweep=RUNNING))


@pytest.mark.usefixtures("growing")
def test_the_list_leads_to_each_sweep_and_says_its_age(show):
    page = show("part", "sweeps", View())
    assert f'href="/?sweep={ENDED}"' in page
    assert f'value="{RUNNING}"' in page
    assert "3 h ago" in page
    assert "No sweep yet" not in page


def test_without_sweeps_the_list_says_how_to_begin(catalog, show):
    catalog.names = lambda: ()
    assert "No sweep yet" in show("part", "sweeps", View())


@pytest.mark.parametrize(
    ("started", "said"),
    [
        ("20260101-153000", "just now"),
        ("20260101-152500", "5 min ago"),
        ("20251230-120000", "2 d ago"),
        ("", MISSING),
        ("nonsense", MISSING),
    ],
)
def test_ages_are_rounded_down(started, said):
    assert age(started, datetime(2026, 1, 1, 15, 30)) == said


def test_the_best_point_within_the_conditions_is_picked(show, sweep):
    view = View(sweep=ENDED, max_epsilon=3.0, minimum={"certified@0.25": 0.3})
    allowed = [p for p in sweep.front_points if p.values["epsilon"] <= 3 and p.values["certified@0.25"] >= 0.3]
    best = max(allowed, key=lambda p: p.values["accuracy"])
    page = show("part", "picked", view)
    assert f">{best.trial}</a>, epoch {best.epoch}</h3>" in page
    assert f"Best accuracy of {len(allowed)} points" in page
    for value in (best.values, best.test):
        assert whole(f"{100 * value['accuracy']:.1f} %") in page
    assert f'href="/api/v1/sweeps/{ENDED}/models/{best.trial}/{best.epoch}"' in page
    found = show("marks", "front", view)
    assert found["allowed"] == [f"{p.trial}.{p.epoch}" for p in allowed]
    assert found["limits"] == {"epsilon": 3.0, "value": None}
    assert found["point"]["name"] == f"{best.trial}.{best.epoch}"
    assert found["point"]["value"] == best.values["accuracy"]


def test_conditions_that_no_point_meets_name_the_nearest(show):
    view = View(sweep=ENDED, max_epsilon=0.001)
    assert "No point of the front has own epsilon &lt;= 0.001; the nearest is trial" in show("part", "picked", view)
    assert show("marks", "front", view)["point"] is None
    assert show("marks", "front", view)["allowed"] == []


def test_a_condition_on_something_else_is_refused_in_words(show):
    view = View(sweep=ENDED, minimum={EVIL: 0.5})
    page = show("part", "picked", view)
    assert "Expected an objective of digits to put a minimum on" in page
    assert "<script>" not in page


def test_without_conditions_nothing_is_marked_as_outside(sweep):
    found = marks(sweep, HERE)
    assert found["allowed"] is None
    best = max(sweep.front_points, key=lambda p: (p.values["accuracy"], -p.values["epsilon"]))
    assert found["point"]["name"] == f"{best.trial}.{best.epoch}"


def test_a_point_may_be_chosen_by_hand(show, sweep):
    point = sweep.front_points[0]
    view = View(sweep=ENDED, point=point.key, max_epsilon=5.0)
    page = show("part", "picked", view)
    assert "Chosen by hand." in page
    assert f">{point.trial}</a>, epoch {point.epoch}</h3>" in page
    assert f'href="/?sweep={ENDED}&amp;max-epsilon=5"' in page


def test_a_point_that_is_not_on_the_front_is_not_chosen(show, sweep):
    inside = next(p for p in sweep.points if p.key not in sweep.result.on_front)
    assert "Chosen by hand." not in show("part", "picked", View(sweep=ENDED, point=inside.key))


def test_the_mark_lies_where_the_axes_are(sweep):
    point = sweep.front_points[3]
    found = marks(sweep, View(point=point.key, radius="certified@0.5", minimum={"accuracy": 0.1}))["point"]
    assert found["value"] == found["depth"] == point.values["certified@0.5"]
    assert found["utility"] == point.values["accuracy"]
    plain = marks(sweep, View(point=point.key))["point"]
    assert (plain["value"], plain["depth"]) == (point.values["accuracy"], point.values["certified@0.25"])


def test_the_configuration_of_a_point_is_a_file(resources, sweep):
    point = sweep.front_points[0]
    made = resources.get("file", "config.json", View(sweep=ENDED, point=point.key))
    assert json.loads(gzip.decompress(made.content)) == sweep.trials[point.trial].config
    assert made.filename == f"{ENDED}-{point.trial}-{point.epoch}-config.json"


def test_a_card_that_cannot_be_written_says_why(resources, show):
    assert "so that there is no card" in show("part", "picked")
    with pytest.raises(RecordError, match="there is no card"):
        resources.get("file", "card.md", HERE)


def test_a_point_of_a_running_sweep_has_its_card(show, resources, growing):
    growing.start("t0001")
    growing.add("t0001", 1, 0.5, 0.5)
    view = View(sweep=RUNNING)
    page = show("part", "picked", view)
    assert "Privacy card: grows, trial t0001, epoch 1" in page
    text = gzip.decompress(resources.get("file", "card.md", view).content).decode()
    assert text.startswith("# Privacy card: grows, trial t0001, epoch 1")
    card = show("file", "card.json", view)
    assert card["guarantee"]["fixed_in_advance"]["steps"] == 5
    assert 0 < card["guarantee"]["fixed_in_advance"]["epsilon"] < card["guarantee"]["chosen_afterwards"]["epsilon"]


def test_the_card_of_the_page_says_what_audits_found(show, growing):
    growing.start("t0001")
    growing.add("t0001", 1, 0.5, 0.5)
    finding = Finding(
        kind=AuditKind.STEP, subject="trial t0001", epsilon=3.0, delta=1e-5, attained=2.5, confidence=1.0, p_value=1.0,
        contradicted=False, evidence={},
    )  # fmt: skip
    append_evidence(growing.folder.path, [Evidence(trial="t0001", finding=finding, found="2026-11-23", program="1")])
    (attained,) = show("file", "card.json", View(sweep=RUNNING))["audits"]
    assert (attained["kind"], attained["attained"]) == ("step", 2.5)


def test_a_plan_that_says_too_little_has_no_card(resources, show, growing):
    plan = dump(PLAN)
    del plan["event"]
    row = {"id": "t0001", "config": {}, "plan": plan, "status": "running"}
    (growing.folder.path / "trials.jsonl").write_text(json.dumps(row) + "\n")
    growing.add("t0001", 1, 0.5, 0.5)
    with pytest.raises(RecordError, match=r"plan\.event on line 1 of"):
        resources.get("file", "card.md", View(sweep=RUNNING))
    with pytest.raises(RecordError, match=r"plan\.event on line 1 of"):
        show("part", "picked", View(sweep=RUNNING))


def test_a_file_of_no_point_is_refused(resources):
    with pytest.raises(PickError, match="the nearest is"):
        resources.get("file", "config.json", View(sweep=ENDED, max_epsilon=0.001))


def test_the_name_of_a_file_is_one(snapshots, out, write_sweep, make_front):
    front = json.loads(json.dumps(make_front()).replace("t0003", 'a\\"; x/..'))
    write_sweep(out / "n-20260105-120000")
    (out / "n-20260105-120000" / "front.json").write_text(json.dumps(front))
    resources = Resources(snapshots)
    view = View(sweep="n-20260105-120000")
    points = snapshots.get(view.sweep).sweep().front_points
    odd = next(point for point in points if point.trial.startswith("a"))
    made = resources.get("file", "config.json", View(sweep=view.sweep, point=odd.key))
    assert made.filename == f"n-20260105-120000-a___x_..-{odd.epoch}-config.json"


@pytest.mark.parametrize(
    ("kind", "name"),
    [("figure", "pie"), ("part", "nothing"), ("marks", "robustness"), ("file", "model"), ("what", "front")],
)
def test_what_is_not_served_is_refused(resources, kind, name):
    with pytest.raises(UnknownSweepError):
        resources.get(kind, name, HERE)
    with pytest.raises(UnknownSweepError):
        resources.get(kind, name, View(compared=(ENDED, ENDED + "x")))
    with pytest.raises(UnknownSweepError):
        resources.get(kind, name, View(sweep="nobody"))


@pytest.mark.long
def test_text_of_users_is_shown_and_never_run(snapshots, show, out, write_sweep, make_front):
    name = "evil-20260105-120000"
    write_sweep(out / name)
    text = json.dumps(make_front(name=EVIL)).replace("patch-net", EVIL).replace("rung 8: rank", EVIL)
    (out / name / "front.json").write_text(text.replace("t0003", EVIL).replace("certified@0.5", f"x{EVIL}"))
    resources, view = Resources(snapshots), View(sweep=name)
    for part in ("head", "headline", "points", "picked", "records", "cost", "exports"):
        page = show("part", part, view)
        assert "<script" not in page
        assert "<img" not in page
    for figure in FIGURES:
        if figure == "configurations":  # its labels and ticks are plain text
            continue
        content = json.loads(gzip.decompress(resources.get("figure", figure, view).content))
        for trace in content["data"] if content else ():
            if figure != "curves":
                trace.pop("customdata", None)  # whose point it is, shown nowhere
        assert "<script" not in json.dumps(content), figure
        assert "<img" not in json.dumps(content), figure


def test_runs_lead_to_the_tracking_server_without_its_password(snapshots, out, write_sweep):
    write_sweep(out / "m-20260105-120000", tracking="https://me:secret@mlflow.example:5000/base/?token=x#y")
    view = View(sweep="m-20260105-120000")
    resources = Resources(snapshots)
    for part in ("picked", "records"):
        page = gzip.decompress(resources.get("part", part, view).content).decode()
        assert 'href="https://mlflow.example:5000/base/#/runs/' in page
        assert "secret" not in page
        assert "token=x" not in page
    own = Resources(snapshots, "http://localhost:5000")
    assert "http://localhost:5000/#/runs/" in gzip.decompress(own.get("part", "picked", view).content).decode()


@pytest.mark.parametrize("address", ["", "sqlite:///mlflow.db", "javascript:alert(1)", "http://", "file:///tmp"])
def test_other_stores_have_no_address(load, make_front, address):
    from dataclasses import replace

    data = replace(
        load(make_front()),
        manifest=Manifest(name="digits", status=SweepStatus.COMPLETED, spec={}, source="spec.yaml", tracking=address),
    )
    assert tracking_address(data, None) is None


def test_private_selections_show_their_winner_only(snapshots, out, write_sweep, make_front):
    name = "p-20260105-120000"
    write_sweep(out / name)
    front = make_front()
    winner = next(point["trial"] for point in front["points"] if point["on_front"])
    front["trials"] = {"winner": front["trials"][winner]}
    front["points"] = [{**p, "trial": "winner", "model": None} for p in front["points"] if p["trial"] == winner]
    unpriced = {"epsilon": "Infinity", "delta": 1e-4, "events": 0, "statement": "It was not released."}
    front["ledger"] |= {"front": unpriced, "everything": unpriced}
    (out / name / "front.json").write_text(json.dumps(front))
    resources = Resources(snapshots)
    cost = gzip.decompress(resources.get("part", "cost", View(sweep=name)).content).decode()
    assert cost.count("not released") >= 2
    records = gzip.decompress(resources.get("part", "records", View(sweep=name)).content).decode()
    assert (records.count("data-choose"), "completed" in records) == (1, True)
    assert "t00" not in records


def test_sweeps_are_compared(show, out, write_sweep):
    write_sweep(out / "second-20260105-120000", name="second", seed=1)
    both = View(compared=(ENDED, "second-20260105-120000"))
    page = show("part", "compared", both)
    assert "digits and second" in page
    assert "one run of a spec" in page
    assert '<th scope="row"></th>' not in page
    assert sum("lines" in trace["mode"] for trace in show("figure", "fronts", both)["data"]) == 2
    assert show("figure", "attainment", both) is None
    assert show("figure", "fronts", View(compared=both.compared, linear=True))["layout"]["xaxis"]["type"] == "linear"


def test_of_files_in_compared_specs_the_name_alone_is_told(show, out, write_sweep):
    write_sweep(out / "second-20260105-120000", name="second", seed=1)
    folder = SweepFolder(out / "second-20260105-120000")
    spec = {"name": "second", "data": {"path": "/home/alice/patients.csv"}, "search": {"warm_start": "/srv/earlier"}}
    folder.write_manifest(replace(folder.read_manifest(), spec=spec))
    page = show("part", "compared", View(compared=(ENDED, "second-20260105-120000")))
    assert "<td><code>patients.csv</code></td>" in page
    assert "<td><code>earlier</code></td>" in page
    assert "alice" not in page
    assert "/srv" not in page


def test_who_pays_is_no_difference_of_specs(show, out, write_sweep):
    write_sweep(out / "digits-20260105-120000", seed=1)
    for name, account in ((ENDED, "/srv/acc.db#clinic"), ("digits-20260105-120000", None)):
        folder = SweepFolder(out / name)
        spec = {"privacy": {"delta": 1e-5} | ({"account": account} if account else {})}
        folder.write_manifest(replace(folder.read_manifest(), spec=spec))
    page = show("part", "compared", View(compared=(ENDED, "digits-20260105-120000")))
    assert "count as runs of one spec" in page
    assert "The specs are the same." in page
    assert "acc.db" not in page


def test_compared_specs_are_read_as_they_were_written_and_only_where_they_differ(show, out, write_sweep):
    first = {"width": {"log_int": [64, 256]}, "constraint": "spectral_ball", "input_clip": {"uniform": [3.0, 6.0]}}
    second = {"width": [64, 128], "constraint": "spectral_ball", "input_clip": None}
    searched = [{"training": {"learning_rate": 0.02, "optimizer": "adam"}}, {"training": {"optimizer": "x" * 70}}]
    for name, model, found in ((ENDED, first, searched[:1]), ("second-20260105-120000", second, searched)):
        if name != ENDED:
            write_sweep(out / name, name="second", seed=1)
        folder = SweepFolder(out / name)
        folder.write_manifest(replace(folder.read_manifest(), spec={"model": model, "search": {"first": found}}))
    page = show("part", "compared", View(compared=(ENDED, "second-20260105-120000")))
    for said in ("{log_int: [64, 256]}", "[64, 128]", "{uniform: [3, 6]}", "null"):
        assert f"<code>{said}</code>" in page
    assert ("constraint" in page, "learning_rate" in page, "search.first[2].training.optimizer" in page) == (0, 0, 1)
    assert page.count(f"<summary><code>{'x' * 60}…</code></summary>") == 1
    assert "&#x27;" not in page


def test_sweeps_that_are_not_comparable_are_compared_only_when_asked(show, out, write_sweep):
    name = "other-20260105-120000"
    write_sweep(out / name)
    path = out / name / "front.json"
    path.write_text(path.read_text().replace('"delta": 0.0001', '"delta": 0.001'))
    both = View(compared=(ENDED, name))
    page = show("part", "compared", both)
    assert "Expected sweeps of one delta" in page
    assert "--anyway" not in page
    assert 'anyway=1"' in page
    assert show("figure", "fronts", both) is None
    anyway = View(compared=both.compared, anyway=True)
    assert "Expected sweeps of one delta" in show("part", "compared", anyway)
    assert show("figure", "fronts", anyway)["data"]


def test_only_the_last_comparisons_are_kept(snapshots, out, write_sweep, monkeypatch):
    monkeypatch.setattr(comparison, "KEPT_COMPARISONS", 2)
    resources = Resources(snapshots)
    names = [f"s-2026010{number}-120000" for number in range(1, 5)]
    for name in names:
        write_sweep(out / name)
        resources.get("part", "compared", View(compared=(ENDED, name)))
    assert len(resources._comparisons._kept) == 2


def test_every_file_has_a_link(show):
    page = show("part", "picked")
    for name in FILES:
        assert f"/live/file/{name}?sweep={ENDED}&amp;point=" in page
    exports = show("part", "exports")
    for format_ in ("html", "png", "svg", "pdf", "csv", "json"):
        assert f"/api/v1/sweeps/{ENDED}/front?format={format_}" in exports
    assert "front?format=pdf&amp;preset=column" in exports


def test_what_is_exported_is_taken_from_the_service_and_not_from_its_folder(show, sweep):
    exports = show("part", "exports")
    price = show_epsilon(sweep.result.price.epsilon)
    assert f"</span>/api/v1/sweeps/{ENDED}/papers?max_price={price}&quot;" in exports
    assert "Authorization: Bearer $SWEEPER_TOKEN" in exports
    assert f"service.sweep(&quot;{ENDED}&quot;).pick(max_price={price})" in exports
    assert "clipless.load" not in exports
    assert "sweeper pick" not in exports


def test_papers_are_offered_only_where_a_model_was_kept(sweep):
    bare = replace(sweep, result=replace(sweep.result, points=[replace(one, model=None) for one in sweep.points]))
    assert "/papers" in str(fragments.exports(sweep)) + str(fragments.how_to_take(sweep))
    assert "/papers" not in str(fragments.exports(bare))
    assert fragments.how_to_take(bare) is None
