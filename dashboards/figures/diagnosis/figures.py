"""Every figure of a diagnosis."""

from collections.abc import Callable, Mapping

from plotly.graph_objects import Figure

from dashboards.figures._theme import Theme
from dashboards.figures.diagnosis import clipping, noise, norm_panels, tightness
from sweeper.results.diagnosis import Diagnosis

FIGURES: Mapping[str, Callable[[Diagnosis, Theme], Figure]] = {
    "tightness": lambda diagnosis, theme: tightness.plot(tightness.info(diagnosis), theme),
    "gradients": lambda diagnosis, theme: norm_panels.plot(norm_panels.gradient_info(diagnosis), theme),
    "noise": lambda diagnosis, theme: noise.plot(noise.info(diagnosis), theme),
    "clipping": lambda diagnosis, theme: clipping.plot(clipping.info(diagnosis), theme),
    "clipping-parameters": lambda diagnosis, theme: clipping.plot(clipping.parameter_info(diagnosis), theme),
    "inputs": lambda diagnosis, theme: norm_panels.plot(norm_panels.input_info(diagnosis), theme),
}
