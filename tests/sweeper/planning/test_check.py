"""Checking a spec from Python."""

import datetime
import json
import re
from dataclasses import replace

import pytest

import clipless
import sweeper
import sweeper.account.store as store_module
from clipless.privacy.events import Relation
from sweeper.account.owner import open_account
from sweeper.cli.check_tables import render_check
from sweeper.cli.commands.specs import check
from sweeper.errors import SweeperError
from sweeper.planning.preview import find_lack_of_privacy, find_lack_of_signal, find_loose_bounds
from sweeper.privacy.baselines import Baselines
from sweeper.specification.addresses import parse_address
from sweeper.specification.spec import Spec
from tests.factories import plan_sweep, small_content
from tests.sweeper.account.accounts import begin_quickly


def test_a_checked_spec_shows_its_price_and_its_first_configuration():
    content = small_content(privacy={"sweep_epsilon": 3.0, "delta": 1e-4}, model={"width": [16, 32]})
    found = sweeper.check(content, measure=False)
    shown = " ".join(repr(found).split())
    assert shown.startswith("small: valid. digits, N = ")
    assert found.plan.announcement in shown
    assert f"noise multiplier {found.previews[0].plan.noise_multiplier:.4g}" in shown
    assert "chosen for you (plan.chosen has values and reasons): search.rehearse" in shown
    assert found.estimate is None
    assert found._repr_html_().startswith("<p><b>small: valid.")
    assert found.plan.spec.digest == sweeper.check(Spec.from_mapping(content), measure=False).plan.spec.digest


def test_where_nearly_all_rows_are_of_one_class_other_objectives_are_advised():
    found = sweeper.check(small_content(), measure=False)
    known = Baselines(classes=("no", "yes"), majority={"validation": 0.9})
    plan = replace(found.plan, claim=replace(found.plan.claim, baselines=known))
    assert plan.advice.endswith("Use search.objectives: [epsilon, auroc].")
    assert plan.advice in " ".join(repr(replace(found, plan=plan)).split())
    lines = render_check(plan, found.data, found.previews).renderables
    assert plan.advice in map(str, lines)
    assert found.plan.advice == ""


@pytest.mark.parametrize(
    ("architecture", "fraction", "said"),
    [
        ("cpl", {}, "Gradients of cpl stay far below their bounds"),
        (["mlp", "shift-net", "cpl"], {}, "Gradients of cpl and shift-net stay far below"),
        ("cpl", {"sensitivity_fraction": {"log": [0.03, 0.3]}}, ""),
        ("mlp", {}, ""),
    ],
)
def test_a_sensitivity_fraction_is_advised_where_bounds_are_loose(architecture, fraction, said):
    content = small_content(model={"architecture": architecture}, training=fraction)
    plan = plan_sweep(Spec.from_mapping(content), clipless.datasets.load("digits"))
    assert find_loose_bounds(plan).startswith(said)
    assert bool(find_loose_bounds(plan)) == bool(said)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ({"epsilon": 0.003, "delta": 1e-4}, "hides all rows together"),
        ({"sweep_epsilon": 0.001, "delta": 1e-4}, "hides all rows together"),
        ({"sweep_epsilon": 0.1, "delta": 1e-4}, "leaves little of the rows"),
        ({"sweep_epsilon": 2.0, "delta": 1e-4}, ""),
        ({"epsilon": {"log": [0.003, 3]}, "delta": 1e-4}, ""),
        ({"epsilon": None, "delta": None}, ""),
    ],
)
def test_a_budget_whose_noise_hides_all_rows_is_warned_of(privacy, said):
    method = "non-private" if privacy["delta"] is None else "clipless"
    given = {name: value for name, value in privacy.items() if value is not None}
    found = sweeper.check(small_content(privacy=given, training={"method": method}), measure=False)
    lack = find_lack_of_signal(found.plan, found.previews)
    lines = map(str, render_check(found.plan, found.data, found.previews).renderables)
    assert lack.startswith(f"The noise {said}: " if said else "")
    assert [bool(lack), bool(lack) and f"{lack}." in lines] == [bool(said)] * 2
    assert (lack in found.course, lack in " ".join(repr(found).split())) == (True, True)
    if said:
        plan = found.previews[0].plan
        reach = plan.batch_size * (plan.epochs * plan.steps_per_epoch) ** 0.5 / plan.noise_multiplier
        assert f"move its weights by {reach:.2g} standard deviations" in lack
        assert lack.endswith("here an epsilon of about 0.23")
        few = replace(found.plan, population=10)
        assert find_lack_of_signal(few, found.previews).endswith("usually need 100: here too few rows")


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ({"sweep_epsilon": 30.0, "delta": 1e-4}, True),
        ({"epsilon": 30.0, "delta": 1e-4}, True),
        ({"sweep_epsilon": 20.0, "delta": 1e-4}, False),
        ({"epsilon": None, "delta": None}, False),
    ],
)
def test_an_epsilon_that_promises_hardly_anything_is_warned_of(privacy, said):
    method = "non-private" if privacy["delta"] is None else "clipless"
    given = {name: value for name, value in privacy.items() if value is not None}
    found = sweeper.check(small_content(privacy=given, training={"method": method}), measure=False)
    lack = find_lack_of_privacy(found.plan, found.previews)
    lines = map(str, render_check(found.plan, found.data, found.previews).renderables)
    assert (
        bool(re.fullmatch(r"Epsilon (30|29\.\d+) promises hardly anything: it rules out no attacker .*", lack)) is said
    )
    assert [bool(lack) and f"{lack}." in lines, lack in found.course] == [said, True]


def _check_own_table(folder, ranges, **data):
    rows = "".join(f"{20 + i % 60},{'AB'[i % 2]},{'yes' if i % 3 else 'no'}\n" for i in range(400))
    (folder / "patients.csv").write_text(f"age,ward,readmitted\n{rows}")
    (folder / "ranges.yaml").write_text(f"source: codebook\n{ranges}")
    data = {"path": str(folder / "patients.csv"), "ranges": str(folder / "ranges.yaml"), **data}
    privacy = {"epsilon": 3.0, "delta": 1e-4, "score_noise": 3.0} if not data.get("evaluation") else {"epsilon": 3.0}
    content = small_content(privacy=privacy, training={"batch_size": 64})
    content |= {"data": data, "search": {"objectives": ["epsilon", "accuracy"], "trials": 1}}
    return sweeper.check(content, measure=False)


def test_check_says_which_spellings_no_private_row_may_contradict(tmp_path):
    misspelled = """\
target: {column: readmitted, classes: ["No", "Yes"], unknown: "No"}
columns: {age: {low: 0, high: 120, missing: 0}, ward: {categories: [a, b]}}
"""
    found = _check_own_table(tmp_path, misspelled)
    assert found.unchecked == (
        "Not checked against the rows, which would be a release: the spelling of classes (No, Yes) and categories (of "
        "ward) and what is no number (in age). Compare them with the file's documentation; every other label becomes "
        "'No', every other category becomes unknown, every text that is no number becomes a missing one."
    )
    assert found.unchecked in " ".join(repr(found).split())
    plain = 'target: {column: readmitted, classes: ["no", "yes"]}\ncolumns: {age: {low: 0, high: 120}, ward: {drop: true}}\n'
    assert _check_own_table(tmp_path, plain).unchecked == ""


def test_a_table_in_blocks_of_people_with_several_rows_is_measured_and_quoted(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(store_module, "_begin_by_hand", begin_quickly)
    visits = [f"{20 + i % 60},{'yes' if i % 3 else 'no'},p{i // 3},m{i // 300}\n" for i in range(600)]
    (tmp_path / "visits.csv").write_text(f"age,readmitted,who,month\n{''.join(visits)}")
    ranges = 'source: s\ntarget: {column: readmitted, classes: ["no", "yes"]}\ncolumns: {age: {low: 0, high: 120}}\n'
    (tmp_path / "ranges.yaml").write_text(ranges)
    address, terms = f"{tmp_path}/acc.db#c", {"unit": "who", "relation": Relation.ADD_OR_REMOVE_ONE}
    at = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
    open_account(parse_address(address), **terms, epsilon=9.0, delta=1e-4, by="owner", at=at)
    privacy = {"epsilon": 3.0, "delta": 1e-4, "score_noise": 3.0, "account": address}
    content = small_content(privacy=privacy, training={"batch_size": 32})
    content["data"] = {"path": str(tmp_path / "visits.csv"), "ranges": str(tmp_path / "ranges.yaml")}
    content["data"] |= {"unit": "who", "block": "month", "blocks": ["m0"], "evaluation": "private"}
    content |= {"search": {"objectives": ["epsilon", "accuracy"], "trials": 1}}
    found = sweeper.check(content)
    assert len(found.data.train.y) == len(found.data.blocks.train) > len(found.data.train)
    assert found.estimate.trial_seconds > 0
    (tmp_path / "spec.yaml").write_text(json.dumps(content))
    check(tmp_path / "spec.yaml")
    said = capsys.readouterr().out
    assert "Account c: the sweep would take" in said
    assert "Estimated on rows of zeros" in said


def test_an_earlier_sweep_that_is_not_there_is_refused_with_the_near_one(tmp_path):
    (tmp_path / "digits-20261124").mkdir()
    spec = Spec.from_mapping(small_content(search={"warm_start": "digits-2026"}), str(tmp_path / "spec.yaml"))
    with pytest.raises(sweeper.SpecError, match=r"got warm_start='digits-2026' .*did you mean .*digits-20261124\?$"):
        sweeper.check(spec, measure=False)


def test_of_two_targets_the_one_that_the_file_has_is_named(tmp_path):
    ranges = 'target: {column: readmitted, classes: ["no", "yes"]}\ncolumns: {age: {low: 0, high: 120}}\n'
    with pytest.raises(SweeperError, match=r"Expected one target, .*; patients.csv has 'readmitted'$"):
        _check_own_table(tmp_path, ranges, target="readmited")
