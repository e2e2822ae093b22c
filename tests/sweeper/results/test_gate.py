"""The gate: what an audit contradicts is on no front and never picked, and losing the evidence does not bring it back."""

import json
import shutil
from dataclasses import replace

import pytest

from sweeper.errors import PickError, RecordError
from sweeper.pareto.dominance import hypervolume
from sweeper.results.front import apply_gate, build_front, read_front, refusals_before
from sweeper.results.housekeeping import delete_sweep
from sweeper.results.pick import meeting, pick
from sweeper.service.responses.views import front_content, front_csv, summary
from sweeper.store.evidence import EVIDENCE_NAME, WHOLE_SWEEP, append_evidence
from sweeper.store.sweep_folder import SweepFolder
from tests.factories import make_evidence


@pytest.fixture
def parts(trial, make_point, objectives, claim):
    """The best trial, one that it dominates, and one with nothing in common."""
    points = [
        make_point("t0001", 1, 1.0, 0.95, 0.5),
        make_point("t0002", 1, 1.5, 0.80, 0.4),
        make_point("t0003", 1, 0.2, 0.60, 0.1),
    ]
    trials = [trial, replace(trial, id="t0002"), replace(trial, id="t0003")]
    return {"sweep": "s", "objectives": objectives, "trials": trials, "points": points, "ledger": {}, "claim": claim}


@pytest.fixture
def folder(parts, tmp_path):
    build_front(**parts).write(tmp_path / "front.json")
    return SweepFolder(tmp_path)


def trials_on(front):
    return [point.trial for point in front.front_points]


def test_what_is_refused_leaves_the_front_and_what_it_dominated_comes_up(parts, objectives):
    front = build_front(**parts, refused={"t0001": "refused by an audit: it was"})
    assert trials_on(front) == ["t0003", "t0002"]
    assert front.hypervolume == hypervolume(parts["points"][1:], objectives)
    assert front.trials["t0001"].reason == "refused by an audit: it was"
    assert front.trials["t0002"].reason == ""
    assert len(front.points) == 3
    assert front.knee is None or front.knee.trial != "t0001"
    assert apply_gate(front) == front


def test_without_evidence_the_front_is_as_it_was(parts):
    assert trials_on(build_front(**parts)) == ["t0003", "t0001"]


def test_evidence_that_came_after_the_front_was_written_counts(folder):
    append_evidence(folder.path, [make_evidence("t0002", contradicted=False), make_evidence("t0001")])
    front = read_front(folder.front)
    assert trials_on(front) == ["t0003", "t0002"]
    assert front.refused["t0001"].endswith(f"(evidence: line 2 of {EVIDENCE_NAME})")
    assert "trial t0001 attained epsilon 4 where 1 is claimed" in front.trials["t0001"].reason


def test_a_contradicted_price_refuses_every_point(folder):
    append_evidence(folder.path, [make_evidence(WHOLE_SWEEP)])
    front = read_front(folder.front)
    assert (trials_on(front), front.hypervolume) == ([], 0.0)
    with pytest.raises(PickError, match=r"has no point; every point is refused by an audit: the step audit"):
        pick(front)


def test_a_front_refuses_although_its_evidence_was_lost(folder):
    append_evidence(folder.path, [make_evidence("t0001")])
    read_front(folder.front).write(folder.front)
    (folder.path / EVIDENCE_NAME).unlink()
    assert trials_on(read_front(folder.front)) == ["t0003", "t0002"]
    assert set(refusals_before(folder)) == {"t0001"}


def test_a_front_whose_marks_were_not_taken_back_is_gated_all_the_same(folder):
    append_evidence(folder.path, [make_evidence("t0001")])
    read_front(folder.front).write(folder.front)
    content = json.loads(folder.front.read_text())
    for point in content["points"]:
        point["on_front"] = point["trial"] == "t0001"
    folder.front.write_text(json.dumps(content))
    assert trials_on(read_front(folder.front)) == ["t0003", "t0002"]


def test_broken_evidence_shows_no_front(folder):
    append_evidence(folder.path, [make_evidence("t0001")])
    path = folder.path / EVIDENCE_NAME
    path.write_text(path.read_text().replace('"version": 1', '"version": 9'))
    with pytest.raises(RecordError, match="Expected version 1 of evidence, got 9"):
        read_front(folder.front)


def test_refusals_are_found_where_the_front_is_gone_or_broken(folder):
    append_evidence(folder.path, [make_evidence("t0001")])
    folder.front.write_text("{")
    assert set(refusals_before(folder)) == {"t0001"}
    folder.front.unlink()
    assert set(refusals_before(folder)) == {"t0001"}


def test_a_refused_point_is_never_picked_and_the_refusal_is_named(parts):
    front = build_front(**parts, refused={"t0001": "refused by an audit: see line 1"})
    assert pick(front).trial == "t0002"
    assert [point.trial for point in meeting(front)] == ["t0003", "t0002"]
    with pytest.raises(PickError, match=r"search longer; t0001 is refused by an audit: see line 1"):
        pick(front, minimum={"accuracy": 0.9})


def test_the_service_answers_with_the_gated_front(folder):
    assert summary(folder).front_points == 2
    append_evidence(folder.path, [make_evidence("t0001")])
    content = front_content(folder)
    assert {point["trial"] for point in content["points"]} == {"t0002", "t0003"}
    assert set(content["refused"]) == {"t0001"}
    assert "t0001" not in front_csv(folder)
    json.dumps(content, allow_nan=False)


def test_evidence_outlives_the_sweep_as_its_ledger_does(ran, tmp_path):
    copy = shutil.copytree(ran.folder, tmp_path / "sweep", ignore=shutil.ignore_patterns("*.db"))
    append_evidence(copy, [make_evidence("t0001")])
    kept = delete_sweep(copy).kept
    assert "contradicted" in (kept / EVIDENCE_NAME).read_text()
