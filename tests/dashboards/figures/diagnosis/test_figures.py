"""Figures and page of a diagnosis, from numbers made up here."""

import json
import re
import subprocess
from math import cos, inf, nan, radians

import pytest

from clipless.diagnostics import (
    ClippedParameter,
    ClippingBias,
    Diagnostics,
    Histogram,
    InputNorms,
    LayerDiagnosis,
    Norms,
    ParameterDiagnosis,
)
from clipless.plans.method import Method
from dashboards.commands import export_diagnostics
from dashboards.export.pictures import find_browser
from dashboards.figures import DARK, LIGHT, as_json, diagnosis_figures, exchange, is_empty, plotly_js
from dashboards.figures._common import WATERMARK
from dashboards.figures.diagnosis import clipping, clipping_parameters, gradients, inputs, noise, tightness
from dashboards.pages.diagnostics import build_page
from sweeper.errors import RecordError
from sweeper.results.models.diagnosis import DiagnosedEpoch, Diagnosis

FIGURES = diagnosis_figures()

EVIL = "</script><img src=x onerror=alert(1)>"


def norms(largest):
    return Norms(
        largest=largest,
        median=largest / 2,
        histogram=Histogram((largest / 4, largest / 2, largest), (30, 60), below=10),
    )


def parameter(name, largest, **changes):
    values = {"size": 100, "worst_case": 4.0, "sensitivity": 1.0, "acted": 0.25, "signal": 5.0, "noise_std": 2.0}
    values |= {"own": norms(largest), "guard_bound": norms(1.5 * largest)}
    return ParameterDiagnosis(name=name, **values | changes)


def layer(name, bound, largest, cotangent=0.5):
    values = {"activation_bound": bound, "activation_largest": largest, "cotangent_largest": cotangent}
    return LayerDiagnosis(name=name, kind="Dense", cotangent_bound=2.0, **values)


def bias(method, level, noise_norm, angle, *, in_use=False):
    cosine = cos(radians(angle))
    parameters = tuple(ClippedParameter(name=n, cosine=c, acted=a) for n, c, a in (("a", cosine, 0.5), ("b", nan, 0.0)))
    values = {"acted": 0.5, "cosine": cosine, "kept": 0.9, "parameters": parameters}
    return ClippingBias(method=method, level=level, in_use=in_use, noise_norm=noise_norm, **values)


def look(scale=1.0, **changes):
    values = {
        "rows": 100,
        "left_out": 0,
        "parameters": (parameter("a", 2.0 * scale), parameter("b", 1.0 * scale, signal=0.0)),
        "layers": (layer("layers.0", None, 3.0, None), layer("layers.1", 2.0, 1.0 * scale)),
        "noise_to_gradient": 8.0,
        "clipping": (
            bias(Method.CLIPLESS, 1.0, 10.0, 0.0),
            bias(Method.CLIPLESS, 0.1, 1.0, 60.0, in_use=True),
            bias(Method.DP_SGD, 3.0, 10.0, 10.0),
            bias(Method.DP_SGD, 0.3, 1.0, 90.0),
        ),
    }
    return Diagnostics(**values | changes)


def diagnosis(**changes):
    values = {"sweep": "digits", "trial": "t0007", "epoch": 30, "values": {"epsilon": 2.981, "accuracy": 0.91}}
    values |= {"delta": 1e-4, "exploratory": False, "data": "digits", "method": Method.CLIPLESS, "loss": "tau-cce"}
    values |= {"batch_size": 256.0, "noise_multiplier": 2.0, "epochs": 30, "input_radius": 4.0}
    inputs_ = (("as trained", 8.0, 6.0), ("gray", 5.0, 3.0))
    values["inputs"] = tuple(InputNorms(space=name, bound=bound, norms=norms(top)) for name, bound, top in inputs_)
    looks = ((0, look()), (30, look(0.5)))
    values["snapshots"] = tuple(DiagnosedEpoch(epoch=epoch, diagnostics=seen) for epoch, seen in looks)
    return Diagnosis(**values | changes)


def once(**changes):
    """A diagnosis whose two looks are the same changed one."""
    seen = look(**changes)
    return diagnosis(snapshots=(DiagnosedEpoch(epoch=0, diagnostics=seen), DiagnosedEpoch(epoch=30, diagnostics=seen)))


def test_tightness_is_the_share_of_each_bound_at_both_moments():
    forward, backward, gradients = tightness.info(diagnosis()).families
    assert forward.names == ("layers.1 Dense",)  # the other has no bound
    assert [(r.moment, r.values) for r in forward.reached] == [("initial weights", (0.5,)), ("epoch 30", (0.25,))]
    assert backward.names == ("layers.1 Dense",)
    assert gradients.names == ("a", "b")
    assert [r.values for r in gradients.reached] == [(0.5, 0.25), (0.25, 0.125)]


def test_without_any_bound_there_is_no_tightness_to_draw():
    seen = once(parameters=(parameter("a", 1.0, worst_case=None),), layers=(layer("layers.0", None, 3.0, None),))
    assert tightness.info(seen).families == ()
    assert is_empty(FIGURES["tightness"].draw(seen, LIGHT))


def test_a_gradient_panel_has_both_moments_the_guard_and_its_lines():
    info = gradients.info(diagnosis())
    first, second = info.panels
    assert [curve.name for curve in first.curves] == ["epoch 30", "initial weights", "epoch 30, as the guard sees it"]
    assert [curve.edges[-1] for curve in first.curves] == [1.0, 2.0, 1.5]
    assert first.curves[0].shares == (0.3, 0.6)  # of all rows, the ten below the first edge among them
    assert [(mark.name, mark.value) for mark in first.marks] == [("clips at", 1.0), ("worst case", 4.0)]
    assert "25 % of rows are scaled" in second.title


def test_a_parameter_without_any_gradient_has_lines_alone():
    silent = Norms(largest=0.0, median=0.0, histogram=Histogram((), (), below=100))
    seen = once(parameters=(parameter("a", 1.0, own=silent, guard_bound=silent),))
    (panel,) = gradients.info(seen).panels
    assert panel.curves == ()
    assert len(gradients.plot(gradients.info(seen)).data) == 2


def test_input_panels_have_a_bound_each_and_the_ball_once():
    first, second = inputs.info(diagnosis()).panels
    assert [(mark.name, mark.value) for mark in first.marks] == [("declared bound", 8.0), ("input ball", 4.0)]
    assert [(mark.name, mark.value) for mark in second.marks] == [("declared bound", 5.0)]
    assert second.title == "gray: median 1.5, largest 3"


def test_noise_is_shown_for_each_parameter_and_for_all_or_not_at_all():
    info = noise.info(diagnosis())
    assert info.names == ("a", "b", noise.WHOLE)
    assert info.ratios[0].values == (4.0, inf, 8.0)
    figure = noise.plot(info)
    assert list(figure.data[0].x) == [4.0, None, 8.0]
    seen = once(parameters=(parameter("a", 1.0, noise_std=0.0),), noise_to_gradient=0.0, clipping=())
    assert noise.info(seen).ratios == ()
    assert is_empty(FIGURES["noise"].draw(seen, LIGHT))
    assert is_empty(FIGURES["clipping"].draw(seen, LIGHT))
    assert is_empty(FIGURES["clipping-parameters"].draw(seen, LIGHT))


def test_clipping_lines_go_from_little_noise_to_much_at_angles_in_degrees():
    info = clipping.info(diagnosis())
    (_, lines), _ = info.panels
    assert [line.name for line in lines] == [
        "guard (clipless), initial weights",
        "flat clipping (dp-sgd), initial weights",
        "guard (clipless), epoch 30",
        "flat clipping (dp-sgd), epoch 30",
    ]
    guard = lines[0].settings
    assert [setting.noise for setting in guard] == [0.1, 1.0]
    assert [setting.angle for setting in guard] == pytest.approx([60.0, 0.0])
    assert [setting.in_use for setting in guard] == [True, False]
    assert [setting.level for setting in lines[1].settings] == ["clip norm 0.3", "clip norm 3"]


def test_an_angle_that_is_not_defined_is_not_drawn():
    guard, flat = clipping_parameters.info(diagnosis()).panels
    assert "guard (clipless), epoch 30" in guard[0]
    assert "flat clipping" in flat[0]
    assert [line.name for line in guard[1]] == ["a", "b"]
    drawn = clipping.plot(clipping_parameters.info(diagnosis())).data
    assert list(drawn[1].y) == [None, None]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_uses_colours_of_its_theme_only(name):
    for theme, other in ((LIGHT, DARK), (DARK, LIGHT)):
        text = json.dumps(as_json(FIGURES[name].draw(diagnosis(), theme)))
        used = set(re.findall(r"#[0-9a-f]{6}\b", text))
        assert used <= set(exchange(theme, other))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FIGURES)
def test_an_exploratory_diagnosis_is_watermarked(name):
    texts = [note.text for note in FIGURES[name].draw(diagnosis(exploratory=True), LIGHT).layout.annotations]
    assert WATERMARK in texts
    assert WATERMARK not in [n.text for n in FIGURES[name].draw(diagnosis(), LIGHT).layout.annotations]


@pytest.mark.long
def test_a_legend_names_everything_once():
    for kind in FIGURES.values():
        shown = [trace.name for trace in kind.draw(diagnosis(), LIGHT).data if trace.showlegend is not False]
        assert len(shown) == len(set(shown)) > 0


def test_the_page_has_every_figure_the_terms_and_the_numbers():
    page = build_page(diagnosis())
    own = page.replace(plotly_js(), "")
    for name in FIGURES:
        assert f'id="plot-{name}"' in own
    for words in ("t0007, epoch 30", "2.981", "delta = 1e-4", "clipless", "100 of digits", "91.0 %", "validation"):
        assert words in own
    assert not re.search(r"https?:|//cdn|@import|url\(", own)
    assert "default-src &#x27;none&#x27;" in own
    assert own.count("<tr>") == 1 + 2
    assert "Exploratory" not in own
    assert "Exploratory: no guarantee." in build_page(diagnosis(exploratory=True))


@pytest.mark.long
def test_the_page_counts_rows_that_were_left_out_and_shows_names_as_text():
    assert "3 left out: not finite" in build_page(once(left_out=3))
    page = build_page(diagnosis(sweep=EVIL, data=EVIL, loss=EVIL, trial=EVIL)).replace(plotly_js(), "")
    assert "<img" not in page
    assert page.count("<script") == build_page(diagnosis()).replace(plotly_js(), "").count("<script")


@pytest.mark.long
def test_the_exporter_reads_what_was_written(tmp_path):
    found = diagnosis(values={"epsilon": inf, "accuracy": nan})
    record = found.write(tmp_path / "deep" / "diagnostics.json")
    path = export_diagnostics(record, tmp_path / "page.html")
    assert "t0007, epoch 30" in path.read_text(encoding="utf-8")
    with pytest.raises(RecordError, match=r"nothing\.json"):
        export_diagnostics(tmp_path / "nothing.json", tmp_path / "other.html")
    assert not (tmp_path / "other.html").exists()


@pytest.mark.long
def test_a_network_of_many_layers_still_has_room_for_its_panels():
    many = tuple(parameter(f"layers.{i}.weight", 1.0) for i in range(40))
    seen = once(parameters=many, clipping=())
    assert len(gradients.plot(gradients.info(seen)).data) == 40 * 5
    assert noise.plot(noise.info(seen)).layout.height > 1000


DRAWN = """<script>
const drawn = [...document.querySelectorAll(".plot")].filter((plot) => plot.querySelector(".main-svg")).map((plot) => plot.id);
document.body.innerHTML = "";
document.body.append(JSON.stringify({drawn}));
</script>"""


@pytest.mark.chromium
@pytest.mark.long
def test_in_a_browser_every_figure_is_drawn(tmp_path):
    path = tmp_path / "diagnostics.html"
    path.write_text(build_page(diagnosis()).replace("</html>", f"{DRAWN}</html>"), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"]
    options += ["--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [str(find_browser()), *options, path.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    seen = json.loads(re.search(r'\{"drawn".*?\}', dom).group(0))
    assert set(seen["drawn"]) == {f"plot-{name}" for name in FIGURES}
