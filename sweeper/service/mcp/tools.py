"""The tools: each reads its arguments, calls the service as any client does, and answers with what it was answered.

Nothing here knows a folder, a ledger or an account. What a tool may do is decided where the service decides it for
everybody: see `sweeper.service.mcp.callers`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from anyio import current_time, sleep

from sweeper.errors import PickError, SpecError
from sweeper.privacy.card.content import Answer
from sweeper.records import SweepStatus
from sweeper.results.comparison import compare
from sweeper.results.front import parse_front
from sweeper.service.client import Call
from sweeper.service.mcp import inputs as given
from sweeper.service.mcp.callers import Caller, as_json
from sweeper.service.mcp.outputs import (
    ComparedSweep,
    ComparedSweeps,
    PickedModel,
    ShownFront,
    ShownTrials,
    SpecKeys,
    SubmissionReceipt,
    SweepStanding,
)
from sweeper.service.mcp.spec_keys import ABOUT, find_keys
from sweeper.service.responses.accounts import AccountDetail, AccountList
from sweeper.service.responses.models import CheckedSpec, DataList, Enqueued, Steered, SweepPage, SweepState

PAUSE_SECONDS = 1.0  # between two looks at a sweep that a client waits for

A = TypeVar("A", bound=given.ToolInput)
R = TypeVar("R", bound=Answer)


@dataclass(frozen=True, kw_only=True)
class Tool(Generic[A]):
    """One tool.

    Attributes:
        name: by which clients call it.
        title: the same for people.
        about: what it does, for the client's model.
        arguments: what it is called with.
        answer: what it answers.
        work: does it.
        reads: whether it changes nothing.
        destroys: whether what it ends cannot be had again.
        repeats: whether a second call does no more than the first.
    """

    name: str
    title: str
    about: str
    arguments: type[A]
    answer: type[Answer]
    work: Callable[[Caller, A], Awaitable[Answer]]
    reads: bool = False
    destroys: bool = False
    repeats: bool = False


async def _read(caller: Caller, answer: type[R], call: Call) -> R:
    return answer.model_validate(await caller.read(call))


async def _describe_data(caller: Caller, _: given.NoInput) -> DataList:
    return await _read(caller, DataList, Call("/data"))


async def _describe_spec(caller: Caller, asked: given.SpecKeyInput) -> SpecKeys:
    return SpecKeys(about=ABOUT, keys=find_keys(await caller.read(Call("/schema")), asked.key))


async def _check(caller: Caller, asked: given.SpecInput) -> CheckedSpec:
    return await _read(caller, CheckedSpec, _check_call(asked))


def _check_call(asked: given.SpecInput) -> Call:
    return Call("/check", "the spec", "POST", as_json(asked.spec), refused=SpecError)


async def _submit(caller: Caller, asked: given.SubmissionInput) -> SubmissionReceipt:
    checked = await caller.read(_check_call(asked))
    call = Call("/sweeps", "the spec", "POST", as_json(asked.spec), refused=SpecError, key=asked.key)
    return SubmissionReceipt.model_validate({**checked, **await caller.read(call)})


async def _list_accounts(caller: Caller, _: given.NoInput) -> AccountList:
    return await _read(caller, AccountList, Call("/accounts"))


async def _show_account(caller: Caller, asked: given.AccountInput) -> AccountDetail:
    return await _read(caller, AccountDetail, Call(f"/accounts/{asked.account}"))


async def _list_sweeps(caller: Caller, asked: given.PageInput) -> SweepPage:
    return await _read(caller, SweepPage, Call("/sweeps", query={"offset": asked.offset, "limit": asked.limit}))


async def _watch(caller: Caller, asked: given.WatchInput) -> SweepStanding:
    call = Call(f"/sweeps/{asked.sweep}")
    first = found = await caller.read(call)
    until = current_time() + asked.seconds
    while found == first and not SweepStatus(found["state"]).is_end and current_time() < until:
        await sleep(PAUSE_SECONDS)
        found = await caller.read(call)
    return SweepStanding.model_validate(found)


async def _show_front(caller: Caller, asked: given.LimitedInput) -> ShownFront:
    content = await caller.read(Call(f"/sweeps/{asked.sweep}/front"))
    front = parse_front(content, "the answer of the service")
    utility = next((one for one in front.objectives if one.name != "epsilon"), None)
    points = content["points"]
    if utility is not None:
        sign = -1.0 if utility.direction.value == "maximize" else 1.0
        points = sorted(points, key=lambda point: sign * float(point["values"][utility.name]))
    shown = [{**point, "config": content["trials"][point["trial"]]["config"]} for point in points[: asked.limit]]
    return ShownFront.model_validate({**content, "price": content["ledger"], "points": shown, "total": len(points)})


async def _list_trials(caller: Caller, asked: given.LimitedInput) -> ShownTrials:
    content = await caller.read(Call(f"/sweeps/{asked.sweep}/front"))
    rows = (await caller.read(Call(f"/sweeps/{asked.sweep}/trials")))["trials"]
    return ShownTrials(price=content["ledger"], trials=rows[::-1][: asked.limit], total=len(rows))


async def _compare(caller: Caller, asked: given.ComparisonInput) -> ComparedSweeps:
    fronts = [(name, await caller.read(Call(f"/sweeps/{name}/front"))) for name in dict.fromkeys(asked.sweeps)]
    found = compare(
        [(name, parse_front(content, "the answer of the service")) for name, content in fronts], anyway=asked.anyway
    )
    prices = {name: content["ledger"] for name, content in fronts}
    return ComparedSweeps(
        price=found.price_in_words,
        objectives=found.objectives,
        sweeps=[
            ComparedSweep(
                sweep=run.label,
                name=run.front.sweep,
                hypervolume=run.hypervolume,
                hypervolume_interval=run.interval,
                front_points=len(run.front.front_points),
                price=prices[run.label],
            )
            for run in found.runs
        ],
        differences=[str(one) for one in found.differences],
        conflicts=found.conflicts,
    )


async def _enqueue(caller: Caller, asked: given.ConfigurationInput) -> Enqueued:
    return await _change(caller, Enqueued, asked.sweep, "/enqueue", {"values": asked.values})


async def _steer(caller: Caller, asked: given.RegionInput) -> Steered:
    return await _change(caller, Steered, asked.sweep, "/steer", {"region": asked.region})


async def _stop(caller: Caller, asked: given.StopInput) -> SweepState:
    return await _change(
        caller, SweepState, asked.sweep, "/stop" if asked.trial is None else f"/trials/{asked.trial}/stop"
    )


async def _resume(caller: Caller, asked: given.SweepInput) -> SweepState:
    return await _change(caller, SweepState, asked.sweep, "/resume")


async def _extend(caller: Caller, asked: given.ExtensionInput) -> SweepState:
    return await _change(caller, SweepState, asked.sweep, "/extend", {"trials": asked.trials})


async def _change(caller: Caller, answer: type[R], sweep: str, below: str, content: object = None) -> R:
    data = None if content is None else as_json(content)
    return await _read(caller, answer, Call(f"/sweeps/{sweep}{below}", "this", "POST", data, refused=SpecError))


async def _pick(caller: Caller, asked: given.PickInput) -> PickedModel:
    floors = [f"{name}={value!r}" for name, value in asked.minimum.items()]
    query = {"max_price": asked.max_price, "max_epsilon": asked.max_epsilon, "min": floors or None}
    found = await caller.read(Call(f"/sweeps/{asked.sweep}/pick", "these conditions", query=query, refused=PickError))
    conditions = urlencode({key: value for key, value in query.items() if value is not None}, doseq=True)
    papers = f"/api/v1/sweeps/{asked.sweep}/papers" + (f"?{conditions}" if conditions else "")
    return PickedModel.model_validate({**found, "papers": papers, "guarantee": found["card"].get("guarantee")})


def _reading(
    name: str,
    title: str,
    about: str,
    arguments: type[A],
    answer: type[Answer],
    work: Callable[[Caller, A], Awaitable[Answer]],
) -> Tool[A]:
    return Tool(
        name=name, title=title, about=about, arguments=arguments, answer=answer, work=work, reads=True, repeats=True
    )


TOOLS: Sequence[Tool[Any]] = (
    _reading(
        "describe_data",
        "Which data there are",
        "List the data sets and declared tables that a spec may name. No row is read.",
        given.NoInput,
        DataList,
        _describe_data,
    ),
    _reading(
        "describe_spec",
        "What a spec may say",
        "List the keys of a spec with their types and defaults; with `key`, those of one section or key alone.",
        given.SpecKeyInput,
        SpecKeys,
        _describe_spec,
    ),
    _reading(
        "check_spec",
        "Check a spec and its price",
        "Check a spec as submit_sweep would, and say what it would cost, what it would take of the account of its "
        "data, and what would fit. Nothing is kept or spent. Needs a token that permits to write.",
        given.SpecInput,
        CheckedSpec,
        _check,
    ),
    Tool(
        name="submit_sweep",
        title="Run a sweep",
        about="Submit a spec to be run. This spends privacy budget of the data, for good. Call check_spec first. With "
        "`key`, a call that is repeated submits nothing twice.",
        arguments=given.SubmissionInput,
        answer=SubmissionReceipt,
        work=_submit,
    ),
    _reading(
        "list_accounts",
        "Which accounts there are",
        "List the accounts of the data: the budget of each, and how much of it is given away.",
        given.NoInput,
        AccountList,
        _list_accounts,
    ),
    _reading(
        "show_account",
        "How an account stands",
        "Say how an account stands: what was taken, by whom and on what, and in `room` what you may still take.",
        given.AccountInput,
        AccountDetail,
        _show_account,
    ),
    _reading(
        "list_sweeps",
        "Which sweeps there are",
        "List sweeps, the newest first: how each stands and who submitted it.",
        given.PageInput,
        SweepPage,
        _list_sweeps,
    ),
    _reading(
        "watch_sweep",
        "How a sweep stands",
        "Say how a sweep stands: its state, its trials by status, its front in numbers and its price. With `seconds`, "
        "wait until that has changed.",
        given.WatchInput,
        SweepStanding,
        _watch,
    ),
    _reading(
        "show_front",
        "The front of a sweep",
        "Return the points of a sweep's front, those of best utility first, with their configurations and its price.",
        given.LimitedInput,
        ShownFront,
        _show_front,
    ),
    _reading(
        "list_trials",
        "The trials of a sweep",
        "Return the trials of a sweep, the last first: how each ended, its best point, its configuration.",
        given.LimitedInput,
        ShownTrials,
        _list_trials,
    ),
    _reading(
        "compare_sweeps",
        "Sweeps side by side",
        "Compare the fronts of sweeps by the hypervolume of each, and say how sure their difference is.",
        given.ComparisonInput,
        ComparedSweeps,
        _compare,
    ),
    Tool(
        name="enqueue_configuration",
        title="Try a configuration next",
        about="Try a configuration next, as one of the trials that the sweep has planned. It adds none to them.",
        arguments=given.ConfigurationInput,
        answer=Enqueued,
        work=_enqueue,
    ),
    Tool(
        name="steer_sweep",
        title="Search in a region",
        about="Search within a region of the front from now on, or everywhere again. It adds no trial.",
        arguments=given.RegionInput,
        answer=Steered,
        work=_steer,
        repeats=True,
    ),
    Tool(
        name="stop_sweep",
        title="Stop a sweep or a trial",
        about="Stop a sweep that waits or runs, or one of its trials. Its front stays; what it spent is spent.",
        arguments=given.StopInput,
        answer=SweepState,
        work=_stop,
        destroys=True,
        repeats=True,
    ),
    Tool(
        name="resume_sweep",
        title="Resume a sweep",
        about="Resume a sweep that was stopped, interrupted or has failed. It goes on to spend what it planned.",
        arguments=given.SweepInput,
        answer=SweepState,
        work=_resume,
        repeats=True,
    ),
    Tool(
        name="extend_sweep",
        title="Give a sweep more trials",
        about="Run more trials of a sweep that has ended, so many in all. This spends privacy budget, for good.",
        arguments=given.ExtensionInput,
        answer=SweepState,
        work=_extend,
        repeats=True,
    ),
    _reading(
        "pick_point",
        "The best model within conditions",
        "Return the point of best utility within conditions: its price, its guarantee, its configuration, and where "
        "its model and card are.",
        given.PickInput,
        PickedModel,
        _pick,
    ),
)
