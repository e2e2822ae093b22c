"""The page on Python and notebooks, run from top to bottom like one notebook."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import torch
import yaml

import clipless
from sweeper.specification import plugins
from sweeper.specification.data import DataSettings
from sweeper.specification.spec import Spec

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "python.md"


def cells(page=PAGE):
    return cells_of(page.read_text(encoding="utf-8"))


def cells_of(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def run(cell, names):
    """Run a cell as a notebook does, and return the value of its last line if that is an expression."""
    body = ast.parse(cell)
    last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
    exec(compile(body, str(PAGE), "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), str(PAGE), "eval"), names)


@pytest.mark.long
@pytest.mark.slow
def test_every_cell_runs_and_shows_what_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugins, "_declared", {})
    names, shown = {"__name__": "__main__"}, []
    for cell in cells():
        shown.append(run(cell, names))
    checked, sweep, trials, tail, figure, picked, listed, predictions, voted, final, *_ = [
        one for one in shown if one is not None
    ]
    assert repr(checked).startswith("notebook: valid. digits, N = ")
    assert list(trials["trial"]) == ["t0001", "t0002"]
    front = names["front"]
    assert f"notebook: {len(front.on_front)} of {len(front.points)} points" in sweep._repr_html_()
    assert len(tail) >= 1
    assert figure.layout.width == 700
    assert "; price " in picked._repr_html_()
    assert (listed["status"].tolist(), listed["trials"].tolist()) == (["completed"], [2])
    assert list(predictions["class"]) == [
        max(range(10), key=lambda k: row[f"score {k}"]).__str__() for _, row in predictions.iterrows()
    ]
    assert predictions[[f"probability {k}" for k in range(10)]].sum(axis=1).tolist() == pytest.approx([1.0] * 5)
    assert list(voted.columns[:3]) == ["class", "abstained", "smoothed_radius"]
    assert re.search(r"epsilon [23]\.\d+, accuracy 0\.\d+, certified 0\.\d+", capsys.readouterr().out)
    assert names["last"].epsilon <= 3.0
    assert set(names["balanced"]) == {point.label for point in front.front_points}
    assert final.stage == 2
    assert final.price.epsilon <= 3.0
    assert final.configuration == names["best"].configuration
    assert names["session"].left == 0
    assert names["patients"].metadata.classes == ("no", "yes")
    assert (tmp_path / "picked" / "card.md").is_file()
    assert (tmp_path / "sweeps-out" / "mlflow.db").is_file()


def test_data_are_loaded_in_python_as_a_spec_names_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = PAGE.read_text(encoding="utf-8").partition("\n## A data set of your own\n")[2].partition("\n## ")[0]
    names = {"clipless": clipless, "Path": Path}
    for cell in cells_of(section):
        run(cell, names)
    specs = re.findall(r"`data: (\{.*\})`", section)
    for loaded, written in zip((names["patients"], names["centred"]), specs, strict=True):
        content = {"name": "x", "data": yaml.safe_load(written), "privacy": {"sweep_epsilon": 3, "delta": 1e-5}}
        of_spec = clipless.datasets.load(**Spec.from_mapping(content).data_options())
        assert torch.equal(loaded.train.x, of_spec.train.x)
        assert torch.equal(loaded.test.y, of_spec.test.y)
    keywords = set(inspect.signature(clipless.datasets.load).parameters) - {"source"}
    keys = set(DataSettings.model_fields) - {"name", "path"}
    assert [name for name in sorted(keywords | keys) if not re.search(rf"`{name}[`=]", section)] == []
    assert {"colour", "centre", "normalise"} == keys - keywords
    public = {name: getattr(clipless.datasets, name) for name in clipless.datasets.__all__}
    for call in re.findall(r"`(?:preparation|splits|features)=(.*?)`", section):
        assert eval(call, public) is not None


@pytest.mark.long
@pytest.mark.slow
def test_the_lines_of_the_readme_run_as_they_stand(tmp_path, monkeypatch, capsys):
    (tmp_path / "sweeps").symlink_to(ROOT / "sweeps")
    monkeypatch.chdir(tmp_path)
    (cell,) = cells(ROOT / "README.md")
    run(cell, {})
    assert "certified@0.25" in capsys.readouterr().out
    assert (tmp_path / "picked" / "card.md").is_file()
