"""The page of a diagnosis: bounds, noise and clipping of one point, before its training and after."""

from dashboards.figures import LIGHT, is_empty
from dashboards.figures.diagnosis.figures import FIGURES
from dashboards.pages._html import Html, each, tag
from dashboards.pages._page import document, panel
from dashboards.text import MISSING, number, show
from sweeper.results.diagnosis import Diagnosis

# Figure, heading, how to read it.
PANELS = (
    (
        "tightness",
        "How much of each bound is reached",
        "Every bound is true of all inputs and all weights that the constraints allow; marks show how close any row of "
        "this data came, at the initial weights and at this point. A mark at 10 % means that the noise could be ten "
        "times smaller if the bound were tight here. Activations and cotangents multiply to the gradients below them.",
    ),
    (
        "gradients",
        "Gradients of single rows",
        "Norms of what one row contributes to the gradient of a parameter. The guard scales what it takes to be larger "
        "than the line it clips at; it sees norms from above, without forming gradients, so its curve lies at or right "
        "of the exact one. The noise is proportional to that line.",
    ),
    (
        "noise",
        "Noise against gradient",
        "In one step at the expected batch size: the norm of the noise on a parameter over that of the summed, clipped "
        "gradient. Right of 1, a single step moves that parameter more by noise than by data.",
    ),
    (
        "clipping",
        "What clipping does to the direction",
        "Noise averages out over steps, a bent mean does not. The guard per layer and flat clipping of the whole "
        "gradient are set to need the same noise; large marks are the setting in use. Further left: less noise, more "
        "clipping.",
    ),
    (
        "clipping-parameters",
        "What clipping does to each parameter",
        "The same settings, the angle measured for each parameter alone: without what a guard per layer changes in the "
        "lengths of the layers' gradients against each other, which an optimiser such as Adam largely undoes.",
    ),
    (
        "inputs",
        "Norms of inputs",
        "What the bounds start from: rows far below the declared bound, or below the input ball, make every bound "
        "behind them loose; rows beyond the ball are scaled down to it. Colour spaces differ in the bound that holds "
        "for any image and in what images use of it.",
    ),
)


def build_page(diagnosis: Diagnosis) -> str:
    """The page of a diagnosis as one HTML document."""
    drawn = {name: draw(diagnosis, LIGHT) for name, draw in FIGURES.items()}
    figures = {name: figure for name, figure in drawn.items() if not is_empty(figure)}
    parts = (
        _head(diagnosis),
        tag("main", *(panel(*one) for one in PANELS if one[0] in figures), _table(diagnosis)),
        tag("footer", tag("div", tag("p", "This page is complete: it loads nothing from elsewhere."))),
    )
    return document(f"{diagnosis.sweep}, {diagnosis.trial}: diagnostics", parts, figures)


def _head(diagnosis: Diagnosis) -> Html:
    """What was looked at, and on which rows."""
    last = diagnosis.snapshots[-1].diagnostics
    epsilon = diagnosis.values.get("epsilon", float("inf"))
    left_out = f"{last.left_out} left out: not finite" if last.left_out else None
    facts = {
        "point": (f"{diagnosis.trial}, epoch {diagnosis.epoch}", f"of {diagnosis.epochs} planned"),
        "epsilon": (number(epsilon, up=True), f"fixed in advance, delta = {number(diagnosis.delta)}"),
        "method": (diagnosis.method.value, f"loss: {diagnosis.loss}"),
        "noise multiplier": (number(diagnosis.noise_multiplier), f"batches of {number(diagnosis.batch_size)} expected"),
        "rows": (f"{last.rows} of {diagnosis.data}", left_out or "validation, declared public"),
        **{name: (show(name, value), "validation") for name, value in _scores(diagnosis).items()},
    }
    return tag(
        "header",
        tag("p", "Diagnostics", class_="eyebrow"),
        tag("h1", diagnosis.sweep),
        _banner() if diagnosis.exploratory else None,
        tag(
            "dl",
            *(
                tag("div", tag("dt", name), tag("dd", value, tag("small", note)))
                for name, (value, note) in facts.items()
            ),
            class_="facts",
        ),
    )


def _scores(diagnosis: Diagnosis) -> dict[str, float]:
    return {name: value for name, value in diagnosis.values.items() if name == "accuracy"}


def _banner() -> Html:
    return tag(
        "p",
        tag("strong", "Exploratory: no guarantee."),
        " This sweep used something that was not paid for, so its epsilons are not privacy guarantees.",
        class_="banner",
        role="note",
    )


def _table(diagnosis: Diagnosis) -> Html:
    """The numbers of each parameter at the point."""
    heads = (
        *("parameter", "entries", "worst case", "clips at", "largest", "median", "guard's largest", "reached"),
        *("rows scaled", "noise std", "noise / gradient"),
    )
    rows = []
    for p in diagnosis.snapshots[-1].diagnostics.parameters:
        texts = [
            str(p.size),
            _number(p.worst_case),
            _number(p.sensitivity),
            number(p.own.largest),
            number(p.own.median),
            number(p.guard_bound.largest),
            _percent(p.tightness),
            _percent(p.acted),
            number(p.noise_std),
            number(p.noise_to_gradient),
        ]
        rows.append(tag("tr", tag("td", p.name), each("td", texts, class_="number")))
    head = tag("tr", tag("th", heads[0], scope="col"), each("th", heads[1:], scope="col", class_="number"))
    return tag(
        "section",
        tag("h2", "Parameters"),
        tag("p", f"At epoch {diagnosis.epoch}; norms of one row's contribution to the gradient of each parameter."),
        tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="scroll", tabindex=0),
        id="parameters",
    )


def _number(value: float | None) -> str:
    return MISSING if value is None else number(value)


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{number(100 * share)} %"
