"""Forms of what can be done to a sweep: each says what it costs, and nothing happens before its button is pressed.

A form is sent by ``actions.js`` to the REST API, which decides; ``data-`` attributes say where and how. Its key proves
that it is a form of the session, see `sweeper.service.security.access`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import yaml

from dashboards.data import SweepData
from dashboards.live.fragments import API
from dashboards.live.header import TITLES
from dashboards.live.view import Action, View
from dashboards.pages._html import Child, Html, join, tag
from dashboards.summary import total_price
from dashboards.text import number, setting, show_epsilon
from sweeper.backend.endings import GRACE_SECONDS
from sweeper.privacy.pricing import value_name
from sweeper.records import Direction, Objective
from sweeper.rounding import number_of
from sweeper.specification.dimensions import Dimension
from sweeper.specification.fields.ranges import Choices, Range
from sweeper.store.jsonl import to_text
from sweeper.store.manifest import Manifest, told_spec

EXAMPLE = """\
name: first
data: {name: digits}
model: {architecture: mlp, width: [64, 128]}
training: {epochs: 10, batch_size: 256, learning_rate: {log: [0.01, 0.1]}}
privacy: {sweep_epsilon: 3, delta: 1e-4}
search: {objectives: [epsilon, accuracy]}
"""
_DONE = {
    Action.SUBMIT: "Submitted.",
    Action.STOP: "The sweep was asked to stop.",
    Action.STOP_TRIAL: "The trial was asked to stop after its epoch.",
    Action.RESUME: "The sweep was asked to go on.",
    Action.EXTEND: "The sweep was asked to go on with more trials.",
    Action.ENQUEUE: "The configuration is enqueued: it is tried next, now or when the sweep goes on.",
    Action.STEER: "The search looks there from its next proposals on.",
    Action.NOTE: "The note is kept.",
    Action.TAG: "The tag is set.",
    Action.DELETE: "The sweep is deleted; its ledger is kept.",
}
_STEERED = (
    "The price is not proven: it assumes that results do not steer the sweep, and you may extend it because of them."
)
_DANGER = (Action.DELETE, Action.STOP, Action.STOP_TRIAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a form is made from; data and manifest are None where the sweep has no records yet."""

    view: View
    data: SweepData | None = None
    manifest: Manifest | None = None
    region: Sequence[str] = ()
    with_more: Mapping[int, float] = field(default_factory=dict)  # epsilons with those left and so many further trials
    left: int = 0  # planned trials that have not begun
    anew: int = 0  # trials that were cut off within their first epoch, and begin anew when the sweep is resumed
    key: str = ""


def form(asked: Asked) -> Html:
    """The page of one action."""
    action = asked.view.action or Action.SUBMIT
    if action is Action.SIGN_OUT:
        return _page(action, asked, _sign_out())
    fields = {
        Action.SUBMIT: _spec_fields,
        Action.EXTEND: _trials_field,
        Action.ENQUEUE: _hyperparameters,
        Action.STEER: _bounds,
        Action.NOTE: _note_field,
        Action.TAG: _tag_fields,
    }
    inner = fields[action](asked) if action in fields else None
    price = (
        None if action is Action.SUBMIT else tag("p", tag("strong", "Price: "), price_of(action, asked), class_="price")
    )
    label = TITLES[action] + (f" {asked.view.trial}" if action is Action.STOP_TRIAL else "")
    button = tag(
        "button",
        label if action is not Action.SUBMIT else "Submit",
        type="submit",
        class_="button danger" if action in _DANGER else "button main",
        disabled=action is Action.SUBMIT,
    )
    back = tag("a", "Back", href=_back(asked.view), class_="button", data_local=True)
    method, where, then = _target(action, asked.view)
    sent = tag(
        "form",
        inner,
        price,
        tag("p", role="alert", class_="refused", hidden=True),
        tag("p", button, back, class_="actions"),
        class_="act",
        data_send=method,
        data_to=where,
        data_then=then,
        data_done=_DONE.get(action),
        data_key=asked.key,
        data_kind="yaml" if action is Action.SUBMIT else "json",
        autocomplete="off",
    )
    return _page(action, asked, sent)


def price_of(action: Action, asked: Asked) -> str:
    """Return what an action costs, in a sentence."""
    spent = _spent(asked.data)
    match action:
        case Action.STOP | Action.STOP_TRIAL:
            return _price_of_stopping(action, asked)
        case Action.RESUME:
            return _price_of_resuming(asked)
        case Action.EXTEND:
            fixed = _fixed(asked)
            return fixed or f"each further trial adds to it{_by_itself(asked)}{spent}.{_with_more(asked)}"
        case Action.ENQUEUE:
            if _has_ended(asked):
                return f"nothing now. It is tried first when the sweep is resumed or extended{spent}."
            if asked.manifest is not None and asked.data and len(asked.data.trials) >= asked.manifest.course.trials:
                return f"nothing now. No trial is left to propose: it is tried first when the sweep is extended{spent}."
            return f"that of one trial, which was planned anyway: it takes the place of the next one{spent}."
        case Action.STEER:
            words = "nothing by itself: the number of trials stays, and none leaves the ranges of the spec"
            words += "; it holds when the sweep is resumed or extended" if _has_ended(asked) else ""
            return f"{words}{spent}. The region is recorded with the sweep."
        case Action.DELETE:
            gone = "Trials, models and report are gone for good; the ledger is kept, in spent."
            return f"nothing, and nothing comes back: what was spent stays spent{spent}. {gone}"
        case _:
            return "nothing. Who may read the sweep sees it."


def _has_ended(asked: Asked) -> bool:
    return asked.manifest is not None and asked.manifest.status.is_end


def _spent(data: SweepData | None) -> str:
    price = None if data is None else total_price(data)
    if data is None or price is None:
        return ""
    if data.result.claim.exploratory:
        return "; the sweep is exploratory and has no guarantee"
    fixed = "was fixed at" if price.fixed else "is so far about" if price.doubt else "is so far at most"
    cost = f"epsilon {show_epsilon(price.epsilon)} at delta {price.delta!r}{price.doubt}"
    return f"; the price of the sweep {fixed} {cost}"


def _fixed(asked: Asked) -> str:
    """Return that trials cost nothing more where the price of the sweep was fixed, empty where it grows with them."""
    price = None if asked.data is None else total_price(asked.data)
    privacy = None if asked.manifest is None else asked.manifest.spec["privacy"]
    has_budget = privacy is not None and privacy.get("sweep_epsilon") is not None
    is_fixed = has_budget if price is None else price.fixed
    return f"nothing beyond the price that was fixed{_spent(asked.data)}." if is_fixed else ""


def _price_of_stopping(action: Action, asked: Asked) -> str:
    whole = action is Action.STOP
    running = f"nothing beyond {'the epochs that run now' if whole else 'the epoch that it is in'}"
    running += f", which have {GRACE_SECONDS:g} seconds to end." if whole else ", which ends first."
    if _fixed(asked):
        return f"{running} What was drawn stays spent{_spent(asked.data)}."
    anew = "; one that is stopped within its first epoch begins anew if the sweep is resumed, and is charged again"
    charged = "A trial that has begun is charged for all epochs that it plans, whether or not it runs them"
    return f"{running} {charged}{anew if whole else ''}{_spent(asked.data)}."


def _price_of_resuming(asked: Asked) -> str:
    fixed = _fixed(asked)
    begins = asked.left + asked.anew
    if fixed or not begins:
        going_on = (
            "hardly more: trials go on from their last epoch, and one that was cut off is drawn and charged again; of "
            "a copy, and after a restart of the machine, all that they had planned"
        )
        tests = "; scores of test rows may add to it" * _scores_tests(asked)
        return fixed or f"{going_on}{tests}{_spent(asked.data)}."
    words = f"{number_of(begins, 'trial')} to begin{_by_itself(asked, begins)}"
    if (cost := asked.with_more.get(0)) is not None:
        which = "with it" if begins == 1 else "with all of them"
        tests = "; scores of test rows may add to it" * _scores_tests(asked)
        words += f". {which.capitalize()} the price is about {show_epsilon(cost)}, if each costs what the dearest so "
        words += f"far did{tests}"
    return f"{words}{_spent(asked.data)}."


def _by_itself(asked: Asked, trials: int = 1) -> str:
    """Return what one of so many trials costs at most by itself, where the spec says it."""
    privacy = None if asked.manifest is None else asked.manifest.spec["privacy"]
    if privacy is None or "epsilon" not in privacy:
        return ""
    each = "each " if trials > 1 else ""
    return f", {each}up to epsilon {setting(_largest(privacy['epsilon']))} by itself"


def _scores_tests(asked: Asked) -> bool:
    """Whether scores of test rows are paid for too."""
    return asked.manifest is not None and asked.manifest.course.score_noise is not None


def _with_more(asked: Asked) -> str:
    """Return what the sweep would cost with further trials, and that nothing proves it; empty where that is fixed."""
    if not asked.with_more or asked.manifest is None:
        return ""
    costs = " and ".join(f"about {show_epsilon(cost)} with {trials} more" for trials, cost in asked.with_more.items())
    tests = "; scores of test rows may add to it" * _scores_tests(asked)
    left = asked.left + asked.anew
    which = f"each, those {left} left too," if left else "each"
    so_far = None if asked.data is None else total_price(asked.data)
    is_looser = so_far is not None and min(asked.with_more.values()) < so_far.epsilon
    closer = " (computed more closely than the price so far)" if is_looser else ""
    return f" If {which} costs what the dearest so far did, it is {costs}{closer}{tests}. {_STEERED}"


def _largest(value: Any) -> Any:
    ends = next(iter(value.values())) if isinstance(value, Mapping) else value
    return max(ends) if isinstance(ends, list) else ends


def _target(action: Action, view: View) -> tuple[str, str, str]:
    """Return how and where a form is sent, and which page comes then."""
    sweep = f"{API}/{quote(view.sweep, safe='')}"
    trial = f"{sweep}/trials/{quote(view.trial, safe='')}"
    here, of_trial = f"/{View(sweep=view.sweep).query()}", f"/{View(sweep=view.sweep, trial=view.trial).query()}"
    match action:
        case Action.SUBMIT:
            return "POST", API, "/?sweep={id}"
        case Action.DELETE:
            return "DELETE", sweep, "/"
        case Action.STOP_TRIAL:
            return "POST", f"{trial}/stop", of_trial
        case Action.NOTE | Action.TAG:
            return "POST", f"{trial}/{action.value}", of_trial
        case _:
            return "POST", f"{sweep}/{action.value}", here


def _back(view: View) -> str:
    return f"/{View(sweep=view.sweep, trial=view.trial).query()}"


def _page(action: Action, asked: Asked, *parts: Child) -> Html:
    of = asked.view.trial or asked.view.sweep
    eyebrow = tag("p", of, class_="eyebrow") if of else None
    return tag("div", tag("header", eyebrow, tag("h1", TITLES[action])), *parts, class_="action")


def _sign_out() -> Html:
    button = tag("button", "Sign out", type="submit", class_="button main")
    back = tag("a", "Back", href="/", class_="button", data_local=True)
    words = tag("p", "This browser forgets its session; sweeps run on.")
    return tag("form", words, tag("p", button, back, class_="actions"), method="post", action="/logout")


def _field(id_: str, label: Child, control: Html, hint: Child = None) -> Html:
    said = None if hint is None else tag("small", hint, id=f"hint-{id_}")
    return tag("div", tag("label", label, for_=f"field-{id_}"), control, said, class_="field")


def _input(id_: str, **more: Any) -> Html:
    return tag("input", id=f"field-{id_}", class_="text", **more)


def _spec_fields(asked: Asked) -> Html:
    text = _example(asked.manifest)
    area = tag(
        "textarea",
        text,
        id="field-spec",
        name="spec",
        rows=18,
        spellcheck="false",
        required=True,
        data_check="/api/v1/check",
        aria_describedby="checked",
    )
    file = tag("input", id="field-file", type="file", accept=".yaml,.yml,.json", data_into="field-spec")
    return join(
        [
            _field("spec", "Spec, as YAML", area),
            _field("file", "Or a file", file),
            tag("p", "It is checked as you type.", id="checked", role="status", class_="price"),
        ]
    )


def _example(manifest: Manifest | None) -> str:
    """Return what the form begins with: the spec of a sweep, unless it names files, which are not told."""
    spec = {} if manifest is None else told_spec(manifest.spec)
    if not spec or "path" in spec["data"] or "warm_start" in spec["search"]:
        return EXAMPLE
    return yaml.safe_dump(spec, sort_keys=False, allow_unicode=True)


def _trials_field(asked: Asked) -> Html:
    least = 1 if asked.manifest is None else asked.manifest.course.trials
    left = f", {asked.left} of them not begun" if asked.left else ""
    numbers = {"min": least, "max": 1_000_000, "value": least + 1, "data_so_far": least}
    control = _input("trials", name="trials", type="number", required=True, **numbers)
    return _field("trials", "Trials in all, those that ran included", control, f"{least} planned so far{left}")


def _hyperparameters(asked: Asked) -> Html:
    dimensions = [] if asked.manifest is None else asked.manifest.read_spec().dimensions
    given = {} if asked.data is None else asked.data.settings.get(asked.view.trial, {})
    words = tag("p", "What you leave empty is sampled.", class_="test")
    return join([words, *(_hyperparameter(one, given.get(one.key)) for one in dimensions if one.space is not None)])


def _hyperparameter(dimension: Dimension, given: Any) -> Html:
    space, name = dimension.space, dimension.name
    if isinstance(space, Choices):
        options = [tag("option", "sampled", value="")]
        options += [
            tag("option", setting(value), value=to_text(value), selected=value == given) for value in space.values
        ]
        control = tag("select", *options, id=f"field-{name}", name=name, data_in="values", class_="text")
        return _field(name, name, control)
    known = space if isinstance(space, Range) else None
    ends = {} if known is None else {"min": known.low, "max": known.high}
    step = "any" if known is None or not known.integer else known.step or 1
    control = _input(name, name=name, type="number", step=step, value=given, data_in="values", **ends)
    return _field(name, name, control, None if known is None else f"from {number(known.low)} to {number(known.high)}")


def _bounds(asked: Asked) -> Html:
    names = () if asked.manifest is None else asked.manifest.spec["search"]["objectives"]
    objectives = [Objective.named(name) for name in names]
    wanted = _wanted(asked)
    fields = []
    for objective in objectives:
        sign = "<=" if objective.direction is Direction.MINIMIZE else ">="
        bound = f"{objective.name} {sign}"
        control = _input(
            objective.name, type="number", step="any", data_bound=bound, value=wanted.get(bound), aria_label=bound
        )
        label = bound.replace("<=", "≤").replace(">=", "≥")
        fields.append(_field(objective.name, label.replace(objective.name, value_name(objective.name), 1), control))
    words = (
        "The search looks for points within these bounds from its next proposals on; those of fractions, such as "
        "accuracy, are between 0 and 1. Leave all of them empty to search everywhere."
    )
    return join([tag("p", words, class_="test"), *fields])


def _wanted(asked: Asked) -> dict[str, str]:
    """Return the bounds that the form begins with: those of the filters, else where the search is now."""
    view = asked.view
    found = [(f"{name} >=", f"{value:g}") for name, value in view.minimum.items()]
    found += [("epsilon <=", f"{view.max_epsilon:g}")] if view.max_epsilon is not None else []
    return dict(found or (text.rsplit(" ", 1) for text in asked.region))


def _note_field(_: Asked) -> Html:
    area = tag("textarea", id="field-text", name="text", rows=4, maxlength=5000, required=True)
    return _field("text", "Note", area, "It is kept in the sweep's folder and sent to the trial's MLflow run.")


def _tag_fields(_: Asked) -> Html:
    fields: Iterable[Html] = (
        _field("key", "Tag", _input("key", name="key", type="text", maxlength=100, required=True)),
        _field("value", "Value", _input("value", name="value", type="text", maxlength=5000)),
    )
    return join(fields)
