"""One front per architecture, and what mattered."""

from dataclasses import replace

import pytest

from dashboards import data
from dashboards.figures import is_empty
from dashboards.figures.hyperparameters import importances
from dashboards.figures.sweep import architectures
from sweeper.results.importance import FRONT


def test_each_kind_has_the_best_of_its_own_trials(sweep):
    info = architectures.info(sweep)
    assert info.setting == "model.architecture"
    assert {kind.name for kind in info.kinds} == {"mlp", "patch-net"}
    for kind in info.kinds:
        ids = {id_ for id_, settings in sweep.settings.items() if settings["model.architecture"] == kind.name}
        assert kind.trials == len(ids)
        for step in kind.steps[::5]:
            within = [p.values["accuracy"] for p in sweep.points if p.trial in ids]
            own = [p for p in sweep.points if p.trial in ids and p.values["epsilon"] <= step.epsilon]
            assert step.value == max(p.values["accuracy"] for p in own) <= max(within)


def test_kinds_can_be_told_apart_by_another_setting_and_differ_in_mark_and_colour(sweep):
    info = architectures.info(sweep)
    lines, crosses = architectures.plot(info).data[:2], architectures.plot(info).data[2:-1]
    assert len({trace.marker.symbol for trace in lines}) == len({t.line.color for t in lines}) == 2
    assert all(f"({kind.trials} trials)" in t.name for kind, t in zip(info.kinds, lines, strict=True))
    tested = [kind for kind in info.kinds if kind.tested]
    assert [trace.y[0] for trace in crosses] == [kind.tested[0].value for kind in tested]
    assert {trace.marker.color for trace in crosses} <= {line.line.color for line in lines}
    assert {row["rows"] for row in architectures.rows(info)} == {"validation", "test"}
    info = architectures.info(sweep, by="model.width")
    assert {kind.name for kind in info.kinds} == {"64", "128", "256"}


def test_where_the_architecture_is_the_same_the_method_tells_kinds_apart_and_then_the_loss(with_configs):
    base = {"model": {"architecture": "mlp"}, "training": {"method": "clipless", "loss": {"name": "hkr"}}}
    dp = {**base, "training": {"method": "dp-sgd", "loss": {"name": "hkr"}}}
    cce = {**base, "training": {"method": "clipless", "loss": {"name": "tau-cce"}}}
    assert architectures.info(with_configs(base, dp)).setting == "training.method"
    assert [kind.name for kind in architectures.info(with_configs(base, cce)).kinds] == ["hkr", "tau-cce"]
    assert architectures.info(with_configs(base, base)).kinds == ()


def test_kinds_beyond_the_colours_go_together(with_configs):
    configs = [{"model": {"architecture": f"net-{i}"}} for i in range(9)]
    info = architectures.info(with_configs(*configs, configs[0]))
    assert [kind.name for kind in info.kinds] == ["net-0", "net-1", "net-2", "net-3", "net-4", "others"]
    assert sum(kind.trials for kind in info.kinds) == 10


def test_what_matters_most_stands_first_and_every_panel_has_every_parameter(sweep):
    info = importances.info(sweep)
    assert [importance.target for importance in info.importances] == ["epsilon", "accuracy", "certified@0.25", FRONT]
    (accuracy,) = (one for one in info.importances if one.target == "accuracy")
    losses = [accuracy.losses[name] for name in info.parameters]
    assert losses == sorted(losses, reverse=True)
    figure = importances.plot(info)
    assert [len(bars.x) for bars in figure.data] == [len(info.parameters)] * 4
    assert "privacy.epsilon" in figure.data[0].y  # not to be taken for the objective


def test_a_result_that_is_not_explained_has_no_panel_and_is_named(sweep):
    info = importances.info(sweep)
    first, *others = info.importances
    info = replace(info, importances=(replace(first, explained=-0.2), *(replace(o, explained=0.9) for o in others)))
    figure = importances.plot(info)
    assert len(figure.data) == 3
    assert importances.rows(info)[0]["target"] == first.target
    assert "R² 0.90" in figure.layout.annotations[0].text
    said = figure.layout.annotations[3].text.replace("<br>", " ")
    assert said.endswith("Not explained by the configurations: own epsilon.")


def test_bars_are_called_what_they_are_and_panels_of_a_column_are_of_one_size(sweep):
    info = importances.info(sweep)
    words = [note.text.replace("<br>", " ") for note in importances.plot(info).layout.annotations]
    assert any(text.startswith("Permutation importance: R² lost when values are shuffled") for text in words)
    assert {"r_squared", "permutation_importance"} <= importances.rows(info)[0].keys()
    three = replace(info, importances=info.importances[:3], narrow=True)
    drawn = list(importances.plot(three).select_xaxes())
    assert [axis.domain[1] - axis.domain[0] for axis in drawn] == pytest.approx([drawn[0].domain[1]] * 3)
    assert len({axis.range for axis in drawn}) == 1, "bars of all panels compare"
    one = replace(info, importances=info.importances[:1], narrow=True)
    assert importances.plot(one).layout.xaxis.domain == (0.0, 1.0)


def test_few_trials_say_so(with_configs):
    figure = importances.plot(importances.info(with_configs({"a": 1}, {"a": 2})))
    assert [a.text for a in figure.layout.annotations] == ["fewer than 8 trials"]
    many = replace(importances.info(with_configs(*({"a": i} for i in range(9)))), importances=())
    assert [a.text for a in importances.plot(many).layout.annotations] == ["9 trials say nothing of it"]
    assert len(figure.data) == 0


def test_importances_that_explain_nothing_are_not_drawn(sweep, monkeypatch):
    unexplained = tuple(replace(one, explained=0.05) for one in importances.info(sweep).importances)
    monkeypatch.setattr(data, "importances", lambda *_, **__: unexplained)
    sweep = replace(sweep)
    assert is_empty(importances.FIGURE.draw(sweep))
    assert importances.FIGURE.numbers(sweep) == []
