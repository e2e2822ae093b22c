"""Everything that is exported has its rule, an adversarial test, a place in a spec and a place in the documentation.

A contract compares names with those that have each of these. Names come from the packages, rules from their tables,
adversarial tests from what those tests are parametrised over, spec entries from what a spec accepts.
"""

import importlib.util
import inspect
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import pytest
import torch

import clipless
from clipless import layers, losses, projections, zoo
from clipless.bounds import _rules as bound_rules
from clipless.bounds import bound_network, bounded_types
from clipless.imports import import_modules
from clipless.losses import _rules
from clipless.plans.method import Method
from clipless.plans.trainable import check_trainable
from clipless.saving import architecture
from sweeper.errors import SpecError
from sweeper.schedulers import find_scheduler
from sweeper.specification import plugins
from sweeper.specification.fields.choices import ARCHITECTURE_OPTIONS
from sweeper.specification.spec import Spec
from sweeper.trials.build import build_loss, build_model

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "clipless"
DOCS = ROOT / "docs"
FAULTS = ROOT / "tests" / "mutations" / "faults.toml"
# Not in any architecture of the zoo: for networks of one's own.
LIBRARY_ONLY = {"Conv1d", "GlobalL2Pool2d", "GroupNorm", "LayerCentering"}


@dataclass(frozen=True)
class Contract:
    """What every name of a kind must have, and which names have it."""

    kind: str
    exported: Collection[str]
    needs: Mapping[str, Collection[str]]

    def gaps(self):
        """One sentence for each thing that is missing."""
        return [
            f"{self.kind} {name} has no {need}"
            for name in self.exported
            for need, having in self.needs.items()
            if name not in having
        ]


@lru_cache
def loaded(path):
    """A test module, apart from pytest's own copy."""
    spec = importlib.util.spec_from_file_location(f"contracts_{Path(path).stem}", TESTS / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tried(path, test, argument):
    """The values of ``argument`` that a test is parametrised over."""
    marks = getattr(getattr(loaded(path), test, None), "pytestmark", [])
    for mark in marks:
        if mark.name == "parametrize":
            names, values = mark.args[:2]
            names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
            if argument in names:
                index = names.index(argument)
                return [v.values[index] if hasattr(v, "values") and hasattr(v, "id") else v for v in values]
    return []


def chapter(page, heading):
    """The text below a heading of the documentation."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {heading}$(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    return found


def quoted(text):
    """What stands in backticks."""
    return set(re.findall(r"`([^`]+)`", text))


def row(page, heading, key):
    """What stands in backticks in the table row of a key."""
    return quoted("".join(re.findall(rf"^\| `{key}` .*$", chapter(page, heading), flags=re.MULTILINE)))


def first_column(page, heading):
    """What stands in backticks in the first column of the tables of a chapter."""
    return quoted("\n".join(re.findall(r"^\|((?:\\\||[^|])*)\|", chapter(page, heading), flags=re.MULTILINE)))


def a_spec(**sections):
    """A spec of one trial on the embedded data."""
    content = {"name": "x", "data": {"name": "digits"}, "model": {"architecture": "mlp"}}
    content |= {"training": {"epochs": 1}, "privacy": {"noise_multiplier": 1.0, "delta": 1e-5}}
    for section, changes in sections.items():
        content[section] = content.get(section, {}) | changes
    return Spec.from_mapping(content)


def named_in_a_spec(section, key, names, **sections):
    """Those names that a spec accepts as the value of a key, and that a trial of it then has."""
    found = set()
    for name in names:
        try:
            spec = a_spec(**{**sections, section: sections.get(section, {}) | {key: name}})
        except SpecError:
            continue
        config = spec.space.resolve(spec.space.suggest(None)).to_json()[section].get(key)
        if config == name or (isinstance(config, dict) and config["name"] == name):
            found.add(name)
    return found


@lru_cache
def reached_layers():
    """Types of the layers in the networks that specs describe."""
    data = clipless.datasets.load("digits")
    variants = [("constraint", "orthogonal")]
    variants += [("activation", activation) for activation in zoo.ACTIVATIONS]
    variants += [("pooling", pooling) for pooling in zoo.POOLINGS]
    described = [{"architecture": "mlp", "standardise": True}, {"architecture": "mlp", "input_quantile": 0.9}]
    for name, options in ARCHITECTURE_OPTIONS.items():
        small = {"hidden": 8} if name == "scattering" else {"depth": 1} if "depth" in options else {}
        described += [{"architecture": {"name": name, o: value, **small}} for o, value in variants if o in options]
    found = set()
    for model in described:
        spec = a_spec(model=model, training={"gradient_clip": 1.0})
        config = spec.space.resolve(spec.space.suggest(None))
        network = build_model(config, data, build_loss(config), 0)
        found |= {type(layer).__name__ for layer in network.modules()}
    return found


def rules_with_a_fault():
    """Names of the layers of which a planted fault changes the bound rule, or a function of its module that it calls."""
    faults = tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]
    return {name for fault in faults for name in rule_names(fault)}


def rule_names(fault):
    """Names of the layers whose bound rule a fault changes."""
    return {kind.__name__ for kind, rule in bound_rules._RULES.items() if touches(fault, rule)}


def touches(fault, rule):
    """Whether the old text of a fault stands in a rule or in a function of its module that it calls."""
    module = inspect.getmodule(rule)
    if not Path(module.__file__).as_posix().endswith(f"/{fault['file']}"):
        return False
    called = [getattr(module, name, None) for name in rule.__code__.co_names]
    own = [one for one in called if inspect.isfunction(one) and one.__module__ == module.__name__]
    return any(fault["old"] in inspect.getsource(function) for function in (rule, *own))


def layer_contract():
    table = loaded("bounds/test_layers.py").CASES
    cases = tried("bounds/test_layers.py", "test_no_search_exceeds_a_bound_and_tight_ones_are_attained", "case")
    return Contract(
        "layer",
        tuple(layers.every_layer()),
        {
            "bound rule": {
                kind.__name__ for kind in bounded_types() if kind is layers.every_layer().get(kind.__name__)
            },
            "adversarial test": {type(table[case][0]).__name__ for case in cases},
            "planted fault of its bound rule in tests/mutations/faults.toml": rules_with_a_fault(),
            "name in EXPORTED of tests/clipless/test_public_names.py": exported_layers(),
            "place in a spec, nor is it declared to be for the library alone": reached_layers() | LIBRARY_ONLY,
            "row in docs/mathematics.md": first_column("mathematics.md", "Bounds"),
        },
    )


def exported_layers():
    """The names of layers that the package is to export."""
    table = loaded("test_public_names.py").EXPORTED
    return set(next(names for package, names in table.items() if package is layers).split())


def loss_types():
    """Losses that are exported, or stand in any module of the folder, by class name."""
    kinds = {name: getattr(losses, name) for name in losses.__all__}
    for module in import_modules(losses.__name__, losses.__path__):
        kinds |= {n: k for n, k in vars(module).items() if getattr(k, "__module__", "") == module.__name__}
    return {n: k for n, k in kinds.items() if inspect.isclass(k) and hasattr(k, "output_size") and k is not losses.Loss}


def loss_contract():
    cases = tried("losses/test_losses.py", "test_no_logits_exceed_the_constant_and_some_attain_it", "loss")
    by_type = {type(losses.LOSSES[name]()).__name__: name for name in losses.LOSSES}
    in_a_spec = named_in_a_spec("training", "loss", losses.LOSSES)
    weighted = {"ClassWeighted"} if type(build_loss(weighted_trial())) is losses.ClassWeighted else set()
    spec_rows, constants = first_column("spec.md", "training"), first_column("mathematics.md", "Bounds")
    return Contract(
        "loss",
        tuple(loss_types()),
        {
            "Lipschitz constant": {kind.__name__ for kind in _rules._RULES},
            "adversarial test": {type(loss).__name__ for loss in cases},
            "name in a spec": {kind for kind, name in by_type.items() if name in in_a_spec} | weighted,
            "row in docs/spec.md": {kind for kind, name in by_type.items() if name in spec_rows}
            | ({"ClassWeighted"} if "class_weights" in spec_rows else set()),
            "constant in docs/mathematics.md": {kind for kind, name in by_type.items() if name in constants}
            | (constants & {"ClassWeighted"}),
        },
    )


def weighted_trial():
    spec = a_spec(training={"class_weights": [1.0] * 10})
    return spec.space.resolve(spec.space.suggest(None))


def constraint_contract():
    path = "projections/test_projections.py"
    kept = tried(path, "test_no_matrix_is_left_with_a_norm_above_the_radius_of_any_constraint", "name")
    table = loaded(path).EVERY_CONSTRAINT
    return Contract(
        "constraint",
        projections.CONSTRAINTS,
        {
            "projection onto a set of known norm": {
                name
                for name, kind in projections.CONSTRAINTS.items()
                if callable(getattr(kind, "project", None)) and isinstance(getattr(kind(), "radius", None), float)
            },
            "adversarial test": {n for n in kept if {type(c) for c in table[n]} == {projections.CONSTRAINTS.get(n)}},
            "name in a spec": named_in_a_spec("model", "constraint", projections.CONSTRAINTS),
            "mention in docs/spec.md": row("spec.md", "model", "constraint"),
        },
    )


def method_contract():
    name = "test_no_neighbour_moves_what_is_noised_by_more_than_the_plan_of_any_method_says"
    names = [method.value for method in Method]
    return Contract(
        "method",
        names,
        {
            "plan": planned_methods(),
            "adversarial test": {method.value for method in tried("plans/test_method.py", name, "method")},
            "name in a spec": named_in_a_spec("training", "method", names),
            "row in docs/spec.md": first_column("spec.md", "training"),
        },
    )


@lru_cache
def planned_methods():
    """Methods of which a plan can be made that training accepts."""
    model, loss = zoo.mlp((4,), 2, input_norm=1.0, width=4), losses.TauCCE()
    split = clipless.datasets.Split(torch.zeros(8, 4), torch.zeros(8, dtype=torch.int64))
    found = set()
    for method in Method:
        options = {} if method is Method.NON_PRIVATE else {"noise_multiplier": 1.0}
        options |= {"clip_norm": 1.0} if method is Method.DP_SGD else {}
        plan = clipless.make_plan(
            model, loss, population=8, batch_size=4, delta=0.1, epochs=1, method=method, **options
        )  # fmt: skip
        if len(list(clipless.fit(model, loss, split, plan))) == 1:
            found.add(method.value)
    return found


def architecture_contract():
    path = "zoo/test_zoo.py"
    names = list(zoo.ARCHITECTURES)
    searched = set(tried(path, "test_two_inputs_are_mapped_no_further_apart", "name"))
    guarded = set(tried(path, "test_every_activation_fits_every_architecture", "name"))
    return Contract(
        "architecture",
        names,
        {
            "bound by the rules of its layers": {name for name in names if bounded(name)},
            "adversarial test": searched & guarded,
            "name in a spec": named_in_a_spec("model", "architecture", names),
            "mention in docs/spec.md": row("spec.md", "model", "architecture"),
        },
    )


def bounded(name):
    """Whether the network is trainable, bounded, and can be saved."""
    try:
        model = zoo.ARCHITECTURES[name]((1, 16, 16), 3, input_norm=1.0)
        return bound_network(check_trainable(model)).lipschitz() > 0 and bool(architecture(model))
    except (clipless.errors.CliplessError, TypeError):
        return False


def option_contract(option, table, rule):
    """Activations and poolings."""
    path = "zoo/test_zoo.py"
    tests = {
        "activation": "test_every_activation_fits_every_architecture",
        "pooling": "test_every_pooling_keeps_the_constant",
    }
    return Contract(
        option,
        table,
        {
            "bound rule": {name for name in table if type(rule(name)) in bounded_types()},
            "adversarial test": tried(path, tests[option], option),
            "name in a spec": named_in_a_spec("model", option, table, model={"architecture": "convnet"}),
            "mention in docs/spec.md": row("spec.md", "model", option),
        },
    )


def activation_contract():
    return option_contract("activation", zoo.ACTIVATIONS, lambda name: zoo.ACTIVATIONS[name](4))


def pooling_contract():
    return option_contract("pooling", zoo.POOLINGS, lambda name: zoo.POOLINGS[name](2))


def scheduler_contract():
    names = plugins.built_in_schedulers()
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests/sweeper/schedulers").glob("test_*.py"))
    return Contract(
        "scheduler",
        names,
        {
            "class that bears the name of its module": {name for name in names if named_as_its_module(name)},
            "test in tests/sweeper/schedulers": {name for name in names if re.search(rf"\b{name}\b", tests)},
            "name in a spec": {n for n in names if a_spec(search={"scheduler": n}).search.scheduler == n},
            "name in the row `scheduler` of docs/spec.md": row("spec.md", "search", "scheduler"),
        },
    )


def named_as_its_module(name):
    try:
        return find_scheduler(name).__name__.lower() == name.replace("-", "")
    except (ImportError, TypeError):
        return False


CONTRACTS = {
    "layer": layer_contract,
    "loss": loss_contract,
    "constraint": constraint_contract,
    "method": method_contract,
    "architecture": architecture_contract,
    "activation": activation_contract,
    "pooling": pooling_contract,
    "scheduler": scheduler_contract,
}


@pytest.mark.parametrize("kind", CONTRACTS)
def test_everything_exported_has_a_rule_an_adversarial_test_a_spec_entry_and_documentation(kind):
    contract = CONTRACTS[kind]()
    assert len(contract.exported) > 0
    gaps = contract.gaps()
    assert not gaps, "\n".join(gaps)


def test_layers_for_the_library_alone_are_in_no_network_of_a_spec_and_the_documentation_says_so():
    assert LIBRARY_ONLY.isdisjoint(reached_layers())
    (line,) = re.findall(
        r"^.*are for networks of one's own.*$", chapter("mathematics.md", "Bounds"), flags=re.MULTILINE
    )
    assert quoted(line) == LIBRARY_ONLY


@pytest.mark.parametrize("kind", CONTRACTS)
def test_a_name_that_lacks_one_thing_is_told_so(kind):
    contract = CONTRACTS[kind]()
    named = replace(contract, exported=["dummy"])
    assert named.gaps() == [f"{kind} dummy has no {need}" for need in contract.needs]
    assert len(contract.needs) >= 4
    for missing in contract.needs:
        given = {
            need: {*having, "dummy"} - ({"dummy"} if need == missing else set())
            for need, having in contract.needs.items()
        }
        assert replace(named, needs=given).gaps() == [f"{kind} dummy has no {missing}"]


class Dummy(layers.Dense):  # type: ignore[misc]
    """A layer, exported and nothing else."""


class DummyLoss:
    """A loss, exported and nothing else."""

    def output_size(self, classes):
        return classes


class DummyConstraint:
    """A constraint that projects and nothing else."""


def test_a_layer_that_is_exported_and_nothing_else_lacks_everything(monkeypatch):
    before = layer_contract().gaps()
    every = {**layers.every_layer(), "Dummy": Dummy}
    monkeypatch.setattr(layers, "every_layer", lambda: every)
    contract = layer_contract()
    assert contract.gaps() == [*before, *(f"layer Dummy has no {need}" for need in contract.needs)]


@pytest.mark.long
def test_a_layer_whose_adversarial_test_is_gone_is_noticed(monkeypatch):
    """A case that the test is not parametrised over does not count, nor does a test without parameters."""
    module, before = loaded("bounds/test_layers.py"), set(layer_contract().gaps())
    test = module.test_no_search_exceeds_a_bound_and_tight_ones_are_attained
    monkeypatch.setattr(test, "pytestmark", [pytest.mark.parametrize("case", set(module.CASES) - {"tanh"}).mark])
    assert set(layer_contract().gaps()) - before == {"layer Tanh has no adversarial test"}
    monkeypatch.delattr(module, "test_no_search_exceeds_a_bound_and_tight_ones_are_attained")
    assert {f"layer {name} has no adversarial test" for name in layers.every_layer()} <= set(layer_contract().gaps())


@pytest.mark.long
def test_a_layer_whose_planted_faults_are_gone_is_noticed(monkeypatch):
    """A fault counts for the layers whose rule it changes, itself or by a function that it calls."""
    assert {"Tanh", "Sigmoid", "Conv2d", "Residual"} <= rules_with_a_fault()
    before, listed = set(layer_contract().gaps()), tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]
    left = {"fault": [fault for fault in listed if "Tanh" not in rule_names(fault)]}
    monkeypatch.setattr(tomllib, "loads", lambda _: left)
    lost = "layer Tanh has no planted fault of its bound rule in tests/mutations/faults.toml"
    assert set(layer_contract().gaps()) - before == {lost}


def test_a_scheduler_that_is_a_module_and_nothing_else_lacks_everything_but_a_name_in_a_spec(monkeypatch):
    before, every = set(scheduler_contract().gaps()), (*plugins.built_in_schedulers(), "dummy")
    for module in ("sweeper.specification.plugins", "sweeper.specification.search", "sweeper.schedulers"):
        monkeypatch.setattr(f"{module}.built_in_schedulers", lambda: every)
    contract = scheduler_contract()
    lacking = {f"scheduler dummy has no {need}" for need in contract.needs if need != "name in a spec"}
    assert set(contract.gaps()) - before == lacking


def test_a_loss_that_is_exported_and_nothing_else_lacks_everything(monkeypatch):
    monkeypatch.setattr(losses, "__all__", [*losses.__all__, "DummyLoss"])
    monkeypatch.setattr(losses, "DummyLoss", DummyLoss, raising=False)
    contract = loss_contract()
    assert contract.gaps() == [f"loss DummyLoss has no {need}" for need in contract.needs]


def test_a_loss_without_its_constant_is_noticed(monkeypatch):
    monkeypatch.delitem(_rules._RULES, losses.KCosine)
    assert loss_contract().gaps() == ["loss KCosine has no Lipschitz constant"]


@pytest.mark.parametrize("page", ["spec.md", "mathematics.md"])
def test_documentation_that_loses_a_loss_is_noticed(page, monkeypatch, tmp_path):
    for name in ("spec.md", "mathematics.md"):
        text = (DOCS / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("| `k-cosine`", "|") if name == page else text, encoding="utf-8")
    monkeypatch.setitem(globals(), "DOCS", tmp_path)
    (gap,) = loss_contract().gaps()
    assert gap.startswith("loss KCosine has no ")
    assert gap.endswith(f"docs/{page}")


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        ("constraint", (projections, "CONSTRAINTS", DummyConstraint)),
        ("architecture", (zoo, "ARCHITECTURES", lambda *_, **__: None)),
        ("activation", (zoo, "ACTIVATIONS", lambda _: DummyLoss())),
        ("pooling", (zoo, "POOLINGS", lambda _: DummyLoss())),
    ],
)
def test_an_entry_of_a_table_and_nothing_else_lacks_everything(kind, table, monkeypatch):
    module, name, entry = table
    monkeypatch.setattr(module, name, {**getattr(module, name), "dummy": entry})
    contract = CONTRACTS[kind]()
    lacking = [
        need for need in contract.needs if not (kind in ("activation", "pooling") and need == "adversarial test")
    ]
    assert set(contract.gaps()) >= {f"{kind} dummy has no {need}" for need in lacking}
