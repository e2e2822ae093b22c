"""Progress and results in a real notebook's kernel."""

import os

import pytest
from jupyter_client.manager import start_new_kernel

PROGRESS = """
from sweeper.driver.reporting.progress import NotebookDisplay, SweepProgress

with NotebookDisplay() as display:
    display.tell("digits: it will cost epsilon 3.")
    for done in range(5):
        display.update(SweepProgress(name="digits", total=4, done=done))
"""
SWEEP = """
import sweeper
from pathlib import Path

sweeper.run(
    {
        "name": "notebook",
        "data": {"name": "digits"},
        "model": {"architecture": "mlp", "width": 16},
        "training": {"epochs": 2, "batch_size": 256},
        "privacy": {"epsilon": 3, "delta": 1e-4},
    },
    sweeper.Options(out=Path("sweeps")),
)
"""

FIGURE = """
import sys

sys.modules["nbformat"] = None  # as in a kernel that a server elsewhere has started
from dashboards.figures import NotebookFigure

NotebookFigure(data=[{"type": "scatter", "y": [1, 2]}], layout={"title": {"text": "Two points"}})
"""


@pytest.fixture(scope="module")
def execute(tmp_path_factory):
    """Return a function that runs a cell and returns what it left below itself, and what replaced that, in order."""
    manager, client = start_new_kernel(cwd=str(tmp_path_factory.mktemp("notebook")), env=dict(os.environ))

    def run(code):
        outputs, updates = [], []

        def hear(message):
            kind, content = message["msg_type"], message["content"]
            if kind == "update_display_data":
                updates.append(content["data"])
            elif kind in ("display_data", "execute_result", "stream", "error"):
                outputs.append((kind, content.get("data", content)))

        answer = client.execute_interactive(code, output_hook=hear, timeout=300)
        assert answer["content"]["status"] == "ok", outputs
        return outputs, updates

    yield run
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.slow
def test_progress_stays_in_one_output(execute):
    outputs, updates = execute(PROGRESS)
    assert [kind for kind, _ in outputs] == ["display_data"]
    assert len(updates) == 6
    for shown in updates[-1].values():
        assert "it will cost epsilon 3." in shown
        assert "4 of 4 trials done" in shown


@pytest.mark.long
@pytest.mark.slow
def test_a_figure_shows_itself_without_nbformat_and_without_a_network(execute):
    ((kind, shown),), _ = execute(FIGURE)
    assert kind == "execute_result"
    assert shown["text/plain"] == "Two points"
    assert "plotly.js v" in shown["text/html"]
    assert 'src="https://cdn' not in shown["text/html"]
    assert shown["application/vnd.plotly.v1+json"]["data"][0]["y"] == [1, 2]


@pytest.mark.long
@pytest.mark.slow
def test_a_sweep_leaves_its_progress_and_itself(execute):
    outputs, updates = execute(SWEEP)
    assert [kind for kind, _ in outputs] == ["display_data", "execute_result"]
    assert "t0001" in updates[-1]["text/plain"]
    assert outputs[1][1]["text/plain"].startswith("completed, in sweeps/notebook-")
    assert "what pick takes" in outputs[1][1]["text/html"]
