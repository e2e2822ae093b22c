"""What a sweep was begun with holds when it goes on, whatever has become of its data."""

import json
import random
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace

import pytest
import yaml

from clipless.datasets.tables.declarations import UNPAID_SOURCE
from sweeper.driver.options import Options, manifest_of
from sweeper.driver.resume import recorded_claim, resume_plan
from sweeper.driver.runner import resume_sweep
from sweeper.errors import RecordError
from sweeper.planning.loaded import LoadedSpec
from sweeper.planning.make import steer_plan
from sweeper.privacy.claims import BUDGET_CONDITIONS, CERTIFIED_MODEL, EARLY_ENDS, STANDARD_CONDITIONS, Steering
from sweeper.privacy.ledger import Ledger
from sweeper.records import ScorePlan, SweepStatus, Trial
from sweeper.results.front import build_front
from sweeper.rounding import round_up
from sweeper.specification.spec import Spec
from sweeper.store.input_format import DATA_NAME, write_input
from sweeper.store.sweep_folder import SweepFolder

RANGES = {
    "source": "survey",
    "target": {"column": "left", "classes": ["no", "yes"]},
    "columns": {"age": {"low": 0, "high": 120}, "ward": {"categories": ["A", "B"]}},
}


@pytest.fixture
def begin(tmp_path):
    """Begin a sweep of a table, in a folder as its driver writes it before the first trial."""

    def begin(ranges, steering=None, *, privacy=None, trials=2, evaluation="public", **search):
        make = random.Random(0)
        rows = [f"{make.randint(18, 90)},{make.choice('AB')},{make.choice(['no', 'yes'])}" for _ in range(200)]
        (tmp_path / "t.csv").write_text("\n".join(["age,ward,left", *rows]) + "\n", encoding="utf-8")
        declare(ranges)
        content = {
            "name": "t",
            "data": {"path": "t.csv", "ranges": "ranges.yaml", "evaluation": evaluation},
            "model": {"architecture": "mlp", "width": 8},
            "training": {"epochs": 2, "batch_size": 32, "learning_rate": {"log": [0.01, 1.0]}},
            "privacy": {"delta": 1e-3} | (privacy or {"epsilon": 3}),
            "search": search | ({"trials": trials} if trials else {}),
        }
        (tmp_path / "t.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
        spec = Spec.from_yaml(tmp_path / "t.yaml")
        loaded = LoadedSpec.of(spec)
        folder = SweepFolder.create(tmp_path / "out", "t", datetime(2026, 1, 1))
        plan = loaded.plan()
        plan = plan if steering is None else steer_plan(plan, steering)
        folder.write_manifest(manifest_of(plan, Options(), folder, SweepStatus.INTERRUPTED, id_=None))
        write_input(folder.path, plan.input)
        return SimpleNamespace(spec=spec, loaded=loaded, folder=folder, claim=plan.claim, plan=plan)

    def declare(ranges):
        (tmp_path / "ranges.yaml").write_text(yaml.safe_dump(ranges, sort_keys=False), encoding="utf-8")

    begin.declare = declare
    return begin


def without_record(begun, *, front):
    """Make a sweep of one that was begun before claims were recorded."""
    begun.folder.write_manifest(replace(begun.folder.read_manifest(), claim=None))
    if front:
        empty = {"trials": (), "points": (), "ledger": {}}
        build_front(sweep="t", objectives=begun.spec.objectives, claim=begun.claim, **empty).write(begun.folder.front)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("privacy", "has_budget"),
    [
        ({"epsilon": 3}, False),
        ({"sweep_epsilon": 3}, True),
        ({"sweep_epsilon": 3, "accounting": "filter", "epsilon": 1}, True),
    ],
)
def test_the_caveat_of_adaptive_use_is_in_the_claim_of_every_sweep_without_a_budget(begin, privacy, has_budget):
    begun = begin(RANGES, scheduler="asha")
    spec = Spec.from_mapping(begun.spec.to_plain() | {"privacy": privacy | {"delta": 1e-3}}, begun.spec.source)
    conditions = LoadedSpec(spec=spec, data=begun.loaded.data).plan().claim.conditions
    wanted, gone = (BUDGET_CONDITIONS, STANDARD_CONDITIONS) if has_budget else (STANDARD_CONDITIONS, BUDGET_CONDITIONS)
    assert set(wanted) - {CERTIFIED_MODEL} <= set(conditions)  # its objectives are no certificates
    assert not (set(gone) - set(wanted)) & set(conditions)
    assert (EARLY_ENDS in conditions) == (not has_budget)


@pytest.mark.parametrize("front", [False, True])
def test_no_mark_is_washed_off_by_other_declarations(begin, front):
    begun = begin(RANGES | {"source": UNPAID_SOURCE})
    assert begun.claim.exploratory
    if front:
        without_record(begun, front=True)
    begin.declare(RANGES)
    with pytest.raises(RecordError, match=r"Expected the data that .* was begun with, got others: .* restore the data"):
        resume_sweep(begun.folder.path, trials=3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": "another survey"}, "public was .*survey.* and is .*another survey"),
        (
            {"columns": {"age": {"low": 18, "high": 90}, "ward": {"categories": ["A", "B"]}}},
            r"data.json: rows: columns: age: low was 0.* and is 18",
        ),
        (
            {"columns": {"age": {"low": 0, "high": 120}, "ward": {"categories": ["B", "A"]}}},
            r"data.json: rows: columns: ward: categories was \['A', 'B'\] and is \['B', 'A'\]",
        ),
        (
            {"columns": {"age": {"low": 0, "high": 120}, "ward": {"drop": True}}},
            r"data.json: rows: columns: ward was \['categories'.*\] and is \['drop'\]",
        ),
    ],
)
def test_other_declarations_are_refused_before_anything_is_written(begin, change, said):
    begun = begin(RANGES)
    begin.declare(RANGES | change)
    before = {path: path.read_bytes() for path in begun.folder.path.rglob("*") if path.is_file()}
    with pytest.raises(RecordError, match=said):
        resume_sweep(begun.folder.path)
    assert {path: path.read_bytes() for path in begun.folder.path.rglob("*") if path.is_file()} == before


def test_another_order_of_columns_is_refused(begin, tmp_path):
    begun = begin(RANGES)
    rows = [line.split(",") for line in (tmp_path / "t.csv").read_text(encoding="utf-8").splitlines()]
    (tmp_path / "t.csv").write_text("\n".join(f"{b},{a},{c}" for a, b, c in rows) + "\n", encoding="utf-8")
    with pytest.raises(RecordError, match=r"data.json: rows: columns was \['age', .*\] and is \['ward', .*\]"):
        resume_sweep(begun.folder.path)


def test_the_same_data_go_on_with_the_same_claim(begin):
    begun = begin(RANGES)
    assert recorded_claim(begun.folder) == begun.claim
    assert resume_plan(begun.folder, begun.loaded).claim == begun.claim


def test_a_sweep_goes_on_with_the_budget_in_its_ledger(begin):
    """It was cut once; another cut, as of another version, would give trials other slots than those that are priced."""
    begun = begin(RANGES, privacy={"sweep_epsilon": 3})
    anew = begun.loaded.plan().spending
    entered = anew.with_shares(2.0, anew.shares)
    Ledger(begun.folder.ledger).set_budget(entered)
    plan = resume_plan(begun.folder, begun.loaded)
    assert plan.spending == entered
    assert plan.spending.slot_of("t0001").noise_multiplier > anew.slot_of("t0001").noise_multiplier
    assert f"epsilon {round_up(entered.price)} at delta" in plan.announcement


def test_what_steered_the_beginning_is_still_said_when_its_source_is_gone(begin):
    steering = Steering(("Proposals were steered by unpaid scores.",), exploratory=True)
    begun = begin(RANGES, steering, sampler="tpe", warm_start="gone-1")
    claim = resume_plan(begun.folder, begun.loaded).claim
    assert claim.exploratory
    assert set(claim.conditions) == set(begun.claim.conditions)


def test_a_sweep_without_a_record_goes_on_with_what_its_front_claims_or_with_its_data(begin):
    begun = begin(RANGES, Steering((), exploratory=True), sampler="tpe", warm_start="gone-1")
    without_record(begun, front=False)
    (begun.folder.path / DATA_NAME).unlink()
    assert recorded_claim(begun.folder) is None
    claim = resume_plan(begun.folder, begun.loaded).claim
    assert not claim.exploratory
    assert [one for one in claim.steered if "gone-1" in one and one in claim.conditions]
    without = begun.folder.read_manifest()
    begun.folder.write_manifest(replace(without, claim=begun.claim.to_json()))
    without_record(begun, front=True)
    assert resume_plan(begun.folder, begun.loaded).claim.exploratory


def test_a_selection_that_was_cut_off_is_not_concluded_on_other_declarations(begin):
    begun = begin(RANGES, trials=None, sampler="random", selection="private", selection_mean=5)
    begun.folder.ledger.touch()
    begin.declare(RANGES | {"source": "another survey"})
    with pytest.raises(RecordError, match="public was"):
        resume_sweep(begun.folder.path)


def test_a_record_that_is_no_claim_is_named(begin):
    begun = begin(RANGES)
    path = begun.folder.path / "sweep.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(content | {"claim": content["claim"] | {"population": "many"}}), encoding="utf-8")
    with pytest.raises(RecordError, match=r"\(claim\.population in .*sweep\.json\); restore the file"):
        resume_sweep(begun.folder.path)


@pytest.mark.parametrize("privacy", [{"epsilon": 3}, {"sweep_epsilon": 3, "epsilon": 1, "accounting": "filter"}])
def test_an_extended_sweep_keeps_the_noise_of_its_scores_and_says_one(begin, privacy):
    """More trials would plan more noise, and points that were released before would be recorded with it."""
    begun = begin(RANGES, evaluation="private", privacy=privacy)
    extended = LoadedSpec.of(begun.spec.with_search(trials=12))
    assert extended.plan().shared.noise.noise_multiplier > 1.5 * begun.plan.shared.noise.noise_multiplier
    plan = resume_plan(begun.folder, extended)
    assert plan.trials == 12
    assert plan.shared.noise == begun.plan.shared.noise
    assert len([one for one in plan.claim.conditions if "of standard deviation" in one]) == 1


def test_of_a_sweep_of_an_earlier_version_the_noise_of_scores_is_that_of_its_budget(begin):
    begun = begin(RANGES, evaluation="private", privacy={"sweep_epsilon": 3})
    Ledger(begun.folder.ledger).set_budget(begun.plan.spending)
    manifest = begun.folder.read_manifest()
    begun.folder.write_manifest(replace(manifest, course=replace(manifest.course, score_noise=None)))
    assert resume_plan(begun.folder, begun.loaded).shared.noise == begun.plan.shared.noise


def test_of_a_sweep_of_an_earlier_version_without_a_budget_it_is_that_of_its_trials(begin, plan):
    begun = begin(RANGES, evaluation="private", privacy={"epsilon": 3})
    noise, manifest = begun.plan.shared.noise, begun.folder.read_manifest()
    begun.folder.write_manifest(replace(manifest, course=replace(manifest.course, score_noise=None)))
    begun.folder.save_trial(Trial(id="t0001", config={}, plan=replace(plan, scores=ScorePlan(**noise.plan([1, 2])))))
    kept = resume_plan(begun.folder, LoadedSpec.of(begun.spec.with_search(trials=12))).shared.noise
    assert kept.noise_multiplier == noise.noise_multiplier
    assert kept.test_noise_multiplier == pytest.approx(noise.test_noise_multiplier, rel=1e-12)
