"""Server of the MCP conformance suite: `mudroom mcp serve` over HTTP, open to each request.

The suite sends no tokens, so this program gives all requests to one owner. It adds the tools that
the scenarios about tasks name; they are tasks of mudroom's agents. Start it with a folder; it
prints its address, and ends with its input.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import mcp_types
from mcp.shared.exceptions import MCPError

from mudroom import Permissions, Session
from mudroom.driving import ListenOptions, ServerAddress
from mudroom.errors import ModelRefused
from mudroom.ports import Approver
from mudroom.testing import Request, ScriptedModel, call
from mudroom_hosts.mcp import protocol
from mudroom_hosts.mcp.following import Context, get_owner
from mudroom_hosts.mcp.host_tasks import Owner, TaskArguments
from mudroom_hosts.mcp.protocol import EXTENSION, CallResult, McpProtocol, accepts_tasks
from mudroom_hosts.mcp.results import ToolAnswer
from mudroom_hosts.mcp.server import McpOptions, McpServer

TOOLS = (
    "greet",
    "slow_compute",
    "failing_job",
    "protocol_error_job",
    "confirm_delete",
    "multi_input",
    "test_tool_with_task",
)


async def answer(request: Request) -> Any:
    """Do what the prompt of a tool of the suite says."""
    word, _, rest = request.prompt.partition(" ")
    if word == "sleep":
        await asyncio.sleep(float(rest))
    elif word == "fail":
        raise ModelRefused("the model refused")
    elif word == "ask" and not request.results:
        return call("write", file_path="asked.md", content="x")
    return f"Done. {rest}"


class SuiteProtocol(McpProtocol):
    """The protocol of the server with the tools of the suite."""

    async def _list_tools(self, _: Context, __: Any) -> mcp_types.ListToolsResult:
        listed = await super()._list_tools(_, __)
        schema = {"type": "object"}
        more = [
            mcp_types.Tool(name=name, description="Test.", input_schema=schema) for name in TOOLS
        ]
        return mcp_types.ListToolsResult(tools=[*listed.tools, *more])

    async def _call_tool(
        self, context: Context, params: mcp_types.CallToolRequestParams
    ) -> CallResult:
        arguments = params.arguments or {}
        match params.name:
            case "greet":
                text = f"Hello, {arguments.get('name')}!"
                return mcp_types.CallToolResult(content=[mcp_types.TextContent(text=text)])
            case "slow_compute":
                return await self._start(context, f"sleep {arguments.get('seconds', 0)}")
            case "failing_job":
                if not accepts_tasks(context):
                    extensions: dict[str, Any] = {"extensions": {EXTENSION: {}}}
                    code = mcp_types.MISSING_REQUIRED_CLIENT_CAPABILITY
                    raise MCPError(code, "it needs tasks", {"requiredCapabilities": extensions})
                return await self._start(context, "fail")
            case "protocol_error_job":
                calls = self._host_tasks.start_many([TaskArguments(prompt="Say hello.")], None)
                return await self._follow(context, calls, self._break, None)
            case "confirm_delete":
                return await self._start(context, "ask")
            case "multi_input":
                return await self._start(context, "ask", "ask")
            case "test_tool_with_task":
                if not params.input_responses:
                    form = mcp_types.ElicitRequestFormParams(
                        message="Your name?", requested_schema={"type": "object", "properties": {}}
                    )
                    request = mcp_types.ElicitRequest(params=form)
                    return mcp_types.InputRequiredResult(input_requests={"name": request})
                (response,) = params.input_responses.values()
                content: Any = getattr(response, "content", None)
                return await self._start(context, f"greet {content['name']}")
            case _:
                return await super()._call_tool(context, params)

    async def _start(self, context: Context, *prompts: str) -> CallResult:
        tasks = [TaskArguments(prompt=prompt) for prompt in prompts]
        calls = self._host_tasks.start_many(tasks, None, get_owner(context))
        if len(calls) == 1:
            return await self._follow(
                context, calls, lambda: self._answers.describe(calls[0]), None
            )
        return await self._follow(context, calls, lambda: self._answers.describe_many(calls), None)

    def _break(self) -> ToolAnswer:
        raise RuntimeError("the tool is broken")


def print_notice(text: str) -> None:
    """Print a line for people."""
    print(text, file=sys.stderr)


async def find_owner(_: str) -> Owner:
    """Return the owner of all requests."""
    return Owner(name="suite")


async def main(folder: Path) -> None:
    """Serve until the input ends."""

    def make_session(approver: Approver) -> Session:
        return Session(
            model=ScriptedModel(answer),
            cwd=str(folder),
            home=str(folder / "home"),
            sandbox="off",
            permissions=Permissions(can_ask=True),
            approver=approver,
            environ={**os.environ, "HOME": str(folder)},
        )

    def show(address: ServerAddress) -> None:
        print(address.url, flush=True)

    protocol.McpProtocol = SuiteProtocol  # type: ignore[misc]
    server = McpServer(make_session, McpOptions(), print_notice)
    serving = asyncio.create_task(server.serve_http(ListenOptions(port=0), find_owner, show))
    await asyncio.to_thread(sys.stdin.read)
    server.stop()
    await serving


asyncio.run(main(Path(sys.argv[1])))
