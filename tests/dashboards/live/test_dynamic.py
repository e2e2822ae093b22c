"""What depends on who asks: the list, the head of a sweep, the page of a trial, and the forms."""

import re
from dataclasses import replace
from datetime import datetime

import pytest
from starlette.testclient import TestClient

from clipless.audits.finding import AuditKind, Finding
from dashboards.figures.search import trajectories
from dashboards.live.dynamic import PARTS, Rights
from dashboards.live.forms import EXAMPLE, Asked, price_of
from dashboards.live.header import Pace, Progress, _costs, _detail, offered, waiting_header
from dashboards.live.sweep_list import sweeps
from dashboards.live.trial_page import one_trial
from dashboards.live.view import Action, View
from dashboards.pages._html import join
from dashboards.summary import best_of, cut_off, trials_done
from dashboards.text import show_epsilon, show_test, show_value
from sweeper.backend.endings import GRACE_SECONDS
from sweeper.errors import RefusalError, UnknownSweepError
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import FIXED, GROWS, OF_COPY, UPPER_BOUND, price
from sweeper.program import program
from sweeper.records import SweepStatus, Trial, TrialStatus
from sweeper.results.front import read_front
from sweeper.results.highlights import best_of_trial
from sweeper.service.app import create_app
from sweeper.service.security.tokens import Holder, Role
from sweeper.service.settings import Limits, ServiceSettings
from sweeper.service.supervision.states import Standing
from sweeper.service.supervision.submissions import Submission
from sweeper.specification.spec import Spec
from sweeper.specification.yaml_file import parse_mapping
from sweeper.store.evidence import Evidence, append_evidence
from sweeper.store.manifest import Course, Manifest
from sweeper.store.requests import steer
from sweeper.store.sweep_folder import HIDDEN, SweepFolder
from tests.factories import make_course, make_rehearsals, write_rehearsals

from .conftest import ENDED, EVENT, PLAN, RUNNING, Growing

WRITER = Rights(may_write=True, key="k")
HERE = View(sweep=ENDED)
SPEC = """\
name: grows
data: {name: digits}
model: {architecture: mlp, width: [64, 128]}
training: {epochs: 10, batch_size: 256, learning_rate: {log: [0.001, 1.0]}}
privacy: {epsilon: {log: [0.5, 10]}, delta: 1e-4}
search: {trials: 16, objectives: [epsilon, accuracy, certified@0.25]}
"""
PRIVATE = "{selection: private, sampler: random}"
EVIL = "<img src=x onerror=alert(1)>"


def spec_of(text=SPEC):
    return Spec.from_mapping(parse_mapping(text, "s"), "s")


def manifest_of(text=SPEC):
    spec = spec_of(text)
    course, plain = make_course(spec), spec.to_plain()
    return Manifest(name="grows", status=SweepStatus.RUNNING, spec=plain, source="s", course=course)


def describe(folder, status="running", text=SPEC, **more):
    folder.write_manifest(replace(manifest_of(text), status=SweepStatus(status), **more))


@pytest.fixture
def ended(out):
    """The ended sweep, with a spec and records of its trials."""
    folder = SweepFolder(out / ENDED)
    describe(folder, "completed")
    for id_ in ("t0003", "t0005"):
        folder.save_trial(Trial(id=id_, config={}, plan=PLAN, status=TrialStatus.COMPLETED))
    return folder


def links(page):
    return set(re.findall(r"do=([a-z-]+)", page))


@pytest.mark.usefixtures("ended")
def test_a_reader_is_offered_nothing_and_gets_no_form(show, parts):
    for name, view in (("sweeps", View()), ("head", HERE), ("trial", View(sweep=ENDED, trial="t0003"))):
        assert links(show("part", name, view)) == set()
        assert "<form" not in show("part", name, view) or name == "sweeps"
    for action in set(Action) - {Action.SIGN_OUT}:
        with pytest.raises(RefusalError, match="a session that may write"):
            parts.get("action", View(sweep=ENDED, trial="t0003", action=action), Rights())


@pytest.mark.usefixtures("ended")
def test_a_writer_is_offered_what_the_state_allows(show, growing, clock):
    describe(growing.folder)
    assert links(show("part", "sweeps", View(), WRITER)) == {"submit"}
    assert links(show("part", "head", HERE, WRITER)) == {"extend", "enqueue", "steer", "delete"}
    assert links(show("part", "head", View(sweep=RUNNING), WRITER)) == {"stop", "enqueue", "steer"}
    growing.start("t0001")
    trial = View(sweep=RUNNING, trial="t0001")
    growing.add("t0001", 1, 0.5, 0.5)
    clock.now += 100
    assert links(show("part", "trial", trial, WRITER)) == {"stop-trial", "note", "tag", "enqueue"}
    assert links(show("part", "trial", View(sweep=ENDED, trial="t0003"), WRITER)) == {"note", "tag", "enqueue"}


@pytest.mark.parametrize(
    ("change", "state", "left_out"),
    [
        ({"epochs: 10": "epochs: 10"}, SweepStatus.STOPPED, set()),
        (
            {"{epsilon: {log: [0.5, 10]}, delta: 1e-4}": "{sweep_epsilon: 3, delta: 1e-4}"},
            SweepStatus.STOPPED,
            {"extend"},
        ),
        (
            {"{epsilon: {log: [0.5, 10]}, delta: 1e-4}": "{sweep_epsilon: 3, delta: 1e-4}"},
            SweepStatus.COMPLETED,
            {"extend", "enqueue", "steer"},
        ),
        ({"{trials: 16,": "{trials: 16, sampler: random,"}, SweepStatus.COMPLETED, {"steer"}),
    ],
)
def test_what_would_be_refused_is_not_offered(change, state, left_out):
    text = SPEC
    for old, new in change.items():
        text = text.replace(old, new)
    plain = {action.value for action in offered(Standing(name="s", state=state), manifest_of())}
    found = {action.value for action in offered(Standing(name="s", state=state), manifest_of(text))}
    assert plain - found == left_out


def test_of_a_private_selection_nothing_is_offered_that_looks_at_candidates():
    text = SPEC.replace(
        "{trials: 16, objectives: [epsilon, accuracy, certified@0.25]}", "{selection: private, sampler: random}"
    )
    text = text.replace("{epsilon: {log: [0.5, 10]}, delta: 1e-4}", "{epsilon: 3, delta: 1e-4}")
    for state in SweepStatus:
        assert not {Action.STEER, Action.ENQUEUE, Action.EXTEND} & set(
            offered(Standing(name="s", state=state), manifest_of(text))
        )


def test_the_head_answers_four_questions(show, growing):
    describe(growing.folder)
    growing.start("t0001"), growing.start("t0002")
    growing.add("t0001", 10, 0.5, 0.5)
    growing.end("t0001")
    page = show("part", "head", View(sweep=RUNNING), WRITER)
    for said in ("What does it achieve?", "50.0\N{NO-BREAK SPACE}%", "What is its price?", "13.61", "Is it still running?",
                 "1 of 16", "1 completed; 1 waiting", "What can I do now?"):  # fmt: skip
        assert said in page, said
    assert GROWS in page
    assert UPPER_BOUND in page


def test_a_trial_runs_from_its_first_noise_on_and_one_without_any_never_began(show, growing, clock):
    describe(growing.folder)
    for id_ in ("t0001", "t0002", "t0003"):
        growing.start(id_)
    growing.add("t0001", 1, 0.5, 0.5)
    ledger = Ledger(growing.folder.ledger)
    ledger.open("t0002", EVENT, marked=True)
    ledger.draw("t0002")
    ledger.open("t0003", EVENT, marked=True)
    view, of_third = View(sweep=RUNNING), View(sweep=RUNNING, trial="t0003")
    assert "2 running; 1 waiting" in show("part", "head", view)
    assert 'class="status waiting"' in show("part", "trial", of_third)
    assert show("part", "records", view).count('<span class="status waiting">') == 1
    growing.stop_driving()
    clock.now += 10
    head = show("part", "head", view)
    assert "2 lost; 1 never begun" in head
    assert "0 of 16" in head, "of which none has ended"
    assert ">never begun<" in show("part", "trial", of_third)


def test_a_trial_that_was_interrupted_before_its_first_noise_never_began(sweep):
    cut = next(id_ for id_, trial in sweep.trials.items() if trial.status == "interrupted")
    assert sweep.how_stands(cut) == "interrupted"
    assert replace(sweep, drawn=frozenset([cut])).how_stands(cut) == "interrupted"
    assert trials_done(sweep)[0] == sum(one.status not in ("running", "interrupted") for one in sweep.trials.values())
    assert replace(sweep, drawn=frozenset()).how_stands(cut) == "never begun"


def test_the_list_says_how_far_a_running_sweep_is_and_about_when_it_ends(show, growing, clock, parts):
    parts._pace = Pace(clock)
    describe(growing.folder)
    for number in range(1, 9):
        growing.start(f"t{number:04d}")
        growing.add(f"t{number:04d}", 10, 0.5, 0.5)
        growing.end(f"t{number:04d}")
        if number == 4:
            assert "4 of 16" in show("part", "sweeps", View())
            clock.now += 600
    page = show("part", "sweeps", View())
    assert "8 of 16" in page
    assert "about 20 min left" in page
    assert "about 20 min left" in show("part", "head", View(sweep=RUNNING))
    for number in range(9, 17):
        growing.start(f"t{number:04d}")
        growing.end(f"t{number:04d}")
    clock.now += 600
    assert "16, scoring test rows" in show("part", "sweeps", View())
    head, front = show("part", "head", View(sweep=RUNNING)), parts._snapshots.get(RUNNING).sweep().front_points
    assert "trials, scoring test rows" in head
    assert f"0 of {len(front)} points of the front scored on test rows" in head
    assert f'max="{len(front)}"' in head


def test_before_the_first_trial_the_workers_are_said_to_start(show, growing, clock):
    describe(growing.folder)
    for page in (show("part", "sweeps", View()), show("part", "head", View(sweep=RUNNING))):
        assert "starting workers" in page
    growing.start("t0001")
    growing.add("t0001", 10, 0.5, 0.5)
    clock.now += 600
    for page in (show("part", "sweeps", View()), show("part", "head", View(sweep=RUNNING))):
        assert "starting workers" not in page


def test_a_score_of_test_rows_comes_first_and_the_validation_score_beside_it(show, sweep):
    best = best_of(sweep, sweep.utility)
    tested, validation = show_test(best, "accuracy"), show_value(best, "accuracy")
    head = show("part", "head", View(sweep=ENDED)).replace("\N{NO-BREAK SPACE}", " ")
    order = [head.index(text) for text in (tested, "accuracy on test rows", f"{validation} on the validation rows")]
    assert order == sorted(order)
    listed = show("part", "sweeps", View()).replace("\N{NO-BREAK SPACE}", " ")
    assert f">test {tested}<" in listed
    assert f">validation {validation}<" in listed
    heads = show("part", "trial-records", View(sweep=ENDED, trial=best.trial)).partition("</thead>")[0]
    assert heads.index(">accuracy, test<") < heads.index(">accuracy, validation<")
    assert "accuracy on test rows" in show("part", "trial", View(sweep=ENDED, trial=best.trial))
    picked = show("part", "picked", View(sweep=ENDED))
    assert picked.index(">test<") < picked.index(">validation<")
    assert picked.count('colspan="2"') == 2, "own epsilon and price are of no split"


@pytest.mark.usefixtures("growing")
def test_a_sweep_without_a_point_has_no_hypervolume_and_one_of_the_machine_has_a_person(show, out):
    page = show("part", "sweeps", View())
    (row,) = [row for row in page.split("<tr>") if f">{RUNNING}</a>" in row]
    assert ("0.000" in row, ">None<" in row) == (False, False)
    assert f">{(out / ENDED).owner()}</td>" in page
    assert f"run by {(out / ENDED).owner()}" in show("part", "head", View(sweep=ENDED))


def test_what_has_no_slot_left_is_not_offered_as_the_service_refuses_it():
    text = SPEC.replace("{epsilon: {log: [0.5, 10]}, delta: 1e-4}", "{sweep_epsilon: 3, delta: 1e-4}")
    manifest, running = manifest_of(text), Standing(name="s", state=SweepStatus.RUNNING)
    slots = sum(manifest.course.stages)
    assert {Action.ENQUEUE, Action.STEER} <= set(offered(running, manifest, slots - 1))
    assert offered(running, manifest, slots) == (Action.STOP,)
    stopped = Standing(name="s", state=SweepStatus.STOPPED)
    assert offered(stopped, manifest, slots, may_resume=False) == (Action.DELETE,)


@pytest.mark.usefixtures("ended")
def test_a_form_says_what_was_done_and_when_an_enqueued_configuration_is_tried(show, growing):
    describe(growing.folder)
    growing.start("t0001")
    running = show("part", "action", View(sweep=RUNNING, action=Action.ENQUEUE), WRITER)
    assert 'data-done="The configuration is enqueued' in running
    assert "it takes the place of the next one" in running
    assert "tried first when the sweep is resumed or extended" in show(
        "part", "action", View(sweep=ENDED, action=Action.ENQUEUE), WRITER
    )


def test_of_a_sweep_without_a_slot_no_trial_offers_one_like_it(show, ended):
    describe(
        ended, "completed", SPEC.replace("{epsilon: {log: [0.5, 10]}, delta: 1e-4}", "{sweep_epsilon: 3, delta: 1e-4}")
    )
    assert links(show("part", "trial", View(sweep=ENDED, trial="t0003"), WRITER)) == {"note", "tag"}


def test_the_time_that_is_left_is_told_from_the_pace_that_was_seen(clock):
    pace = Pace(clock)
    assert pace.seconds_left("s", 0.2) is None
    clock.now = 60
    assert pace.seconds_left("s", 0.2) is None
    assert pace.seconds_left("s", 0.4) == pytest.approx(180)
    assert pace.seconds_left("other", 0.9) is None
    assert pace.seconds_left("s", 1.0) is None, "nothing is left"
    clock.now = 6060  # stopped meanwhile
    assert pace.seconds_left("s", 0.4, run=1) is None
    clock.now += 60
    assert pace.seconds_left("s", 0.6, run=1) == pytest.approx(120)


def test_a_dead_driver_is_not_said_to_run(show, growing, parts, clock):
    assert "running" in show("part", "head", View(sweep=RUNNING))
    before = parts.token(RUNNING)
    growing.stop_driving()
    clock.now += 10
    page = show("part", "head", View(sweep=RUNNING))
    assert 'class="status lost"' in page
    assert "its driver was killed" in page
    assert parts.token(RUNNING) != before
    assert "status lost" in show("part", "sweeps", View())


def test_where_the_search_was_steered_is_said(show, growing):
    describe(growing.folder)
    growing.start("t0001")
    growing.add("t0001", 1, 0.5, 0.5)
    steer(growing.folder.path, ["epsilon <= 3"])
    assert "Steered to: epsilon &lt;= 3" in show("part", "head", View(sweep=RUNNING))
    form = show("part", "action", View(sweep=RUNNING, action=Action.STEER), WRITER)
    assert 'data-bound="epsilon &lt;="' in form
    assert 'value="3"' in form
    filtered = View(sweep=RUNNING, action=Action.STEER, max_epsilon=2.0, minimum={"certified@0.25": 0.4})
    assert {'value="2"', 'value="0.4"'} <= set(re.findall(r'value="[^"]*"', show("part", "action", filtered, WRITER)))


@pytest.mark.parametrize("action", [action for action in Action if action not in (Action.SUBMIT, Action.SIGN_OUT)])
def test_every_form_says_its_price_and_where_it_goes(show, growing, action):
    describe(growing.folder)
    growing.start("t0001")
    growing.add("t0001", 1, 0.5, 0.5)
    page = show("part", "action", View(sweep=RUNNING, trial="t0001", action=action), WRITER)
    assert "<strong>Price: </strong>" in page
    (where,) = re.findall(r'data-to="([^"]*)"', page)
    assert where.startswith(f"/api/v1/sweeps/{RUNNING}")
    assert 'data-key="k"' in page
    assert len(re.findall("<button", page)) == 1


def test_the_form_of_an_extension_says_the_price_to_come_where_nothing_fixes_it(show, ended, clock):
    ledger = Ledger(ended.ledger)
    rare = replace(EVENT, noise_multiplier=0.3, sampling_rate=0.01)  # of the smaller signal, and the larger price
    events = [EVENT, rare]
    for number, event in enumerate(events, 1):
        ledger.open(f"t000{number}", event, marked=True)
        ledger.draw(f"t000{number}")
    ledger.close("t0002", 3)  # a driver died, and the trial went on
    ledger.open("t0002", rare, kept=3, marked=True)
    ledger.draw("t0002")
    spent = [EVENT, rare.with_steps(3), rare.with_steps(rare.steps - 3)]
    page = show("part", "action", View(sweep=ENDED, action=Action.EXTEND), WRITER)
    assert "left too" not in page
    assert "(computed more closely than the price so far)" in page
    describe(ended, "interrupted", SPEC.replace("{trials: 16", "{trials: 99"))
    clock.now += 100
    page = show("part", "action", View(sweep=ENDED, action=Action.EXTEND), WRITER)
    planned, left = map(int, re.search(r"(\d+) planned so far, (\d+) of them not begun", page).groups())
    assert left == planned - read_front(ended.front).trials_begun > 1, "who asks for one more trains them too"
    assert f"If each, those {left} left too, costs" in page
    for more in (1, 10):
        epsilon = price([*spent, *[rare] * (left + more)], 1e-4, tight=True).epsilon
        assert f"about {show_epsilon(epsilon)} with {more} more" in page
        one = show("part", "action", View(sweep=ENDED, action=Action.EXTEND, further=more), WRITER)
        assert f"it is about {show_epsilon(epsilon)} with {more} more." in one, "of the number that is typed alone"
    resume = show("part", "action", View(sweep=ENDED, action=Action.RESUME), WRITER)
    epsilon = price([*spent, *[rare] * left], 1e-4, tight=True).epsilon
    assert f"{left} trials to begin, each up to epsilon 10 by itself. With all of them the price is about" in resume
    assert f"is about {show_epsilon(epsilon)}, if each costs what the dearest so far did; the price" in resume
    most = show("part", "action", View(sweep=ENDED, action=Action.EXTEND, further=10**9), WRITER)
    assert "with 10000 more" in most
    assert "The price is not proven: it assumes" in page
    assert "not proven" not in show("part", "action", View(sweep=ENDED, action=Action.RESUME), WRITER)
    hidden = replace(manifest_of(), spec=manifest_of().spec | {"search": {"selection": "private"}})
    ended.write_manifest(hidden)
    assert hidden.selects_privately
    clock.now += 100
    assert "with 10 more" not in show("part", "action", View(sweep=ENDED, action=Action.EXTEND), WRITER)


def test_while_nothing_is_drawn_there_is_no_price_and_behind_the_last_trial_no_bound(sweep):
    nothing = {name: replace(one, epsilon=0.0, events=0) for name, one in sweep.result.ledger.items()}
    silent = replace(sweep, result=replace(sweep.result, ledger=nothing))
    assert str(join(_costs(silent, trains=True))) == "<p>Nothing is spent yet.</p>"
    copied = {name: replace(one, fixed=True, unproven=OF_COPY) for name, one in sweep.result.ledger.items()}
    told = str(join(_costs(replace(sweep, result=replace(sweep.result, ledger=copied)), trains=True)))
    assert (OF_COPY in told, FIXED in told) == (True, False)
    costs = [str(join(_costs(sweep, trains=trains))) for trains in (True, False)]
    assert [UPPER_BOUND in words for words in costs] == [True, False]


@pytest.mark.parametrize("fixed", [False, True])
def test_the_form_of_a_stop_says_how_long_epochs_have_and_what_is_charged(fixed):
    privacy = "{sweep_epsilon: 3, delta: 1e-4}" if fixed else "{epsilon: {log: [0.5, 10]}, delta: 1e-4}"
    told = manifest_of(SPEC.replace("{epsilon: {log: [0.5, 10]}, delta: 1e-4}", privacy))
    asked = Asked(view=View(sweep=RUNNING, trial="t0001"), manifest=told)
    pages = [price_of(action, asked) for action in (Action.STOP, Action.STOP_TRIAL)]
    whole = [f"which have {GRACE_SECONDS:g} seconds to end", "the epoch that it is in, which ends first"]
    assert [said in page for said, page in zip(whole, pages, strict=True)] == [True, True]
    assert ["is charged for all epochs that it plans" in page for page in pages] == [not fixed] * 2
    assert ["begins anew if the sweep is resumed" in page for page in pages] == [not fixed, False]


def test_trials_that_were_cut_off_before_their_first_score_begin_anew(sweep):
    cut = next(id_ for id_, trial in sweep.trials.items() if trial.status == "interrupted")
    silent = tuple(point for point in sweep.result.points if point.trial != cut)
    bare = replace(sweep, result=replace(sweep.result, points=silent))
    assert cut_off(replace(bare, drawn=frozenset([cut]))) == 1
    assert cut_off(replace(bare, drawn=frozenset())) == 0, "it never began"
    assert cut_off(replace(sweep, drawn=frozenset([cut]))) == 0, "it goes on from its last epoch"


@pytest.mark.usefixtures("ended")
def test_the_form_of_submission_checks_before_it_sends(show):
    page = show("part", "action", View(action=Action.SUBMIT), WRITER)
    assert 'data-check="/api/v1/check"' in page
    assert re.search(r"<button[^>]* disabled", page)
    assert spec_of(EXAMPLE).name == "first"
    assert "name: grows" in show("part", "action", View(sweep=ENDED, action=Action.SUBMIT), WRITER)


@pytest.mark.usefixtures("ended")
def test_a_configuration_begins_with_that_of_a_trial(show, sweep):
    page = show("part", "action", View(sweep=ENDED, trial="t0003", action=Action.ENQUEUE), WRITER)
    rate = sweep.settings["t0003"]["training.learning_rate"]
    assert f'value="{rate}"' in page
    assert 'name="model.width"' in page
    assert 'name="training.batch_size"' not in page, "which the spec fixes"


@pytest.mark.usefixtures("ended")
def test_a_trial_whose_best_point_is_off_the_front_counts_those_on_it_and_stands_out(show, sweep):
    seen = set()
    for trial in sweep.trials:
        found = best_of_trial(sweep.result, trial)
        if found is None or found.key in sweep.result.on_front:
            continue
        others = sum(key[0] == trial for key in sweep.result.on_front)
        seen.add(others > 0)
        said = f"not on the front, {others} of its others are" if others else "None of its points is on the front"
        assert said in show("part", "trial", View(sweep=ENDED, trial=trial))
        assert trajectories.FIGURE.info(one_trial(sweep, trial)).best == found
    assert True in seen


def test_a_configuration_that_no_trial_is_left_for_waits_for_an_extension(show, growing):
    describe(growing.folder)
    for number in range(1, 17):
        growing.start(f"t{number:04d}")
        growing.add(f"t{number:04d}", 1, 0.5, 0.5)
    page = show("part", "action", View(sweep=RUNNING, action=Action.ENQUEUE), WRITER)
    assert "No trial is left to propose: it is tried first when the sweep is extended" in page


def test_a_trial_has_its_curve_scores_configuration_log_and_notes(show, ended, sweep):
    view = View(sweep=ENDED, trial="t0003")
    ended.save_failure("ValueError: row 17 says 'secret'", "t0003")
    (ended.path / "notes.jsonl").write_text(
        '{"trial": "t0003", "note": "<b>good"}\n{"trial": "t0003", "key": "k", "value": "v"}\n'
    )
    page = show("part", "trial-records", view)
    points = [point for point in sweep.points if point.trial == "t0003"]
    assert page.count("<tr>") >= len(points)
    scores = page.partition("</table>")[0]
    shown = {point.trial for point in sweep.front_points}
    for trial in sweep.trials:
        heads = show("part", "trial-records", View(sweep=ENDED, trial=trial)).partition("</thead>")[0]
        assert (">front<" in heads) == (trial in shown), "a column without any value is left out"
    assert ">epoch<" in scores
    assert "&lt;b&gt;good" in page
    assert "k = v" in page
    assert "training.learning_rate" in page
    assert "plan: method clipless" in page
    assert "secret" not in page, "errors may quote rows"
    figure = show("figure", "trial", view)
    xs = [
        value
        for trace in figure["data"]
        if "lines" in trace.get("mode", "") and trace["name"] == "stage 1"
        for value in trace["x"]
    ]
    assert len([x for x in xs if x is not None]) == len(points)
    assert any(trace.get("name") == "best accuracy" for trace in figure["data"])
    for trial in ("t0003", "t0001"):
        drawn = show("figure", "trial", View(sweep=ENDED, trial=trial))["data"]
        stars = [trace["name"] for trace in drawn if trace.get("marker", {}).get("symbol") == "star"]
        assert stars == [f"{trial} at its best"], "that of another trial is not on its page"


def test_a_trial_offers_no_model_that_an_audit_refuses(show, ended, sweep, clock):
    trial = next(point.trial for point in sweep.front_points if point.model)
    view, model = View(sweep=ENDED, trial=trial), f"/sweeps/{ENDED}/models/{trial}/"
    assert model in show("part", "trial-records", view)
    said = {"epsilon": 1.0, "delta": 1e-4, "attained": 4.0, "confidence": 1.0, "p_value": 0.0, "contradicted": True}
    finding = Finding(kind=AuditKind.STEP, subject="s", **said)
    append_evidence(ended.path, [Evidence(trial=trial, finding=finding, found="now", program="1")])
    clock.now += 100
    assert model not in show("part", "trial-records", view)


def test_a_private_selection_has_no_log(show, ended):
    text = SPEC.replace(
        "{trials: 16, objectives: [epsilon, accuracy, certified@0.25]}", "{selection: private, sampler: random}"
    )
    describe(ended, "completed", text.replace("{epsilon: {log: [0.5, 10]}, delta: 1e-4}", "{epsilon: 3, delta: 1e-4}"))
    page = show("part", "trial-records", View(sweep=ENDED, trial="t0003"))
    assert "Log" not in page
    head = show("part", "head", HERE)
    assert " of 16" not in head


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize("name", ["trial", "trial-records", "action"])
def test_a_trial_that_there_is_not_is_missing(name, parts):
    with pytest.raises(UnknownSweepError, match="Expected a trial of this sweep"):
        parts.get(name, View(sweep=ENDED, trial=EVIL, action=Action.NOTE), WRITER)


@pytest.mark.parametrize("name", sorted(set(PARTS) - {"sweeps"}))
def test_a_sweep_that_there_is_not_is_missing(name, parts):
    with pytest.raises(UnknownSweepError):
        parts.get(name, View(sweep="nobody", action=Action.STOP), WRITER)


def test_texts_of_users_are_shown_and_never_run(show, growing, clock):
    describe(growing.folder, reason=EVIL)
    growing.start(EVIL)
    growing.add(EVIL, 1, 0.5, 0.5)
    growing.end(EVIL, TrialStatus.FAILED, EVIL)
    growing.stop_driving()
    clock.now += 10
    of_trial = View(sweep=RUNNING, trial=EVIL)
    pages = [show("part", "sweeps", View(), WRITER), show("part", "head", View(sweep=RUNNING), WRITER)]
    pages += [show("part", name, of_trial, WRITER) for name in ("trial", "trial-records")]
    pages += [show("part", "action", replace(of_trial, action=action), WRITER) for action in Action]
    for page in pages:
        assert "<img" not in page


@pytest.mark.parametrize(
    ("holder", "rights"),
    [
        (None, Rights()),
        (Holder("a", Role.READ, "ada"), Rights(spender="ada")),
        (Holder("a", Role.WRITE, "ada"), Rights(may_write=True, spender="ada")),
        (Holder("a.browser", Role.READ, "ada"), Rights(session=True, owner="ada", spender="ada")),
        (
            Holder("a.browser", Role.READ, "ada", "k"),
            Rights(may_write=True, key="k", session=True, owner="ada", spender="ada"),
        ),
    ],
)
def test_rights_are_those_that_the_service_found(holder, rights):
    assert Rights.of(holder) == rights


class TestInTheService:
    @pytest.fixture
    def client(self, out):
        class Idle:
            def start(self, *_):
                return "1"

            def is_alive(self, _):
                return True

            def is_away(self):
                return False

            def kill(self, _):
                pass

        settings = ServiceSettings(out=out, limits=Limits(requests_per_second=0))
        with TestClient(create_app(settings, Idle()), base_url="http://127.0.0.1") as client:
            yield client

    def test_a_sweep_that_waits_has_a_page(self, client):
        headers = {"Content-Type": "application/yaml"}
        names = [client.post("/api/v1/sweeps", content=SPEC, headers=headers).json()["id"] for _ in range(3)]
        client.app.state.parts.supervisor.tick()
        page = client.get(f"/live/part/head?sweep={names[2]}").text
        assert "number 2 in line" in page
        assert "1 sweep is before it" in page
        assert "Nothing is spent yet." in page
        assert "learning_rate" in page
        listed = client.get("/live/part/sweeps").text
        assert "starting" in listed
        assert listed.count("in line") == 2

    def test_a_folder_that_is_hidden_has_no_page(self, client, out):
        (out / ".selecting-x").mkdir()
        for part in PARTS:
            if part != "sweeps":
                assert client.get(f"/live/part/{part}?sweep=.selecting-x&do=stop").status_code == 404

    def test_of_a_private_selection_that_runs_no_page_tells_what_its_candidates_do(self, client, out, make_front):
        text = SPEC.replace("{trials: 16, objectives: [epsilon, accuracy, certified@0.25]}", PRIVATE)
        public = SweepFolder(out / "secret-20260104-120000")
        public.path.mkdir()
        describe(
            public, "running", text.replace("{epsilon: {log: [0.5, 10]}, delta: 1e-4}", "{epsilon: 3, delta: 1e-4}")
        )
        hidden = Growing(out / f"{HIDDEN}{public.path.name}", make_front())

        def pages():
            found = {}
            for part in ("head", "trial", "trial-records", "action"):
                answer = client.get(f"/live/part/{part}?sweep={public.path.name}&trial=t0001&do=note")
                found[part] = (answer.status_code, re.sub(r'"request_id": "\w+"', "", answer.text))
            return found

        before = pages()
        assert {status for status, _ in before.values()} <= {200, 404, 409}
        hidden.start("t0001")
        hidden.add("t0001", 1, 0.5, 0.77)
        assert pages() == before
        assert "0.77" not in str(before)
        assert "trials" not in before["head"][1].partition("What can I do now?")[0]


def test_while_configurations_are_rehearsed_the_head_says_how_many_and_which_leads(show, growing, clock):
    course = Course(trials=2, stages=(2,), rehearsals=8, can_be_steered=True)
    describe(growing.folder, course=course)
    view, records = View(sweep=RUNNING), make_rehearsals((0.8, 0.5), (0.9, 0.6), (0.1, 0.1))
    assert "0 of 8" in show("part", "head", view)
    write_rehearsals(growing.folder, records[:4])
    clock.now += 100
    head = show("part", "head", view)
    assert "rehearsing 2 of 8" in show("part", "sweeps")
    assert "2 of 8" in head
    assert "configurations rehearsed<" in head
    assert "rehearsing, then 2 trials" in head
    assert "Pick a point" not in head
    assert "Take files" not in head
    assert '<progress value="2" max="8" aria-label="configurations rehearsed on public rows">' in head
    assert "c0002 leads with accuracy 0.900, certified@0.25 0.600" in head
    assert "none of them is a model of this sweep" in head
    assert "c0002" in show("part", "records", view)
    describe(growing.folder, "stopped", course=course, reason="ada asked it to stop")
    growing.stop_driving()
    clock.now += 100
    head = show("part", "head", view)
    assert "No point: stopped after 2 of 8 rehearsals: nothing was trained, and nothing is spent yet." in head
    assert f"<code>{program()} resume {RUNNING}</code>" in head
    assert "configurations rehearsed, stopped" in head
    assert "<progress" not in head
    assert "2 of 8 rehearsed" in show("part", "sweeps")
    assert "rehearsing" not in head + show("part", "sweeps")
    describe(growing.folder, course=course)
    growing.start("t0001")
    growing.add("t0001", 1, 0.5, 0.5)
    clock.now += 100
    head = show("part", "head", view)
    assert "0 of 2" in head
    assert "Pick a point" in head
    assert "Take files" in head
    assert "<progress" not in head
    assert "leads with" not in head


def test_who_submitted_a_sweep_stands_in_the_list_and_at_its_top_as_text():
    submission = Submission(submitted=1_767_348_000.0, by="<ada>")
    standing = Standing(
        name="s-20260102-100000", state=SweepStatus.QUEUED, place=1, started=False, submission=submission
    )
    listed = str(sweeps([standing], (), datetime(2026, 1, 2), may_write=False))
    head = str(waiting_header(standing, None, offers=""))
    assert "&lt;ada&gt;" in listed
    assert "submitted by &lt;ada&gt;, 2026-01-02 10:00 UTC" in head
    nobody = replace(standing, submission=Submission(submitted=0.0))
    assert "submitted by" not in str(waiting_header(nobody, None, offers=""))


@pytest.mark.parametrize(("runs", "word"), [(True, "to come"), (False, "not proposed")])
def test_counts_of_trials_add_up_to_all_that_are_planned(runs, word):
    said = str(_detail(Progress(3, 9, {"completed": 3, "running": 2}), runs=runs))
    assert f"3 completed; 2 running; 4 {word}" in said
    assert word not in str(_detail(Progress(9, 9, {"completed": 8, "failed": 1}), runs=runs))
