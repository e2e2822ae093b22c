"""The top of a sweep's page: what it achieves, its price, whether it still runs, what can be done now."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import yaml

from dashboards.data import SweepData
from dashboards.live.snapshots import Snapshot
from dashboards.live.sweep_list import duration, in_words, state
from dashboards.live.view import Action, Tab, View
from dashboards.pages._html import Child, Html, join, tag
from dashboards.pages._sections import head
from dashboards.summary import best_of, has_begun, times_resumed, total_price, trials_done
from dashboards.text import delta_text, show, show_epsilon, split_lead, title_of, when
from sweeper.privacy.pricing import FIXED, GROWS, UPPER_BOUND
from sweeper.program import program
from sweeper.records import SweepStatus, TrialStatus
from sweeper.rounding import number_of
from sweeper.service.supervision.states import Standing
from sweeper.store.actions import owner_of
from sweeper.store.manifest import Manifest

TITLES = {
    Action.SUBMIT: "Submit a sweep",
    Action.STOP: "Stop",
    Action.STOP_TRIAL: "Stop this trial",
    Action.RESUME: "Resume",
    Action.EXTEND: "Extend",
    Action.ENQUEUE: "Enqueue a configuration",
    Action.STEER: "Steer the search",
    Action.NOTE: "Add a note",
    Action.TAG: "Set a tag",
    Action.DELETE: "Delete",
    Action.SIGN_OUT: "Sign out",
}
_MORE = (Action.ENQUEUE, Action.STEER)
_BY_STATE: Mapping[SweepStatus, tuple[Action, ...]] = {
    SweepStatus.QUEUED: (Action.STOP,),
    SweepStatus.STARTING: (Action.STOP,),
    SweepStatus.RUNNING: (Action.STOP, *_MORE),
    SweepStatus.WAITING: (Action.STOP, *_MORE),
    SweepStatus.STOPPING: (),
    SweepStatus.COMPLETED: (Action.EXTEND, *_MORE, Action.DELETE),
    **dict.fromkeys(
        (SweepStatus.STOPPED, SweepStatus.FAILED, SweepStatus.INTERRUPTED, SweepStatus.LOST),
        (Action.RESUME, Action.EXTEND, *_MORE, Action.DELETE),
    ),
}
_LEAST_SECONDS = 5.0  # of a run before its end is guessed


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep is: trials that have ended, and configurations that were rehearsed before the first one.

    ``total`` and ``seconds_left`` are None where they are not known.
    """

    ended: int
    total: int | None = None
    counts: Mapping[str, int] | None = None
    seconds_left: float | None = None
    rehearsed: int = 0  # configurations, of ``rehearsals``
    rehearsals: int = 0
    rehearses: bool = False  # whether the time left is that of the rehearsals
    begun: bool = True  # whether a trial has
    tested: int = 0  # points of the front that are scored on test rows, of ``front``
    front: int = 0

    @property
    def scores(self) -> bool:
        """Whether no trial is left: what runs then scores the front on test rows."""
        return self.ended == self.total


class Pace:
    """How fast sweeps go, as seen here: from the share that was done when each was first looked at, in its last run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: dict[tuple[str, int], tuple[float, float]] = {}

    def seconds_left(self, name: str, done: float, *, run: int = 0) -> float | None:
        """Return how long the rest takes at the pace so far, None before anything was seen of it, and after all.

        ``run`` counts how often a sweep was resumed: between two runs it does nothing.
        """
        now = self._clock()
        began, before = self._first.setdefault((name, run), (now, done))
        if done <= before or done >= 1.0 or now - began < _LEAST_SECONDS:
            return None
        return (1.0 - done) * (now - began) / (done - before)


def sweep_header(
    snapshot: Snapshot, standing: Standing, progress: Progress, region: Sequence[str], *, offers: Html
) -> Html:
    """Name, state and terms of a sweep that has started, and the answers to four questions."""
    folder = tag("span", snapshot.name, class_="folder")
    eyebrow = join([state(standing), _reason(standing), folder, _submitted(standing) or _run_by(snapshot)])
    data = snapshot.data
    if data is None:
        said = tag("p", snapshot.trouble) if standing.runs else None
        running = _answer("Is it still running?", _running(standing, progress), said)
        return tag("header", tag("p", eyebrow, class_="eyebrow"), tag("h1", snapshot.name), _answers(running, offers))
    steered = tag("p", "Steered to: ", ", ".join(region), class_="test") if region else None
    answers = _answers(
        _answer("What does it achieve?", *_achieves(data, standing)),
        _answer("What is its price?", *_costs(data, trains=standing.runs and not progress.scores)),
        _answer(
            "Is it still running?",
            _running(standing, progress),
            _bar(data, standing, progress),
            _detail(progress, runs=standing.runs and standing.state is not SweepStatus.STOPPING),
            steered,
        ),
        offers,
    )
    return head(data, eyebrow, answers)


def waiting_header(standing: Standing, spec: Mapping[str, Any] | None, *, offers: Html) -> Html:
    """Name and state of a sweep that was submitted and has no records yet, and its spec."""
    folder = tag("span", standing.name, class_="folder")
    known = spec or {}
    text = tag("pre", yaml.safe_dump(dict(known), sort_keys=False, allow_unicode=True), tabindex=0)
    return tag(
        "header",
        tag("p", state(standing), _reason(standing), folder, _submitted(standing), class_="eyebrow"),
        tag("h1", str(known.get("name", standing.name))),
        _answers(
            _answer("Is it still running?", _running(standing, Progress(0)), _waits(standing)),
            _answer("What is its price?", *_will_cost(known)),
            offers,
        ),
        tag("details", tag("summary", "Spec"), text) if spec else None,
    )


def progress_of(data: SweepData, manifest: Manifest | None, name: str, pace: Pace, *, runs: bool) -> Progress:
    """Return how far a sweep is, and about how long the rest will take if it runs."""
    ended, done = trials_done(data)
    counts = Counter(data.how_stands(id_, runs=runs) for id_ in data.trials)
    if manifest is None or manifest.selects_privately:  # how many candidates there are is not told
        return Progress(ended)
    rehearsed, rehearsals, trials = len(data.rehearsals), data.rehearsals_planned, manifest.course.trials
    if data.rehearses:
        left = pace.seconds_left(f"{name}/rehearsals", rehearsed / rehearsals)
        return Progress(ended, trials, counts, left, rehearsed, rehearsals, rehearses=True)
    left = pace.seconds_left(name, min(done / max(trials, 1), 1.0), run=times_resumed(data))
    progress = Progress(ended, trials, counts, left, rehearsed, rehearsals, begun=has_begun(data))
    tested = sum(point.test is not None for point in data.front_points)
    return replace(progress, tested=tested, front=len(data.front_points))


def offered(
    standing: Standing, manifest: Manifest | None, trials: int = 0, *, may_resume: bool = True
) -> tuple[Action, ...]:
    """Return what can be done with a sweep of so many trials as it stands, by those who may write.

    ``may_resume`` is whether its account, if it has one, lets the one who asks go on with it.
    """
    going_on = () if may_resume else (Action.RESUME, Action.EXTEND)
    actions = tuple(action for action in _BY_STATE[standing.state] if action not in going_on)
    if manifest is None:
        kept = (Action.STOP, Action.DELETE, Action.RESUME)
        return tuple(action for action in actions if action in kept)
    if manifest.selects_privately:
        lost = (Action.EXTEND, *_MORE)
    else:
        course = manifest.course
        full = not course.has_room(trials, completed=standing.state is SweepStatus.COMPLETED)
        lost = (
            *((Action.EXTEND,) if course.stages else ()),
            *(() if course.can_be_steered else (Action.STEER,)),
            *(_MORE if full else ()),
        )
    return tuple(action for action in actions if action not in lost)


def offers(view: View, actions: Sequence[Action], why_not: str = "", *, may_write: bool, has_points: bool) -> Html:
    """What can be done now: links that lead to it; ``why_not`` says why something is missing."""
    links: list[Child] = []
    if has_points:
        links.append(_link("Pick a point", replace(View(sweep=view.sweep), tab=Tab.FRONT), "#pick"))
        links.append(_link("Take files", replace(View(sweep=view.sweep), tab=Tab.EXPORT)))
    if may_write:
        links += [_link(TITLES[action], replace(View(sweep=view.sweep), action=action)) for action in actions]
    if not may_write:
        why_not = "Signed in to read: stopping, extending and steering need another token."
    said = tag("p", why_not) if why_not else None
    return _answer("What can I do now?", tag("div", *links, class_="links") if links else None, said)


def _reason(standing: Standing) -> Html | None:
    return tag("span", f": {standing.reason}", class_="reason") if standing.reason else None


def _submitted(standing: Standing) -> Html | None:
    """Who submitted the sweep and when, where somebody did."""
    asked = standing.submission
    if asked is None or not asked.by:
        return None
    at = datetime.fromtimestamp(asked.submitted, UTC).isoformat()
    return tag("span", f"submitted by {asked.by}, {when(at)}", class_="folder")


def _run_by(snapshot: Snapshot) -> Html | None:
    """The account of the machine that ran a sweep which nobody submitted by name."""
    by = owner_of(snapshot.ledger.parent)
    return tag("span", f"run by {by}", class_="folder") if by else None


def _link(words: str, view: View, place: str = "") -> Html:
    return tag("a", words, href=f"/{view.query()}{place}", data_local=True)


def _answers(*found: Html) -> Html:
    return tag("div", *found, class_="answers")


def _answer(question: str, *parts: Child) -> Html:
    return tag("section", tag("h2", question), *parts, class_="answer")


def _big(value: str, unit: str) -> Html:
    return tag("p", value, " ", tag("small", unit), class_="big")


def _achieves(data: SweepData, standing: Standing) -> list[Child]:
    best = best_of(data, data.utility)
    if best is None and data.rehearses and data.manifest is not None and not standing.runs:
        said = data.manifest.course.halted_in_words(in_words(standing.state), len(data.rehearsals))
        resume = tag("code", f"{program()} resume {standing.name}")
        return [tag("p", f"No point: {said}.", _lead(data)), tag("p", "Go on with it: ", resume)]
    if best is None and data.rehearses:
        return [
            tag(
                "p",
                f"No point yet: configurations are being rehearsed on {data.rehearsal_source.in_words}.",
                _lead(data),
            )
        ]
    if best is None:
        return [tag("p", "No point yet; the first comes with the first epoch.")]
    value, unit, note = split_lead(best, data.utility, data.result.claim)
    if data.utility not in (best.test or {}):
        unit = f"{title_of(data.utility)} on validation rows"  # on one line
    epsilon, points = show("epsilon", best.values["epsilon"]), number_of(len(data.result.on_front), "point")
    words = f"{note[0].upper()}{note[1:]}. {best.label}, own epsilon {epsilon}; {points} on the front."
    if best.test is None and Action.RESUME in _BY_STATE[standing.state]:
        words += f" {TITLES[Action.RESUME]} it to score the front on test rows."
    return [_big(value, unit), tag("p", words)]


def _lead(data: SweepData) -> str:
    """Which rehearsed configuration leads, and with what; empty before one has scores."""
    first = next(iter(data.rehearsals), None)
    if first is None or first.place is None:
        return ""
    return f" {first.id} leads with {first.scores(data.result.objectives)}; none of them is a model of this sweep."


def _bar(data: SweepData, standing: Standing, progress: Progress) -> Html | None:
    """How far rehearsals are, or the scores of test rows, as long as that goes on."""
    if progress.rehearses and standing.runs:
        label = f"configurations rehearsed on {data.rehearsal_source.in_words}"
        return tag("progress", value=progress.rehearsed, max=progress.rehearsals, aria_label=label)
    if standing.state is SweepStatus.RUNNING and progress.scores and progress.front:
        return tag("progress", value=progress.tested, max=progress.front, aria_label="points scored on test rows")
    return None


def _costs(data: SweepData, *, trains: bool) -> list[Child]:
    price = total_price(data)
    if data.result.claim.exploratory:
        return [_big("no guarantee", "exploratory"), tag("p", "Something was used that was not paid for.")]
    if price is None or not (price.fixed or price.epsilon):
        return [tag("p", "Nothing is spent yet.")]
    more = f" {UPPER_BOUND}" if trains and not price.fixed else ""
    course = GROWS if not price.fixed else "" if price.unproven else FIXED
    words = f"at {delta_text(data)}, whichever model you choose. {course}{more}".rstrip()
    why = price.unproven and tag("details", tag("summary", "Why it is not proven"), tag("p", price.unproven))
    return [_big(show_epsilon(price.epsilon), f"epsilon{price.doubt}"), tag("p", words), why]


def _running(standing: Standing, progress: Progress) -> Html:
    if progress.total is None:
        return _big("yes" if standing.state is SweepStatus.RUNNING else in_words(standing.state), "")
    if progress.rehearses:
        ended = "" if standing.state is SweepStatus.RUNNING else f", {in_words(standing.state)}"
        return _big(f"{progress.rehearsed} of {progress.rehearsals}", f"configurations rehearsed{ended}")
    return _big(f"{progress.ended} of {progress.total}", f"trials, {_doing(standing, progress)}")


def _doing(standing: Standing, progress: Progress) -> str:
    """How a sweep stands, in words; one that runs starts workers before its first trial and scores after its last."""
    if standing.state is SweepStatus.RUNNING and progress.scores:
        return "scoring test rows"
    if standing.state is SweepStatus.RUNNING and not progress.begun:
        return "starting workers"
    return in_words(standing.state)


def _detail(progress: Progress, *, runs: bool) -> Html | None:
    counts = dict(progress.counts or {})
    rehearsals = number_of(progress.rehearsed, "configuration")
    said = [f"{rehearsals} rehearsed before"] if progress.rehearsals and not progress.rehearses else []
    if runs and progress.rehearses and progress.total is not None:
        said.append(f"rehearsing, then {number_of(progress.total, 'trial')}")
    if set(counts) != {TrialStatus.COMPLETED.value}:  # which the number above says
        said += [f"{count} {word}" for word, count in counts.items()]
        rest = (progress.total or 0) - sum(counts.values())
        said += [f"{rest} {'to come' if runs else 'not proposed'}"] if counts and rest > 0 else []
    if runs and progress.scores:
        said.insert(0, f"{progress.tested} of {number_of(progress.front, 'point')} of the front scored on test rows")
    if runs and progress.seconds_left is not None and progress.total != progress.ended:
        what = " of the rehearsals" if progress.rehearses else ""
        said.append(f"about {duration(progress.seconds_left)}{what} left")
    return tag("p", "; ".join(said)) if said else None


def _waits(standing: Standing) -> Html:
    if standing.place is not None:
        ahead = standing.place - 1
        before = "1 sweep is" if ahead == 1 else f"{ahead} sweeps are"
        words = f"{before} before it." if ahead else "It is the next one."
        return tag("p", f"It starts when one that runs has ended. {words}")
    if standing.state is SweepStatus.STARTING:
        return tag("p", "Its driver reads the data and plans the sweep.")
    return tag("p", "It has no records yet." if standing.runs else "It never began.")


def _will_cost(spec: Mapping[str, Any]) -> list[Child]:
    """The budget of a sweep that has not begun, where its spec fixes one."""
    nothing, budget = tag("p", "Nothing is spent yet."), dict(spec.get("privacy") or {}).get("sweep_epsilon")
    if isinstance(budget, int | float):
        return [_big(f"at most {show_epsilon(float(budget))}", "epsilon"), nothing]
    return [nothing]
