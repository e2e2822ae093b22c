import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from clipless import losses, zoo
from clipless.datasets import ColumnSplit, Evaluation, HashSplit
from clipless.privacy.events import Relation
from clipless.projections import CONSTRAINTS
from sweeper.errors import SpecError
from sweeper.records import Direction
from sweeper.specification.fields.choices import ARCHITECTURE_OPTIONS, LOSS_DEFAULTS, LOSS_OPTIONS, field_of
from sweeper.specification.fields.fields import Name, Number
from sweeper.specification.fields.messages import MOST_MISTAKES
from sweeper.specification.fields.ranges import Choices, Range
from sweeper.specification.plugins import built_in_schedulers
from sweeper.specification.search import Sampler
from sweeper.specification.spec import DEFAULT_TRIALS, Spec, schema
from sweeper.specification.yaml_file import parse_mapping
from tests.factories import set_key, spec_error

FILE = "mnist.yaml"

OWN_SCHEDULERS = " or ".join(built_in_schedulers())
WITH_RADIUS = ", ".join(name for name, kind in CONSTRAINTS.items() if "radius" in kind.__dataclass_fields__)


def bad_value(content, path, value):
    sentence = spec_error(content, FILE, **{path: value})
    assert "\n" not in sentence
    assert FILE in sentence
    return sentence


def test_a_small_spec_has_sensible_defaults(content):
    spec = Spec.from_mapping(content)
    assert spec.objectives[0].direction is Direction.MINIMIZE
    assert [objective.name for objective in spec.objectives] == ["epsilon", "accuracy"]
    assert spec.privacy.relation is Relation.ADD_OR_REMOVE_ONE
    assert spec.search.sampler is Sampler.TPE
    assert spec.training.sensitivity_fraction == 1.0
    assert spec.privacy.noise == "min-variance"


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("privacy.delta", 1.5, "Expected 0 < delta < 1, got delta=1.5 (privacy.delta in mnist.yaml)"),
        ("training.epochs", "thirty", "Expected an integer epochs >= 1; or a list of them, or a range such as {log: [a, b]}, got epochs='thirty' (training.epochs in mnist.yaml)"),
        ("privacy.sweep_epsilon", -3, "Expected sweep_epsilon > 0, got sweep_epsilon=-3 (privacy.sweep_epsilon in mnist.yaml); usual budgets lie between 1 and 8"),
        ("training.lr", 1, "Unknown key 'lr' (training.lr in mnist.yaml); did you mean 'learning_rate'?"),
        ("training.eps", 1, "Unknown key 'eps' (training.eps in mnist.yaml); did you mean 'privacy.epsilon'?"),
        ("privacy.delta", [1e-5, 1e-6], "Expected a number, 0 < delta < 1, got delta=[1e-05, 1e-06] (privacy.delta in mnist.yaml)"),
        ("privacy.epsilon", -1, "Expected epsilon > 0, got epsilon=-1 (privacy.epsilon in mnist.yaml)"),
        ("privacy.epsilon", True, "Expected a number, epsilon > 0; or a list of them, or a range such as {log: [a, b]}, got epsilon=True (privacy.epsilon in mnist.yaml)"),
        ("training.epochs", 2.5, "Expected an integer epochs >= 1, got epochs=2.5 (training.epochs in mnist.yaml)"),
        ("training.batch_size", {"log": [512, 128]}, "Expected low < high, got batch_size=[512, 128] (training.batch_size.log in mnist.yaml); give one value if nothing is to be searched"),
        ("training.batch_size", [], "Expected at least one value in a list, got batch_size=[] (training.batch_size in mnist.yaml)"),
        ("training.learnign_rate", 1, "Unknown key 'learnign_rate' (training.learnign_rate in mnist.yaml); did you mean 'learning_rate'?"),
        ("resources.stack", "many", "Expected auto, or an integer stack >= 1, got stack='many' (resources.stack in mnist.yaml)"),
        ("resources.zebra", 1, "Unknown key 'zebra' (resources.zebra in mnist.yaml); known: concurrent, cpus, gpus, stack"),
        ("resources.gpus", 2, "Expected gpus <= 1, for a trial trains on one device, got gpus=2.0 (resources.gpus in mnist.yaml); set it to 1, or to a part of one: further GPUs train more trials at a time"),
        ("search.scheduler", "hyperbend", f"Expected scheduler none or {OWN_SCHEDULERS}, got scheduler='hyperbend' (search.scheduler in mnist.yaml); did you mean 'hyperband'?"),
        ("search.sampler", "tpa", "Expected sampler tpe or gp or nsga2 or nsga3 or quasi-random or random or grid, got sampler='tpa' (search.sampler in mnist.yaml); did you mean 'tpe'?"),
        ("search.objectives", ["certified@0.25", "certified@1/4"], "Expected each objective once, got objectives='certified@1/4' (search.objectives.1 in mnist.yaml)"),
        ("search.objectives", ["accuracy"] * 65, "Expected at most 64 objectives (search.objectives in mnist.yaml)"),
        ("training.loss", [], "Expected at least one name, got loss=[] (training.loss in mnist.yaml)"),
        ("training.batch_size", [64, 64], "Expected each value once in a list, got batch_size=[64, 64] (training.batch_size in mnist.yaml)"),
        ("training.epochs", 2**60, "Expected epochs <= 9007199254740992, got epochs=1152921504606846976 (training.epochs in mnist.yaml)"),
        ("search.metrics", ["certified@1"] * 65, "Expected at most 64 metrics (search.metrics in mnist.yaml)"),
        ("search.constraints", ["accuracy >= 0.1"] * 65, "Expected at most 64 constraints (search.constraints in mnist.yaml)"),
        ("search.objectives", ["epsilon"], "Expected an objective beside epsilon, got objectives=['epsilon'] (search.objectives in mnist.yaml); add accuracy"),
        ("search.objectives", "accuracy", "Expected a list of objectives such as [epsilon, accuracy, certified@36/255], got objectives='accuracy' (search.objectives in mnist.yaml)"),
        ("privacy.score_noise", 0, "Expected score_noise > 0, got score_noise=0 (privacy.score_noise in mnist.yaml)"),
        ("data.path", "x.csv", "Expected exactly one of name and path, got data=['digits', 'x.csv'] (data in mnist.yaml)"),
        ("data.target", "y", "Expected no target for the bundled data set digits, which declares its own, got target='y' (data.target in mnist.yaml); leave it out"),
        ("data", {"path": "x.csv", "evaluation": "public", "classes": ["a", "a"]}, "Expected two or more distinct labels, texts or whole numbers, got classes=['a', 'a'] (data.classes in mnist.yaml)"),
        ("data.splits", {"validation": 0.5, "test": 0.5}, "Expected validation + test < 1, got splits=[0.5, 0.5] (data.splits in mnist.yaml)"),
        ("data.splits", {"column": "s", "test": 0.1}, "Expected the values of column 's' that mark train rows (data.splits.train in mnist.yaml)"),
        ("data.splits", {"column": "s", "train": ["a"], "validation": ["b"], "test": ["a"]}, "Expected each value in one split only, got splits=['a', 'b', 'a'] (data.splits in mnist.yaml)"),
        ("data.splits", {"column": "s", "train": ["a"], "validation": ["b"], "test": ["c"], "salt": "x"}, "Expected no salt for a declared split, got salt='x' (data.splits.salt in mnist.yaml); leave it out"),
        ("data.splits", {"train": 0.7}, "Expected splits.column for declared values, got train=0.7 (data.splits.train in mnist.yaml); name the column, or give fractions for validation and test"),
        ("data.splits", {"validation": []}, "Expected one or more texts that mark a split, got validation=[] (data.splits.validation in mnist.yaml)"),
        ("model.architecture", {"name": "mlp", "hidden": 4}, "Expected parameters of mlp, got hidden=4 (model.architecture.hidden in mnist.yaml); known: activation, bias, bias_norm, constraint, depth, width"),
        ("model.width", 3, "Expected a multiple of 2, width >= 2, got width=3 (model.width in mnist.yaml)"),
        ("model.width", {"log_int": [2, 64]}, "Expected multiples of 2, got width=[2, 64] (model.width.log_int in mnist.yaml); list the values instead"),
        ("model.patch", 2, "Expected no patch without an architecture that takes it (mixer, patch-net), got patch=2 (model.patch in mnist.yaml)"),
        ("training.gradient_clip_schedule", "adaptive", "Expected no gradient_clip_schedule without gradient_clip, the norm that it starts from, got gradient_clip_schedule='adaptive' (training.gradient_clip_schedule in mnist.yaml)"),
        ("training.freeze_layers", 2, "Expected no freeze_layers without freeze_after, the share of the steps before it, got freeze_layers=2 (training.freeze_layers in mnist.yaml)"),
        ("training.copies", 2, "Expected no copies without flip, shift or input_noise: all would be the same, got copies=2 (training.copies in mnist.yaml)"),
        ("training.clip_quantile", 0.5, "Expected no clip_quantile without gradient_clip_schedule: adaptive, got clip_quantile=0.5 (training.clip_quantile in mnist.yaml)"),
        ("model.weight_norm", 2.0, f"Expected no weight_norm without a constraint that has one ({WITH_RADIUS}), got weight_norm=2.0 (model.weight_norm in mnist.yaml)"),
        ("training.loss", {"name": "hkr", "alpha": -1}, "Expected alpha >= 0, got alpha=-1 (training.loss.alpha in mnist.yaml)"),
        ("training.loss", {"name": "hinge", "reduction": "max"}, "Expected reduction sum or mean, got reduction='max' (training.loss.reduction in mnist.yaml); did you mean 'mean'?"),
        ("training.loss", {"temperature": 1}, "Expected a mapping with the key 'name', got loss={'temperature': 1} (training.loss in mnist.yaml)"),
        ("training.loss", ["tau-cce", "tau-cce"], "Expected each name once in a list, got loss=['tau-cce', 'tau-cce'] (training.loss in mnist.yaml); give one entry and open its parameters"),
        ("training.batch_size", {"log": [1]}, "Expected two ends [low, high], got batch_size=[1] (training.batch_size.log in mnist.yaml)"),
        ("training.batch_size", {"lag": [1, 2]}, "Expected a range {log: [a, b]}, {uniform: [a, b]}, {int: [a, b]} or {log_int: [a, b]}, got batch_size={'lag': [1, 2]} (training.batch_size in mnist.yaml)"),
        ("training.momentum", {"log": [0, 0.5]}, "Expected low > 0 on a logarithmic scale, got momentum=[0, 0.5] (training.momentum.log in mnist.yaml)"),
        ("training.learning_rate", {"int": [0.5, 2]}, "Expected whole ends, got learning_rate=[0.5, 2] (training.learning_rate.int in mnist.yaml)"),
        ("training.learning_rate", {"log": [0.1, 1], "step": 0.1}, "Expected no step on a logarithmic scale, got step=0.1 (training.learning_rate.step in mnist.yaml); list the values instead"),
        ("training.learning_rate", {"uniform": [0.5, 1.5], "step": 2}, "Expected step <= 1, the width of the range, got step=2.0 (training.learning_rate.step in mnist.yaml)"),
        ("name", "a/b", "Expected a name of up to 100 letters, digits, '.', '_' and '-', a letter or digit first, got name='a/b' (name in mnist.yaml)"),
        ("data.name", 3, "Expected a text, got name=3 (data.name in mnist.yaml)"),
        ("privacy.accept_large_delta", "yes", "Expected true or false, got accept_large_delta='yes' (privacy.accept_large_delta in mnist.yaml)"),
    ],
)  # fmt: skip
def test_every_mistake_is_one_sentence_with_field_value_and_remedy(content, path, value, sentence):
    assert bad_value(content, path, value) == sentence


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privacy.noise_multiplier": 1.0}, "got privacy.epsilon, privacy.noise_multiplier, training.epochs (mnist.yaml); leave one of"),
        ({"training.epochs": ...}, "got privacy.epsilon (mnist.yaml); add privacy.noise_multiplier or training.epochs"),
        ({"training.epochs": ..., "privacy.epsilon": ...}, "got none of them (mnist.yaml); add"),
    ],
)  # fmt: skip
def test_two_of_epsilon_noise_and_epochs_give_the_third(content, changes, said):
    for path, value in changes.items():
        set_key(content, path, value)
    with pytest.raises(SpecError) as caught:
        Spec.from_mapping(content, FILE)
    assert str(caught.value).startswith(
        "Expected exactly two of privacy.epsilon, privacy.noise_multiplier and training.epochs"
    )
    assert said in str(caught.value)


def test_a_misspelled_key_explains_the_missing_one(content):
    content["privacy"] = {"epsilon": 1.0, "delat": 1e-5}
    assert bad_value(content, "name", "x").startswith("Unknown key 'delat'")


def test_more_trials_than_configurations_are_refused(content):
    content["training"]["batch_size"] = [64, 128]
    sentence = bad_value(content, "search.trials", 3)
    assert sentence.startswith("Expected trials <= 2, the number of configurations in the search space, got trials=3")
    set_key(content, "search.trials", 2)
    assert Spec.from_mapping(content).trials == 2


def test_trials_left_out_are_sixteen_or_all_there_are(content):
    content["training"]["batch_size"] = [64, 128]
    assert Spec.from_mapping(content).trials == 2
    content["training"]["learning_rate"] = {"log": [1e-3, 1]}
    assert Spec.from_mapping(content).trials == DEFAULT_TRIALS


def test_first_configurations_are_checked(content):
    content["training"]["learning_rate"] = {"log": [1e-3, 1]}
    content["training"]["loss"] = ["tau-bce", {"name": "tau-cce", "temperature": {"log": [0.1, 10]}}]
    first = [
        {"training": {"learning_rate": 0.1, "loss": {"name": "tau-cce", "temperature": 1.0}, "epochs": 10}},
        {"training.learning_rate": 0.5},
    ]
    content["search"] = {"first": first}
    assert Spec.from_mapping(content).first == (
        {"training.learning_rate": 0.1, "training.loss": "tau-cce", "training.loss.tau-cce.temperature": 1.0},
        {"training.learning_rate": 0.5},
    )


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ({"training": {"learning_rate": 7.0}}, "got learning_rate=7.0 (search.first.0.training.learning_rate in mnist.yaml)"),
        ({"training": {"epochs": 11}}, "Expected 10, which the spec fixes, got epochs=11 (search.first.0.training.epochs"),
        ({"training": {"learning_rat": 0.1}}, "did you mean 'training.learning_rate'?"),
        ({"training": {"loss": {"name": "tau-cce", "temperature": 3}}}, "Expected 1.0, which the spec fixes, got temperature=3"),
    ],
)  # fmt: skip
def test_a_wrong_first_configuration_is_named(content, first, said):
    content["training"]["learning_rate"] = {"log": [1e-3, 1]}
    assert said in bad_value(content, "search.first", [first])


def test_more_first_configurations_than_trials_are_refused(content):
    content["training"]["learning_rate"] = {"log": [1e-3, 1]}
    content["search"] = {"trials": 1}
    assert "at most 1 configurations, the number of trials, got first=2" in bad_value(content, "search.first", [{}, {}])


def test_delta_must_be_below_one_over_n_unless_accepted(content):
    spec = Spec.from_mapping(content, FILE)
    spec.validate_against(9_999)
    with pytest.raises(SpecError, match=r"1/N = 0.0001 .*delta=0.0001 \(privacy.delta in .*; write 1e-05"):
        spec.validate_against(10_000)
    content["privacy"]["accept_large_delta"] = True
    Spec.from_mapping(content).validate_against(10_000)


@pytest.mark.parametrize("batch_size", [2000, [100, 2000], {"log": [100, 2000]}])
def test_no_batch_may_exceed_the_rows(content, batch_size):
    content["training"]["batch_size"] = batch_size
    spec = Spec.from_mapping(content, FILE)
    spec.validate_against(2000)
    with pytest.raises(SpecError, match=r"<= N = 1999, .*got batch_size=2000 \(training.batch_size in"):
        spec.validate_against(1999)


def test_auroc_and_tau_bce_need_two_classes(content):
    content["search"] = {"objectives": ["epsilon", "auroc"]}
    content["training"]["loss"] = ["tau-bce", "tau-cce"]
    spec = Spec.from_mapping(content, FILE)
    spec.validate_against(1000, classes=2)
    with pytest.raises(SpecError, match=r"auroc, the data have 3 \(search.objectives in mnist.yaml\)"):
        spec.validate_against(1000, classes=3)
    content["search"] = {"objectives": ["epsilon", "certified-auroc@0.5"]}
    with pytest.raises(SpecError, match=r"objective certified-auroc@0.5, the data have 3"):
        Spec.from_mapping(content, FILE).validate_against(1000, classes=3)
    content["search"] = {}
    with pytest.raises(SpecError, match=r"tau-bce, the data have 3 \(training.loss in mnist.yaml\)"):
        Spec.from_mapping(content, FILE).validate_against(1000, classes=3)


def test_ranges_take_the_type_of_their_field(content):
    content["training"] |= {"batch_size": {"log": [512, 8192]}, "learning_rate": {"log": [1, 10]}, "epochs": [1e1, 20]}
    content["model"]["width"] = {"int": [16, 64]}
    spec = Spec.from_mapping(content)
    assert spec.training.batch_size == Range(low=512, high=8192, log=True, integer=True)
    assert spec.training.learning_rate == Range(low=1.0, high=10.0, log=True)
    assert spec.training.epochs == Choices((10, 20))
    assert spec.model.width == Range(low=16, high=64, integer=True, step=2)


def test_a_spec_survives_its_own_json(content):
    content["training"] |= {
        "batch_size": {"log": [512, 8192]},
        "loss": [{"name": "tau-cce", "temperature": [1, 2]}, "tau-bce"],
    }
    content["data"] = {
        "path": "x.csv",
        "evaluation": "exploratory",
        "classes": [0, 1],
        "splits": {"validation": 0.2, "salt": "s"},
    }
    content["search"] = {"objectives": ["accuracy", "certified@36/255"], "first": [{"training.batch_size": 600}]}
    plain = json.loads(json.dumps(Spec.from_mapping(content).to_plain()))
    assert Spec.from_mapping(plain).to_plain() == plain


def test_a_spec_keeps_the_text_that_says_just_this(content, tmp_path):
    path, commented = tmp_path / "s.yaml", f"# mine\n{yaml.safe_dump(content)}"
    path.write_text(commented, encoding="utf-8")
    spec, other = Spec.from_yaml(path), Spec.from_yaml(path, {"search.seed": 3})
    path.unlink()  # later changes of the file change nothing
    assert spec.text == spec.with_search(seed=None).text == commented
    for changed in (other, spec.with_search(seed=3)):
        assert changed.text == changed.to_yaml() != commented
        assert Spec.from_mapping(parse_mapping(changed.text, "s.yaml")).search.seed == 3


def test_the_command_line_overrides_the_search(content):
    content["training"]["learning_rate"] = {"log": [1e-3, 1]}
    spec = Spec.from_mapping(content, FILE).with_search(trials=5, seed=7, hours=None)
    assert (spec.trials, spec.search.seed, spec.source) == (5, 7, FILE)
    with pytest.raises(SpecError, match=r"trials=0 \(--trials 0, or --set search.trials=0\)"):
        spec.with_search(trials=0)


def test_rows_of_ones_own_are_private_unless_declared_and_rehearsed_on_a_sketch():
    content = {"name": "a", "privacy": {"sweep_epsilon": 3}}
    for data, has_sketch in (
        ({"path": "x.csv"}, True),
        ({"path": "x.csv", "evaluation": "public"}, False),
        ({"name": "yeast"}, False),
    ):
        spec = Spec.from_mapping(content | {"data": data})
        assert (spec.rehearsals, spec.sketch_share > 0) == (16, has_sketch)


def test_files_beside_the_spec_come_first(tmp_path, content):
    (tmp_path / "ranges.yaml").touch()
    splits = {"column": "s", "train": ["a"], "validation": ["b"], "test": ["c"]}
    content["data"] = {
        "path": "t.csv",
        "ranges": "ranges.yaml",
        "evaluation": "public",
        "unit": "row",
        "classes": [0, 1],
    }
    content["data"]["splits"] = splits
    options = Spec.from_mapping(content, str(tmp_path / "spec.yaml")).data_options(tmp_path)
    assert options == {
        "source": Path("t.csv"),
        "data_dir": tmp_path,
        "ranges": tmp_path / "ranges.yaml",
        "evaluation": Evaluation.PUBLIC,
        "classes": ("0", "1"),
        "splits": ColumnSplit(column="s", train=("a",), validation=("b",), test=("c",)),
    }


def test_a_bundled_data_set_needs_its_name_only(content):
    assert Spec.from_mapping(content).data_options() == {"source": "digits"}
    content["data"] |= {"splits": {"validation": 0.2}, "unit": "row"}
    assert Spec.from_mapping(content).data_options() == {"source": "digits", "splits": HashSplit(validation=0.2)}


def test_the_options_of_a_spec_are_those_that_architectures_and_losses_declare():
    assert set(ARCHITECTURE_OPTIONS) == set(zoo.ARCHITECTURES)
    shared = {"activation", "bias", "bias_norm", "constraint"}
    for name, options in ARCHITECTURE_OPTIONS.items():
        assert set(options) == set(zoo.ARCHITECTURES[name].own_options) | shared
    assert set(LOSS_OPTIONS) == set(losses.LOSSES) == set(LOSS_DEFAULTS)
    for name, parameters in LOSS_OPTIONS.items():
        assert set(LOSS_DEFAULTS[name]) == set(parameters) - {"priors"}
        assert losses.LOSSES[name](**LOSS_DEFAULTS[name]) == losses.LOSSES[name]()


def test_ranges_are_as_declared():
    even, share = ARCHITECTURE_OPTIONS["mlp"]["width"], ARCHITECTURE_OPTIONS["mixer"]["skip"]
    assert even == Number(integer=True, at_least=2, multiple_of=2)
    assert share == Number(at_least=0, below=1)
    assert ARCHITECTURE_OPTIONS["scattering"]["orientations"] == Number(integer=True, at_least=1, at_most=32)
    assert ARCHITECTURE_OPTIONS["patch-net"]["pooling"] == Name(names=("l2", "max", "avg"))
    assert LOSS_OPTIONS["hkr"]["alpha"] == Number(at_least=0)
    assert LOSS_OPTIONS["kr"]["reduction"] == Name(names=("sum", "mean"))


@pytest.mark.parametrize("annotation", [str, int | float, Annotated[int, "even"], list[int]])
def test_an_option_of_a_type_that_no_spec_can_hold_is_refused(annotation):
    with pytest.raises(TypeError, match=r"Expected .* option of a spec"):
        field_of(annotation)


@pytest.mark.long
def test_options_are_read_without_torch():
    code = "import sys, sweeper.specification.architectures; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_the_schema_accepts_what_the_spec_accepts(content):
    jsonschema = pytest.importorskip("jsonschema")
    validate = jsonschema.Draft202012Validator(schema()).is_valid
    assert validate(content)
    three_lines = {"name": "x", "data": {"path": "x.csv", "target": "y"}, "privacy": {"sweep_epsilon": 3}}
    assert validate(three_lines)
    assert validate(three_lines | {"model": {"width": 64}})
    assert not validate(three_lines | {"privacy": None})
    content["training"] |= {
        "batch_size": {"log": [512, 8192]},
        "loss": [{"name": "tau-cce", "temperature": [1, 2]}, "tau-bce"],
    }
    content["search"] = {"objectives": ["accuracy"], "sampler": "random"}
    content["model"]["architecture"] = [{"name": "convnet", "hidden": 64}, "mlp"]
    Spec.from_mapping(content)
    assert validate(content)
    for path, wrong in (
        ("privacy.delta", 2),
        ("training.batch_size", 0),
        ("training.los", 1),
        ("search.sampler", "tpa"),
        ("model.width", 3),
    ):
        import copy

        changed = copy.deepcopy(content)
        set_key(changed, path, wrong)
        assert not validate(changed), path


SWEEPS = Path(__file__).parents[3] / "sweeps"
READY = sorted(path for path in SWEEPS.rglob("*.yaml") if ".ranges." not in path.name)


@pytest.mark.parametrize("path", READY, ids=lambda path: str(path.relative_to(SWEEPS)))
def test_ready_specs_are_valid_and_named_after_their_place(path):
    assert Spec.from_yaml(path).name == "-".join(path.relative_to(SWEEPS).with_suffix("").parts)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PATHS = [
    "name", "data.splits", "data.classes", "data.unit", "model.architecture", "model.width", "training.batch_size", "training.loss",
    "training.optimizer", "privacy.delta", "privacy.relation", "search.objectives", "search.first", "search.trials", "resources.cpus",
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(path=st.sampled_from(PATHS), value=json_values, bare=st.booleans())
def test_no_value_anywhere_escapes_the_one_sentence(path, value, bare):
    content = {
        "name": "x",
        "data": {"path": "x.csv", "evaluation": "public"},
        "model": {"architecture": "mlp"},
        "training": {"epochs": 1},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
    }
    if bare:
        content = {"name": "x", "data": {"path": "x.csv"}, "privacy": {"sweep_epsilon": 3.0}}
    set_key(content, path, value)
    said = (FILE,)
    try:
        Spec.from_mapping(content, FILE)
    except SpecError as error:
        said = error.mistakes
    assert 1 <= len(said) <= MOST_MISTAKES + 1
    for mistake in said[:MOST_MISTAKES]:
        assert "\n" not in mistake
        assert FILE in mistake


def mistakes_of(content):
    with pytest.raises(SpecError) as caught:
        Spec.from_mapping(content, FILE)
    return caught.value.mistakes


def test_all_mistakes_of_the_sections_are_told_at_once(content):
    content["training"] |= {"learnign_rate": 0.1, "batch_size": "many"}
    content["privacy"] |= {"epsilon": -1.0}
    content["model"] = {"achitecture": "mlp"}
    said = mistakes_of(content)
    assert len(said) == 4  # a missing key that is there, misspelled, is no mistake of its own
    assert said[0].startswith("Unknown key 'achitecture'")
    assert said[1].startswith("Unknown key 'learnign_rate'")
    assert any("got batch_size='many'" in one for one in said)
    assert any("got epsilon=-1.0" in one for one in said)
    content["model"] = []
    assert any("Expected a mapping" in one for one in mistakes_of(content))


def test_sections_that_disagree_in_several_ways_are_told_so_at_once(content):
    content["privacy"] = {"delta": 1e-4, "sweep_epsilon": 3.0, "epsilon": 1.0, "noise_multiplier": 1.0}
    content["training"] = {}
    said = mistakes_of(content)
    assert [one.partition(" with")[0] for one in said] == [
        "Expected no epsilon",
        "Expected no noise_multiplier",
        "Expected epochs",
    ]
    with pytest.raises(SpecError, match=r"^3 mistakes:\n\(1\) Expected no epsilon .*\n\(2\) "):
        Spec.from_mapping(content, FILE)


def test_every_bad_entry_of_a_list_is_told_at_once(content):
    content["search"] = {
        "objectives": ["epsilon", "accuracy", "acuracy", "certified@abc", "accuracy", "certified@xyz"],
        "metrics": ["certified@0.5", "atacked@0.5", "certified@1/2"],
    }
    content["training"]["batch_size"] = [256, "many", -1]
    content["training"]["loss"] = ["tau-cc", "tau-cce", {"name": "tau-cce", "temperature": -1}]
    assert [(one.split(", got ")[1].split()[0], place_of(one)) for one in mistakes_of(content)] == [
        ("batch_size='many'", "training.batch_size.1"),
        ("batch_size=-1", "training.batch_size.2"),
        ("loss='tau-cc'", "training.loss.0"),
        ("temperature=-1", "training.loss.2.temperature"),
        ("objectives='acuracy'", "search.objectives.2"),
        ("objectives='certified@abc'", "search.objectives.3"),
        ("objectives='accuracy'", "search.objectives.4"),
        ("objectives='certified@xyz'", "search.objectives.5"),
        ("metrics='atacked@0.5'", "search.metrics.1"),
        ("metrics='certified@1/2'", "search.metrics.2"),
    ]


def test_every_entry_that_does_not_go_with_the_others_is_told_at_once(content):
    certified = ["certified@0.5", "certified@1"]
    content["search"] = {
        "objectives": ["epsilon", *certified],
        "metrics": ["certified@2", "certified@1/2", "certified@1.0"],
    }
    assert [place_of(one) for one in mistakes_of(content)] == ["search.metrics.1", "search.metrics.2"]
    content["search"] = {"constraints": ["accuracy > 1", "accuracy >= 0.5", "certified@1 >= 0.3"]}
    assert [place_of(one) for one in mistakes_of(content)] == ["search.constraints.0", "search.constraints.2"]
    content["training"]["learning_rate"] = {"log": [0.01, 0.1]}
    content["search"] = {"first": [{"training": {"eposch": 1}}, {}, {"training": {"learning_rate": 7.0}}]}
    assert [place_of(one) for one in mistakes_of(content)] == [
        "search.first.0.training.eposch",
        "search.first.2.training.learning_rate",
    ]


def place_of(mistake):
    return mistake.partition(f" in {FILE}")[0].rpartition("(")[2]


def test_of_very_many_mistakes_the_rest_is_counted(content):
    content["search"] = {"first": [None] * 50}
    said = mistakes_of(content)
    assert len(said) == MOST_MISTAKES + 1
    assert said[-1] == f"and {50 - MOST_MISTAKES} more in {FILE}"


def test_values_are_set_by_dotted_names_over_those_of_the_file(content, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content | {"search": {"repeats": 4}}), encoding="utf-8")
    given = {"training.epochs": 5, "search.seed": 3, "search.repeats": None, "resources.cpus": 2}
    made = Spec.from_yaml(path, given)
    assert (made.training.epochs, made.search.seed, made.search.repeats, made.resources.cpus) == (5, 3, 1, 2)
    assert dict(made.overrides) == given
    assert dict(made.with_search(seed=7).overrides) == given | {"search.seed": 7}
    assert dict(Spec.from_yaml(path).overrides) == {}


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("training.epoch", 3, "Unknown key 'epoch' (--set training.epoch=3); did you mean 'epochs'?"),
        ("training.epochs", "x", "got epochs='x' (--set training.epochs=x)"),
        ("training.epochs", [2, -1], "got epochs=-1 (--set training.epochs=[2, -1])"),
        ("search.trials", 0, "got trials=0 (--trials 0, or --set search.trials=0)"),
        ("search.seed", {"a": 1}, '(--seed {"a": 1}, or --set search.seed={"a": 1})'),
        ("model.architecture.name", "mlp", "Expected a section at model.architecture to set model.architecture.name"),
        ("training..epochs", 3, "Expected a dotted name such as training.epochs, got 'training..epochs' (--set)"),
    ],
)
def test_what_is_set_is_checked_as_the_file_is(content, tmp_path, name, value, sentence):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        Spec.from_yaml(path, {name: value})
    assert sentence in str(caught.value)
    assert str(path) not in str(caught.value)


def test_dotted_yaml_text_reaches_the_sentence():
    with pytest.raises(SpecError, match=r"got epsilon=nan \(privacy.epsilon.0 in f\)"):
        Spec.from_mapping(
            parse_mapping(
                "{name: a, data: {name: digits}, model: {architecture: mlp}, privacy: {delta: 1e-5, epsilon: [.nan]}}",
                "f",
            ),
            "f",
        )


def test_architectures_have_options_of_their_own(content):
    content["model"] = {
        "architecture": [
            {"name": "resnet", "skip": {"uniform": [0.0, 0.5]}, "learned_skip": [True, False]},
            "mixer",
            "vgg",
        ],
        "activation": ["groupsort", "householder"],
        "pooling": "max",
        "bias": [False, True],
        "blocks": 2,
        "convolutions": 3,
        "patch": 4,
    }
    spec = Spec.from_mapping(content)
    names = {dimension.name for dimension in spec.dimensions}
    assert {"model.architecture.resnet.skip", "model.architecture.resnet.learned_skip", "model.bias"} <= names
    jsonschema = pytest.importorskip("jsonschema")
    assert jsonschema.Draft202012Validator(schema()).is_valid(content)


@pytest.mark.parametrize("wrong", [1, "yes", [True, True], [True, "no"], []])
def test_a_flag_is_true_or_false(content, wrong):
    content["model"] |= {"bias": wrong}
    with pytest.raises(SpecError, match=r"Expected .*model\.bias"):
        Spec.from_mapping(content)


@pytest.mark.parametrize("name", ["x" * 300 + ".csv", "folder/" * 600 + "t.csv", "t\0.csv"])
@pytest.mark.parametrize("field", ["path", "ranges", "features.file"])
def test_a_path_that_no_file_can_have_is_named(content, field, name):
    content["data"] = {"path": "t.csv", "ranges": "t.yaml"}
    if field == "features.file":
        content["data"]["features"] = {"name": "own"}
    said = spec_error(content, **{f"data.{field}": name})
    expected = "Expected a path of names of at most 255 bytes, 4095 in all, and no NUL"
    assert said.endswith(f"{expected} (data.{field} in mnist.yaml)")
