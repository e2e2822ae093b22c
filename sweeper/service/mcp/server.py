"""The protocol: which tools there are, how one is called, and how a client reaches them."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import anyio
from fastapi import FastAPI
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import CallToolResult, ListToolsResult, TextContent, ToolAnnotations
from mcp_types import Tool as ToolDescription
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from sweeper.errors import SweeperError, public_sentence
from sweeper.service.mcp.callers import AppCaller, Caller
from sweeper.service.mcp.tools import TOOLS, Tool
from sweeper.service.telemetry import LOGGER, where
from sweeper.specification.fields.messages import told_without_value
from sweeper.store.jsonl import plain, to_text

PATH = "/mcp"
INSTRUCTIONS = (
    "Sweeper trains models with differential privacy and shows what each costs. Every sweep spends privacy budget of "
    "the people in its data, and none comes back: check a spec with check_spec before submit_sweep, and prefer a few "
    "good trials to many. An epsilon is a price; scores without their price mean nothing, so name both."
)
INTERNAL = "Something went wrong in the service; its log says where"
_OTHER = "Expected the answer of a service of this version, got another one; update Sweeper"
_MOST_TEXT = 1000
_NAMES = {tool.name: tool for tool in TOOLS}


def make_server(caller_of: Callable[[Request | None], Caller]) -> Server[Any]:
    """Return the server; ``caller_of`` says for whom a tool is called, by the request that called it.

    Guarantees:
        A tool that fails answers one sentence that anybody may be told, never a traceback or the text of an error
        that was not raised on purpose.
    """
    _silence()

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=[_describe(tool) for tool in TOOLS])

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        tool = _NAMES.get(params.name)
        if tool is None:
            return _failure(f"Expected the name of a tool, one of {', '.join(_NAMES)}, got another one")
        return await call(tool, caller_of(context.request), params.arguments or {})

    return Server(
        "sweeper",
        title="Sweeper",
        version=version("sweeper"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def call(tool: Tool[Any], caller: Caller, arguments: dict[str, Any]) -> CallToolResult:
    """Call a tool and return what a client is told."""
    try:
        asked = tool.arguments.model_validate(arguments)
    except (ValidationError, RecursionError) as error:
        return _failure(_mistakes(tool, error))
    try:
        answer = await tool.work(caller, asked)
    except ValidationError:
        return _failure(_OTHER)
    except SweeperError as error:
        return _failure(public_sentence(error, _MOST_TEXT))
    except Exception as error:
        LOGGER.error("tool failed", extra={"fields": {"tool": tool.name, "failure": where(error)}})
        return _failure(INTERNAL)
    content = plain(answer.model_dump(mode="json"))  # the protocol would send null for what is infinite
    return CallToolResult(content=[_text(to_text(content))], structured_content=content)


async def serve_stdio(caller: Caller) -> None:
    """Serve one client by standard input and output, until it hangs up."""
    server = make_server(lambda _: caller)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def serve_folder(app: FastAPI) -> None:
    """Serve one client by standard input and output with a service of this process, until it hangs up.

    Raises:
        RecordError: another service has the folder.
    """

    async def work() -> None:
        async with app.router.lifespan_context(app):
            await serve_stdio(AppCaller(app))

    anyio.run(work)


class HttpDoor:
    """The server at a path of the service, as an ASGI application; it keeps nothing between two requests."""

    def __init__(self, app: FastAPI) -> None:
        server = make_server(lambda request: AppCaller(app, request))
        self._manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Take requests meanwhile."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whose body is read here: too long a one is refused as everywhere."""
        body = await Request(scope, receive).body()
        given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            return given.pop() if given else await receive()

        await self._manager.handle_request(scope, receive_again, send)


def _describe(tool: Tool[Any]) -> ToolDescription:
    return ToolDescription(
        name=tool.name,
        title=tool.title,
        description=tool.about,
        input_schema=tool.arguments.model_json_schema(),
        output_schema=tool.answer.model_json_schema(mode="serialization"),
        annotations=ToolAnnotations(
            read_only_hint=tool.reads,
            destructive_hint=tool.destroys,
            idempotent_hint=tool.repeats,
            open_world_hint=False,
        ),
    )


def _mistakes(tool: Tool[Any], error: ValidationError | RecursionError) -> str:
    """Say what is wrong with the arguments of a tool, without quoting what was given."""
    if isinstance(error, RecursionError):
        return f"Expected arguments of ordinary depth for {tool.name}"
    found = error.errors(include_url=False, include_input=False)[:3]
    return "; ".join(told_without_value(one, f"the arguments of {tool.name}") for one in found)


def _failure(sentence: str) -> CallToolResult:
    return CallToolResult(content=[_text(sentence[:_MOST_TEXT])], is_error=True)


def _text(text: str) -> TextContent:
    return TextContent(text=text.encode(errors="replace").decode())


def _silence() -> None:
    """Switch off the log of the protocol's library, which quotes what clients send."""
    logger = logging.getLogger("mcp")
    logger.handlers, logger.propagate = [logging.NullHandler()], False
