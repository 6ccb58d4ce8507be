"""`session.runs` and `session.mcp`: control of runs and of MCP servers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from .._core.events import TeamMessageSent
from .._core.ports import RunHandle, SessionServers
from .._core.ports.servers import ServerPrompt, ServerResource, ServerStatus
from .._core.runs import InboxMessage, find_parent_id
from .._core.tools import Tool
from .._core.type_checks import check_type
from .._engine.session_context import SessionServices
from .._engine.team_registry import TeamRequest, add_answer
from .._projections.run_tree import OpenWork, RunTree, list_open_work
from .._projections.team import Teammate, normalize_name
from ..errors import UnknownName
from .runner import SessionRunner


class RunControls:
    """The running runs of a session, `session.runs`: lists them, sends messages, stops them.

    Each method raises UsageError while the session is not open.

    Arguments:
        require_open: returns the runner of the session.

    Example:
        async def stop_commands(runs: RunControls) -> None:
            for work in await runs.list_open_work():
                if work.kind == "command":
                    runs.cancel(work.id)

        await stop_commands(session.runs)
    """

    def __init__(self, require_open: Callable[[], SessionRunner]) -> None:
        self._require_open = require_open

    def send(self, run_id: str, message: str) -> bool:
        """Send a message to a running run; its model reads it with the next tool results.

        `run_id` may be a named child's name. Returns False if it is not running. The message is
        recorded before the model reads it, but perhaps not yet when this call returns;
        `send_durably` waits for that. Raises UnknownName if no child of the session ever had the
        name.
        """
        check_type("message", message, str, "send")
        handle = self._find_run(run_id)
        return handle is not None and handle.send(InboxMessage(uuid.uuid4().hex, message))

    async def send_durably(
        self, run_id: str, message: str = "", *, approve: bool | None = None
    ) -> bool:
        """Send a message like `send`, and return once it is recorded.

        From then on the model reads it exactly once, even after a crash. Returns False if the run
        is not running, or ends without reading it. Raises UnknownName, JournalError.

        An idle named child starts working again with the message. If no prompt is running, it
        starts with the next one, even in a later process; this then returns True.

        Arguments:
            approve: answer to a named child that waits for approval of its plan. True: it works in
                the mode it has without a plan. False: it plans again. If no plan is waiting,
                nothing is sent and this returns False.

        Example:
            await session.runs.send_durably("alice", "Look at the tests as well.")
            await session.runs.send_durably("bob", approve=True)
        """
        check_type("run_id", run_id, str, "send_durably")
        check_type("message", message, str, "send_durably")
        check_type("approve", approve, bool | None, "send_durably")
        message = add_answer(message, approve)
        self._find_run_id(run_id)  # raises for a wrong name
        teams = self._require_open().resources.services.teams
        if parent := teams.find_parent(run_id):
            request = TeamRequest(parent, "user", uuid.uuid4().hex, run_id, message, approve)
            return not (await teams.send(request)).is_error

        sent = InboxMessage(uuid.uuid4().hex, message, approve=approve)
        runner = self._require_open()
        services = runner.resources.services
        if event := _make_event(services, runner.latest_run, run_id, sent):
            services.teams.observe(event)
            await services.journal.append(event)
            services.watchers.show(event)
            return True
        if approve is not None:
            return False
        handle = self._find_run(run_id)
        return handle is not None and handle.send(sent) and await handle.wait_until_stored(sent.id)

    def wrap_up(self, run_id: str) -> bool:
        """Ask a running run to stop and summarise its work.

        Its report has the reason CANCELLED and `recovered`. Returns False if it is not running.
        """
        handle = self._find_run(run_id)
        return handle is not None and handle.wrap_up()

    def detach(self, run_id: str | None = None) -> bool:
        """Let the call waiting for a child or command return; the work goes on in the background.

        The parent reads the result in a notification. Returns False if no call is waiting for it.
        If the parent runs in a worker process, only whether it is running is returned.

        Arguments:
            run_id: the child, or the place of a command's call: run, turn and position. None for
                all children and commands that root runs are waiting for.

        Example:
            session.runs.detach("1.2.1")
        """
        if run_id is None:
            return self._require_open().detach_all()
        run_id = self._find_run_id(run_id)
        handle = self._find_parent(run_id)
        return handle is not None and handle.detach(run_id)

    async def list_open_work(self) -> list[OpenWork]:
        """List the runs and background commands that are working, each after its parent.

        Example:
            for work in await session.runs.list_open_work():
                print(work.id, work.title, work.seconds)
        """
        resources = self._require_open().resources
        tree = RunTree()
        async for event in resources.services.journal.read():
            tree.apply(event)
        find = resources.worker.find
        return [
            work
            for work in list_open_work(tree, now=resources.services.clock.now())
            # By the record they have not ended, but those lost with a process are not working.
            if find(work.id if work.kind == "run" else work.parent)
        ]

    def cancel(self, run_id: str | None = None) -> bool:
        """Stop a run and all runs below it, with reason CANCELLED.

        Without an id, stop everything: prompts, tasks, `map` and scopes, including those waiting to
        start. A background command's id stops the command. Returns False if nothing is running.
        """
        if run_id is None:
            return self._require_open().cancel_all()
        if handle := self._find_run(run_id):
            return handle.cancel()
        parent = self._find_parent(run_id)
        return parent is not None and parent.stop_command(run_id)

    @property
    def teammates(self) -> tuple[Teammate, ...]:
        """The session's named children, oldest first. A newer one may reuse a name.

        Example:
            for teammate in session.runs.teammates:
                print(teammate.name, teammate.state, len(teammate.unread))
        """
        return tuple(self._require_open().resources.services.teams.roster.teammates)

    def _find_run(self, run_id: str) -> RunHandle | None:
        return self._require_open().resources.worker.find(self._find_run_id(run_id))

    def _find_run_id(self, name: str) -> str:
        """Return the id of a named child's last run; any id unchanged. Raises UnknownName."""
        check_type("run_id", name, str)
        teams = self._require_open().resources.services.teams
        known = {teammate.name for teammate in teams.roster.teammates}
        wanted = normalize_name(name)
        # Run ids begin with a digit.
        if wanted[:1].isalpha() and wanted not in known:
            raise UnknownName("teammate", name, known)
        return teams.find_run_id(name)

    def _find_parent(self, work_id: str) -> RunHandle | None:
        parent = find_parent_id(work_id)
        return self._find_run(parent) if parent else None


def _make_event(
    services: SessionServices, latest_run: str, name: str, message: InboxMessage
) -> TeamMessageSent | None:
    """Make the event of a message to an idle child, which starts working with the next prompt.

    `name` is the child's, or the id of one of its runs. Returns None if no child of the
    conversation has it, or if the child cannot read the message.
    """
    roster = services.teams.roster
    wanted = roster.find(latest_run, name)
    for mate in roster.list_current(latest_run):
        if wanted is None or mate.first_run != wanted.first_run or not mate.is_idle:
            continue
        if message.approve is not None and not mate.briefs[-1].is_plan:
            return None
        return TeamMessageSent(
            at=services.clock.now(),
            to=mate.name,
            child=mate.first_run,
            message=message,
            after=latest_run,
        )
    return None


class McpControls:
    """The MCP servers of a session, `session.mcp`: their states, tools, prompts and resources.

    Each method raises UsageError while the session is not open.

    Arguments:
        require_open: returns the runner of the session.

    Example:
        def list_failed(mcp: McpControls) -> list[str]:
            return [status.name for status in mcp.servers if status.state == "failed"]

        print(list_failed(session.mcp))
    """

    def __init__(self, require_open: Callable[[], SessionRunner]) -> None:
        self._require_open = require_open

    @property
    def _servers(self) -> SessionServers | None:
        return self._require_open().resources.mcp_servers

    def _require_servers(self, kind: str, name: str) -> SessionServers:
        """Return the servers. If there are none, raises UnknownName for the thing looked up."""
        servers = self._servers
        if servers is None:
            raise UnknownName(kind, name, ())
        return servers

    @property
    def servers(self) -> tuple[ServerStatus, ...]:
        """The session's MCP servers and their states. A server starts when a run needs it.

        Example:
            for status in session.mcp.servers:
                print(status.name, status.state, status.reason)
        """
        return tuple(self._servers.list_states()) if self._servers else ()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The MCP tools known so far. A server lists them when it starts.

        Example:
            for tool in session.mcp.tools:
                print(tool.name, tool.description)
        """
        return tuple(self._servers.tools.values()) if self._servers else ()

    @property
    def prompts(self) -> tuple[ServerPrompt, ...]:
        """The MCP servers' prompts known so far. A server lists them when it starts.

        Example:
            for prompt in session.mcp.prompts:
                print(prompt.name, prompt.arguments)
        """
        return tuple(self._servers.list_prompts()) if self._servers else ()

    @property
    def resources(self) -> tuple[ServerResource, ...]:
        """The MCP servers' resources known so far. A server lists them when it starts.

        Example:
            for resource in session.mcp.resources:
                print(resource.server, resource.uri)
        """
        return tuple(self._servers.list_resources()) if self._servers else ()

    async def find_prompt(self, name: str) -> ServerPrompt:
        """Return an MCP server's prompt, starting the server if its prompts are not known yet.

        Arguments:
            name: `mcp__SERVER__PROMPT`.

        Raises UnknownName, and MudroomError with the reason if the server cannot be used.

        Example:
            print((await session.mcp.find_prompt("mcp__docs__summarize")).required)
        """
        check_type("name", name, str, "find_prompt")
        return await self._require_servers("prompt", name).find_prompt(name)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> str:
        """Return the text of an MCP server's prompt, starting the server if necessary.

        Arguments:
            name: `mcp__SERVER__PROMPT`. arguments: texts by name.

        Raises UnknownName, and MudroomError with the reason if the server cannot be used.

        Example:
            text = await session.mcp.get_prompt("mcp__docs__summarize", {"topic": "parsers"})
            await session.run(text)
        """
        check_type("name", name, str, "get_prompt")
        return await self._require_servers("prompt", name).get_prompt(name, arguments or {})

    async def read_resource(self, server: str, uri: str) -> str:
        """Return the text of an MCP server's resource, starting the server if necessary.

        Arguments:
            server: name of the server.
            uri: the resource's address, as in `resources`.

        Raises UnknownName, and MudroomError with the reason if the server cannot be used.

        Example:
            print(await session.mcp.read_resource("docs", "docs://style-guide"))
        """
        check_type("server", server, str, "read_resource")
        check_type("uri", uri, str, "read_resource")
        return await self._require_servers("MCP server", server).read_resource(server, uri)

    async def restart(self, name: str) -> None:
        """Restart an MCP server, even a failed one. Its open calls fail.

        Raises UnknownName, and MudroomError with the reason if the server cannot be used.

        Example:
            await session.mcp.restart("git")
        """
        check_type("name", name, str, "restart")
        servers = self._require_servers("MCP server", name)
        known = [status.name for status in servers.list_states()]
        if name not in known:
            raise UnknownName("MCP server", name, known)
        await servers.restart(name)
