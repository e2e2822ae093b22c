"""Schedulers as an extension point: one module, or one entry point, is one scheduler."""

import sys
from types import SimpleNamespace

import pytest

import sweeper.schedulers
from sweeper.errors import SpecError
from sweeper.records import Objective, Point
from sweeper.schedulers import Decision, Scheduler, find_scheduler, make_scheduler
from sweeper.specification import plugins
from sweeper.specification.plugins import SCHEDULERS, built_in_schedulers
from sweeper.specification.search import SchedulerName, SearchSettings
from sweeper.specification.spec import Spec
from tests.factories import install_plugins

OWN = " or ".join(["none", *built_in_schedulers()])
AXES = tuple(Objective.named(name) for name in ("epsilon", "accuracy"))
MODULE = '''
from sweeper.schedulers._base import Decision, Scheduler

class Impatient(Scheduler):
    """Ends every trial after its epochs of grace."""

    def decide(self, progress, point, row):
        if point.epoch < self.grace:
            return None
        return Decision(trial=point.trial, epoch=point.epoch, goes_on=False, reason="enough: ends")
'''


class Patient(Scheduler):
    """Ends nothing."""

    def decide(self, *_):
        return None


class Vague(Scheduler):
    """Says yes where a decision is wanted."""

    def decide(self, *_):
        return True


def judged(made, epochs=3):
    made.begin("t1", [1.0] * 9)
    values = {"epsilon": 1.0, "accuracy": 0.5}
    return [made.judge(Point(trial="t1", epoch=epoch, values=values)) for epoch in range(1, epochs + 1)]


@pytest.mark.parametrize("name", built_in_schedulers())
def test_every_module_holds_one_scheduler_under_its_name(name):
    made = make_scheduler(SearchSettings(scheduler=name), AXES)
    kind = type(made).__name__
    assert kind.lower() == name.replace("-", ""), f"Expected a class named like its module {name}, got {kind}"
    assert isinstance(made, Scheduler), f"Expected a subclass of Scheduler, got {kind}"
    decided = judged(made)
    wrong = [one for one in decided if one is not None and not isinstance(one, Decision)]
    assert not wrong, f"Expected Decisions or None from {kind}, got {wrong}"


def test_the_schedulers_of_the_package():
    assert {"asha", "hyperband"} <= set(built_in_schedulers())
    assert SchedulerName().json_schema()["enum"] == ["none", *built_in_schedulers()]
    assert make_scheduler(SearchSettings(), AXES) is None


def test_a_new_module_is_a_new_scheduler(tmp_path, monkeypatch, content):
    """It is named in a spec, read from it, and decides; nothing else is written."""
    folder = tmp_path / "schedulers"
    folder.mkdir()
    (folder / "very_impatient.py").write_text(MODULE, encoding="utf-8")
    (folder / "_shared.py").write_text("", encoding="utf-8")
    (tmp_path / "spec").mkdir()
    monkeypatch.setattr(plugins, "__file__", str(tmp_path / "spec" / "plugins.py"))
    monkeypatch.setattr(sweeper.schedulers, "__path__", [str(folder)])
    monkeypatch.delitem(sys.modules, "sweeper.schedulers.very_impatient", raising=False)
    spec = Spec.from_mapping(content | {"search": {"scheduler": "very-impatient", "grace": 2}})
    assert spec.to_plain()["search"]["scheduler"] == "very-impatient"
    decided = judged(make_scheduler(spec.search, AXES))
    assert [one is None or one.goes_on for one in decided] == [True, False, False]
    with pytest.raises(SpecError, match="Expected scheduler none or very-impatient, got scheduler='asha'"):
        Spec.from_mapping(content | {"search": {"scheduler": "asha"}})


@pytest.mark.parametrize(
    ("content", "got"), [("", "none"), (f"{MODULE}\n\nclass Other(Impatient):\n    pass\n", "Impatient, Other")]
)
def test_a_module_without_exactly_one_scheduler_is_refused_by_name(tmp_path, monkeypatch, content, got):
    (tmp_path / "asha.py").write_text(content, encoding="utf-8")
    monkeypatch.setattr(sweeper.schedulers, "__path__", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "sweeper.schedulers.asha", raising=False)
    with pytest.raises(TypeError, match=rf"one subclass of Scheduler in sweeper\.schedulers\.asha, got {got}$"):
        find_scheduler("asha")


@pytest.fixture
def install(monkeypatch):
    """Install schedulers: (name, value); value ``things:attribute`` is one of those here."""
    monkeypatch.setitem(sys.modules, "things", SimpleNamespace(Patient=Patient, Vague=Vague, function=judged))
    return lambda *entries: install_plugins(monkeypatch, *((*entry, SCHEDULERS) for entry in entries))


def test_a_spec_names_a_scheduler_of_a_plug_in(install, content):
    install(("patient", "things:Patient"))
    spec = Spec.from_mapping(content | {"search": {"scheduler": "patient", "eta": 5}})
    made = make_scheduler(spec.search, AXES)
    assert (type(made), made.eta) == (Patient, 5)
    assert judged(made) == [None] * 3
    assert SchedulerName().json_schema()["enum"] == ["none", *built_in_schedulers(), "patient"]
    assert find_scheduler("asha").__name__ == "Asha"


def test_nothing_is_imported_to_know_a_name(install, content):
    install(("away", "no_such_module:away"))
    spec = Spec.from_mapping(content | {"search": {"scheduler": "away"}})
    with pytest.raises(SpecError, match=r"a plug-in that can be imported \(no_such_module:away: "):
        make_scheduler(spec.search, AXES)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("patent", f"Expected scheduler {OWN}, or a plug-in, got .*did you mean 'patient'"),
        (3, f"Expected scheduler {OWN}, got scheduler=3"),
        ("twice", "Expected one scheduler 'twice', got scheduler='twice' .* uninstall all but one"),
    ],
)
def test_what_is_no_installed_scheduler_is_refused(install, content, name, said):
    install(("patient", "things:Patient"), ("twice", "things:Patient"), ("twice", "more:Patient"))
    with pytest.raises(SpecError, match=said):
        Spec.from_mapping(content | {"search": {"scheduler": name}})


def test_a_plug_in_takes_no_name_of_the_package(install):
    install(("asha", "things:Patient"))
    assert find_scheduler("asha").__module__ == "sweeper.schedulers.asha"
    with pytest.raises(SpecError, match="under a name of its own"):
        plugins.check_scheduler("asha")


@pytest.mark.parametrize("attribute", ["function", "Decision"])
def test_a_plug_in_that_is_no_scheduler_is_refused(install, monkeypatch, attribute):
    install(("mine", f"things:{attribute}"))
    monkeypatch.setattr(sys.modules["things"], "Decision", Decision, raising=False)
    with pytest.raises(SpecError, match=r"Expected a subclass of sweeper\.schedulers\.Scheduler from the plug-in mine"):
        find_scheduler("mine")


def test_a_plug_in_that_decides_nothing_understandable_is_refused(install):
    install(("vague", "things:Vague"))
    made = make_scheduler(SearchSettings(scheduler="vague"), AXES)
    with pytest.raises(SpecError, match="Expected a Decision or None from the scheduler Vague, got True; correct"):
        judged(made)


def test_private_selection_refuses_a_scheduler_of_a_plug_in(install, content):
    install(("patient", "things:Patient"))
    search = {"selection": "private", "sampler": "random", "scheduler": "patient"}
    with pytest.raises(SpecError, match="Expected scheduler none under selection: private"):
        Spec.from_mapping(content | {"search": search})
