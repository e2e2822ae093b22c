"""What figures say that compare trials of one noise, or rehearsals in place of trials."""

import plotly.graph_objects as go

from dashboards.data import SweepData, finite
from dashboards.figures._theme import Theme
from dashboards.text import show_epsilon
from sweeper.privacy.pricing import OWN


def noise_note(data: SweepData) -> str:
    """Return what a figure says that compares the trials of one stage; empty where there are no stages to tell."""
    chosen = set(data.comparable)
    stage = data.result.stage_of(data.comparable[0]) if chosen and len(chosen) < len(data.trials) else None
    if stage is None:
        return ""
    return f"Only trials of stage {stage + 1} ({stage_epsilon(data, stage)}); other stages have other noise"


def stage_epsilon(data: SweepData, stage: int) -> str:
    """Return the largest own epsilon of the trials of a stage, in words."""
    own = [p.values["epsilon"] for p in data.points if data.result.stage_of(p.trial) == stage and finite(p, "epsilon")]
    return f"{OWN} ≤ {show_epsilon(max(own))}" if own else f"no {OWN}"


def mark(figure: go.Figure, note: str, theme: Theme, *, up: float = 18, narrow: bool = False) -> None:
    """Write above a figure what it compares, so many pixels above its axes; nothing where these are trials."""
    if note:
        note = note.replace("; ", ";<br>") if narrow else note
        place = {"x": 0, "y": 1, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
        font = {"size": 11 if narrow else 12, "color": theme.orange}
        figure.add_annotation(name="rehearsed", text=note, showarrow=False, yshift=up, font=font, align="left", **place)
