"""What a spec leaves to its data: three lines make a sweep, and what was chosen once stays so."""

import copy
import random
from dataclasses import replace

import pytest
import torch
import yaml

import clipless
from clipless.datasets import Split
from sweeper.cli.check_tables import render_check
from sweeper.driver.options import Options
from sweeper.driver.resume import resume_plan
from sweeper.driver.runner import run_sweep
from sweeper.errors import SpecError
from sweeper.planning.defaults import complete
from sweeper.planning.loaded import LoadedSpec
from sweeper.planning.preview import preview
from sweeper.specification.fields.nested import leaves
from sweeper.specification.left_out import PublicNumbers, default_batch_sizes, default_delta, find_defaults
from sweeper.specification.spec import Spec
from sweeper.store.sweep_folder import SweepFolder
from tests.factories import plan_sweep, set_key

THREE_LINES = {
    "name": "patients",
    "data": {"path": "patients.csv", "target": "readmitted", "ranges": "ranges.yaml"},
    "privacy": {"sweep_epsilon": 3},
}
RANGES = {
    "source": "made up",
    "target": {"classes": ["no", "yes"]},
    "columns": {"age": {"low": 0, "high": 120}, "ward": {"categories": ["A", "B"]}},
    "evaluation": "public",
}


@pytest.fixture
def table(tmp_path):
    """A made-up table of 400 patients, with its ranges file; returns what writes a spec for it and reads it."""
    luck = random.Random(0)
    rows = [(luck.randint(18, 90), luck.choice("AB")) for _ in range(400)]
    lines = [f"{age},{ward},{'yes' if age + luck.gauss(0, 9) > 55 else 'no'}" for age, ward in rows]
    (tmp_path / "patients.csv").write_text("\n".join(["age,ward,readmitted", *lines]) + "\n", encoding="utf-8")
    (tmp_path / "ranges.yaml").write_text(yaml.safe_dump(RANGES), encoding="utf-8")

    def read(**changes):
        content = copy.deepcopy(THREE_LINES)
        for path, value in changes.items():
            set_key(content, path.replace("__", "."), value)
        (tmp_path / "patients.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
        spec = Spec.from_yaml(tmp_path / "patients.yaml")
        return spec, clipless.datasets.load(**spec.data_options())

    return read


def values_of(spec):
    return {name: value for name, value in leaves(spec.to_plain()) if not name.startswith("search.first")}


def test_three_lines_are_a_complete_spec(table):
    spec, data = table()
    completed = complete(spec, data)
    values, rows = values_of(completed.spec), len(data.train)
    assert completed.spec.left_out == ()
    assert values["data.evaluation"] == "public"
    assert values["privacy.delta"] == 1e-4 <= 1 / (10 * rows)
    assert values["model.architecture"] == "mlp"
    assert values["training.batch_size"] == list(default_batch_sizes(rows))
    assert values["training.loss.name"] == "tau-bce"
    assert values["search.prior"] == "tables-1"
    assert completed.spec.search.first
    assert {one.field for one in completed.chosen} >= set(spec.left_out)
    assert all(one.because and one.because[0].islower() for one in completed.chosen)


def test_no_row_decides_what_is_chosen(table):
    spec, data = table()
    blind = [
        Split(torch.zeros_like(one.x), torch.zeros_like(one.y)) for one in (data.train, data.validation, data.test)
    ]
    other = replace(data, **dict(zip(("train", "validation", "test"), blind, strict=True)))
    assert complete(spec, other) == complete(spec, data)


def test_a_completed_spec_is_complete_and_stays_as_it_is(table):
    spec, data = table()
    once = complete(spec, data).spec
    again = complete(Spec.from_mapping(once.to_plain(), once.source), data)
    assert again.chosen == ()
    assert again.spec.to_plain() == once.to_plain()
    assert Spec.from_mapping(yaml.safe_load(once.to_yaml())).digest() == once.digest()


def test_what_is_left_out_is_in_no_record_of_the_spec_that_was_written(table):
    spec, _ = table()
    assert "delta" not in spec.to_plain()["privacy"]
    assert spec.with_search(trials=3).left_out == spec.left_out
    assert spec.with_search(trials=3).search.trials == 3


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data.evaluation", "public"),
        ("privacy.delta", 1e-6),
        ("model.width", 16),
        ("model.depth", [1, 2]),
        ("model.constraint", "spectral_ball"),
        ("model.standardise", True),
        ("training.epochs", 7),
        ("training.batch_size", 50),
        ("training.optimizer", "sgd"),
        ("training.learning_rate", 0.05),
        ("training.loss", "hinge"),
        ("training.sensitivity_fraction", 1.0),
        ("search.prior", "none"),
    ],
)
def test_a_value_in_the_spec_takes_the_place_of_the_default(table, path, value):
    completed = complete(*table(**{path.replace(".", "__"): value}))
    found = completed.spec.to_plain()
    for key in path.split("."):
        found = found[key]
    assert found == value
    assert path not in {one.field for one in completed.chosen}
    assert "privacy.sweep_epsilon" in values_of(completed.spec)


def test_every_default_can_be_overridden(table):
    spec, data = table()
    fields = {one.field for one in complete(spec, data).chosen}
    tested = {mark.args[1][i][0] for mark in [*_marks()] for i in range(len(mark.args[1]))}
    assert fields - {"model.architecture", "search.first"} <= tested


def _marks():
    return test_a_value_in_the_spec_takes_the_place_of_the_default.pytestmark


def test_an_architecture_in_the_spec_leaves_model_and_training_as_they_are(table):
    spec, data = table(
        model={"architecture": "mlp", "width": 16}, training={"epochs": 3, "learning_rate": {"log": [0.01, 1.0]}}
    )
    completed = complete(spec, data)
    assert {one.field for one in completed.chosen} == {
        "data.evaluation",
        "privacy.delta",
        "search.prior",
        "search.first",
    }
    assert completed.spec.training.batch_size == 256


def test_an_architecture_is_required_for_what_is_no_table(digits):
    spec = Spec.from_mapping({"name": "a", "data": {"name": "digits"}, "privacy": {"sweep_epsilon": 3}}, "a.yaml")
    with pytest.raises(
        SpecError,
        match=r"architecture for examples of shape \(1, 8, 8\), .*\(model.architecture in a.yaml\); name one of convnet, .*vgg",
    ):
        complete(spec, digits)


def test_two_ends_of_a_training_are_enough(table):
    spec, data = table(privacy={"epsilon": 3.0, "noise_multiplier": 2.0})
    assert "training.epochs" not in {one.field for one in complete(spec, data).chosen}
    spec, data = table(privacy={"epsilon": 3.0})
    assert complete(spec, data).spec.training.epochs is not None


@pytest.mark.long
def test_candidates_of_a_private_selection_get_one_value_for_what_they_spend(table):
    spec, data = table(search={"selection": "private"})
    completed = complete(spec, data).spec
    assert isinstance(completed.training.epochs, int)
    assert isinstance(completed.training.batch_size, int)
    assert completed.model.standardise is False
    assert completed.search.first == ()
    assert plan_sweep(spec, data).spending.selection is not None


@pytest.mark.long
@pytest.mark.usefixtures("in_process", "bare", "untracked")
def test_three_lines_run_and_resume_as_they_began(table, tmp_path):
    spec, data = table(search={"trials": 2}, training={"epochs": 2})
    ended = run_sweep(spec, Options(out=tmp_path / "out"))
    folder = SweepFolder(ended.sweep.directory)
    recorded = folder.read_manifest().read_spec()
    began, again = plan_sweep(spec, data), resume_plan(folder, LoadedSpec(spec=recorded, data=data))
    assert ended.front.points
    assert recorded.left_out == ()
    assert recorded.to_plain() == Spec.from_yaml(folder.spec).to_plain() == complete(spec, data).spec.to_plain()
    assert (again.spending, again.first, again.shared.space.dimensions) == (
        began.spending,
        began.first,
        began.shared.space.dimensions,
    )
    assert again.claim.public == began.claim.public
    assert [one.field for one in again.chosen] == ["search.rehearse"]  # which no spec has to say


def test_check_shows_what_was_chosen_and_why(table, capsys):
    from sweeper.cli.tables import print_view

    spec, data = table()
    plan = plan_sweep(spec, data)
    print_view(render_check(plan, data, preview(plan, data)))
    shown = capsys.readouterr().out
    assert "chosen for you" in shown
    for one in plan.chosen:
        assert one.field in shown
        assert one.because in shown or one.because.startswith("searched over a range")
    assert "[32, 64, 128]" in shown
    assert "likewise; 1 is a linear model" in shown
    assert "[orthogonal, spectral_ball]" in shown


def test_the_defaults_follow_from_public_numbers():
    assert default_delta(1) == 0.1
    assert default_delta(1_000) == 1e-4
    assert default_delta(1_001) == 1e-5
    assert default_batch_sizes(3) == (1,)
    found = {
        one.field: one.value for one in find_defaults({"privacy": {}}, PublicNumbers(rows=800, columns=4, classes=5))
    }
    assert found["training.loss"]["name"] == "tau-cce"
    assert found["training.batch_size"] == [50, 100, 200, 400]
    assert (
        find_defaults(
            {"privacy": {"delta": 1e-5}, "model": {"architecture": "lenet"}},
            PublicNumbers(rows=8, columns=4, classes=5),
        )
        == ()
    )


def test_where_people_are_protected_a_reason_counts_units():
    numbers = PublicNumbers(rows=437, columns=4, classes=2, counted="units")
    reasons = [one.because for one in find_defaults({"privacy": {}}, numbers) if "437" in one.because]
    assert reasons
    assert all("N = 437 training units" in because for because in reasons)
