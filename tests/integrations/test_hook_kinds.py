"""Kinds of hooks: inputs and outputs as data, addresses, tools of servers, the Gemini CLI."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec import UNSET, structs
from tests.integrations.mcp_servers.servers import count_starts, make_quick

from mudroom import ApprovalDecision, ApprovalRequest, Integrations, Reason, Session
from mudroom._adapters.integrations.hook_programs.events import RULES
from mudroom._adapters.integrations.hook_programs.load import load_hooks
from mudroom._adapters.integrations.hook_programs.outcome import HookOutcome, read_ending
from mudroom._adapters.integrations.hook_programs.remote_hooks import fill_places
from mudroom._adapters.integrations.hook_programs.spec import HookSpec
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.permissions import Permissions

from .hook_helpers import make_set, make_spec
from .test_hook_functions import Recorder, make_options

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("hook_inputs.json").read_text())
"""The whole input of the first hook of each event."""
SCRIPT = [
    [call("read", file_path="notes.txt"), call("read", file_path="missing.txt")],
    [call("bash", command="touch made"), call("task", prompt="D1 child")],
    "end",
]


class Denier:
    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        return ApprovalDecision(False, "not today")


def remove_chances(value: Any, names: dict[str, str]) -> Any:
    """Return an input without what differs from run to run: paths, ids, and durations."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            key: 0 if key == "duration_ms" else remove_chances(each, names)
            for key, each in fields.items()
        }
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [remove_chances(each, names) for each in items]
    if isinstance(value, str):
        for name, replacement in names.items():
            value = value.replace(name, replacement)
    return value


async def test_each_event_has_the_input_of_the_record(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\n")
    recorder = Recorder()
    model = ScriptedModel(
        lambda request: "done" if request.prompt.startswith("D1") else SCRIPT[min(request.turn, 2)]
    )
    options = make_options(
        tmp_path,
        integrations=Integrations(hooks=recorder.on(*RULES)),
        model=model,
        approver=Denier(),
    )
    async with Session(**options, permissions=Permissions.of(ask=["Bash"])) as session:
        await session.run("D0")
        await session.compact()
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(tmp_path))
    names = {session.id: "SESSION", str(tmp_path): "/FOLDER", slug: "-FOLDER"}
    inputs = remove_chances(recorder.inputs, names)
    first = {each["hook_event_name"]: each for each in reversed(inputs)}
    assert first == GOLDEN
    assert set(first) == set(RULES)


CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("hook_outputs.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["title"] for case in CASES])
def test_an_output_has_its_outcome(case: dict[str, Any]) -> None:
    printed = case.get("stdout", "")
    stdout = printed if isinstance(printed, str) else json.dumps(printed)
    outcome = read_ending(case["event"], case.get("code", 0), stdout, case.get("stderr", ""))
    found = {
        name: value for name, value in structs.asdict(outcome).items() if value != DEFAULTS[name]
    }
    expected = dict(case["expect"])
    if failure := expected.pop("failure", ""):
        assert found.pop("failure").startswith(failure)
    assert found == expected


DEFAULTS = structs.asdict(HookOutcome())
assert DEFAULTS["updated_output"] is UNSET


def test_the_corpus_has_each_event_and_no_title_twice() -> None:
    from mudroom._adapters.integrations.hook_programs.events import RULES

    assert {case["event"] for case in CASES} == set(RULES)
    assert len({case["title"] for case in CASES}) == len(CASES) >= 60


CALL: dict[str, Any] = {
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "ls", "timeout": 5},
}


def write_settings(folder: Path, matcher: str, command: str, event: str = "BeforeTool") -> None:
    path = folder / ".gemini/settings.json"
    path.parent.mkdir(exist_ok=True)
    groups = [{"matcher": matcher, "hooks": [{"type": "command", "command": command}]}]
    path.write_text(json.dumps({"hooks": {event: groups}}))


@pytest.mark.parametrize(
    ("matcher", "selects"),
    [
        ("run_shell_command", True),
        ("run_.*", True),
        ("write_file|replace", False),
        ("", True),
        ("Bash", True),
    ],
)
async def test_matchers_select_by_the_names_of_the_gemini_cli(
    tmp_path: Path, matcher: str, selects: bool
) -> None:
    write_settings(tmp_path, matcher, "cat > read.json")
    hooks = make_set(tmp_path, *load_hooks(str(tmp_path), user_home="").hooks)
    await hooks.fire("PreToolUse", CALL)
    await hooks.close()
    read = tmp_path / "read.json"
    assert read.exists() is selects
    if selects:
        sent = json.loads(read.read_text())
        assert (sent["hook_event_name"], sent["tool_name"]) == ("BeforeTool", "run_shell_command")


async def test_a_changed_argument_leaves_the_others(tmp_path: Path) -> None:
    own = {"hookEventName": "BeforeTool", "tool_input": {"command": "ls -l"}}
    output = json.dumps({"decision": "allow", "hookSpecificOutput": own})
    write_settings(tmp_path, "run_shell_command", f"echo '{output}'")
    hooks = make_set(tmp_path, *load_hooks(str(tmp_path), user_home="").hooks)
    outcome = await hooks.fire("PreToolUse", CALL)
    await hooks.close()
    assert outcome.failure == ""
    assert outcome.decision == "allow"
    assert outcome.updated_input == {"command": "ls -l", "timeout": 5}


async def test_deny_and_its_reason_block_a_call(tmp_path: Path) -> None:
    output = json.dumps({"decision": "deny", "reason": "not here"})
    write_settings(tmp_path, "write_file", f"echo '{output}'")
    hooks = make_set(tmp_path, *load_hooks(str(tmp_path), user_home="").hooks)
    outcome = await hooks.fire("PreToolUse", {**CALL, "tool_name": "Write"})
    await hooks.close()
    assert (outcome.decision, outcome.reason) == ("deny", "not here")


DENIAL = {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}}


class HookServer:
    """Server of hooks. `requests`: pairs of headers and input, in order."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], Any]] = []
        self.url = ""
        self.is_open = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((dict(request.headers), json.loads(await request.read())))
        kind = request.path.rpartition("/")[2]
        if kind == "wait":
            await self.is_open.wait()
        answers = {
            "deny": lambda: web.json_response(DENIAL),
            "text": lambda: web.Response(text="some context"),
            "broken": lambda: web.Response(text="{broken"),
            "status": lambda: web.json_response(DENIAL, status=500),
            "moved": lambda: web.Response(status=302, headers={"Location": f"{self.url}/deny"}),
            "nothing": lambda: web.Response(status=204),
            "wait": lambda: web.Response(),
        }
        return answers[kind]()


@pytest.fixture
async def server() -> AsyncGenerator[HookServer]:
    hooks = HookServer()
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/{kind}", hooks.answer)
    async with TestServer(app) as running:
        hooks.url = str(running.make_url("")).rstrip("/")
        yield hooks
        hooks.is_open.set()


def make_http(server: HookServer, kind: str, event: str = "PreToolUse", **fields: Any):
    return make_spec(event, "", kind="http", url=f"{server.url}/{kind}", shown=kind, **fields)


async def test_answers_of_an_address_have_outcomes(
    server: HookServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fire(kind: str, event: str = "PreToolUse", **fields: Any):
        hooks = make_set(tmp_path, make_http(server, kind, event, **fields))
        outcome = await hooks.fire(event, {"hook_event_name": event, "text": "é" * 90_000})
        await hooks.close()
        return outcome

    denied = await fire("deny")
    assert (denied.decision, denied.reason) == ("deny", "no")
    assert server.requests[0][1] == {"hook_event_name": "PreToolUse", "text": "é" * 90_000}
    assert (await fire("text", "UserPromptSubmit")).context == "some context"
    assert (await fire("nothing")).decision == ""
    assert not caplog.messages
    failures = {
        "broken": "its output begins with { and is no JSON object",
        "status": "the answer has status 500",
        "moved": "the answer has status 302",
        "wait": "there was no answer within 0.2 s",
    }
    for kind, failure in failures.items():
        outcome = await fire(kind, timeout=0.2 if kind == "wait" else None)
        assert (outcome.decision, outcome.context) == ("", "")
        assert failure in caplog.messages[-1]
    blocked = await fire("status", blocks_on_failure=True)
    assert blocked.decision == "deny"


async def test_headers_have_only_the_variables_that_the_hook_names(
    server: HookServer, tmp_path: Path
) -> None:
    headers = {"Authorization": "Bearer ${TOKEN}", "X-Other": "$OTHER!"}
    spec = make_http(server, "nothing", headers=headers, allowed_variables=("TOKEN",))
    hooks = make_set(tmp_path, spec, environ={"TOKEN": "t", "OTHER": "secret"})
    await hooks.fire("PreToolUse", {})
    await hooks.close()
    sent = server.requests[0][0]
    assert (sent["Authorization"], sent["X-Other"]) == ("Bearer t", "!")
    assert sent["Content-Type"] == "application/json"


async def test_an_address_decides_about_the_calls_that_its_condition_selects(
    server: HookServer, tmp_path: Path
) -> None:
    chosen = make_http(server, "deny", condition="Bash(touch *)", matcher="Bash")
    others = [
        make_http(server, "status", condition="Bash(git *)"),
        make_http(server, "status", condition="Edit(*.py)"),
        make_http(server, "status", event="Stop", condition="Bash(touch *)"),
    ]
    options = make_options(tmp_path, integrations=Integrations(hook_programs=[chosen, *others]))
    async with Session(**options) as session:
        await session.run("D2")
    assert not (tmp_path / "made").exists()
    ((_, sent),) = server.requests
    assert sent["tool_input"] == {"command": "touch made"}


FIELDS = {"tool_input": {"file_path": "/a/b.py", "count": 3, "flags": ["x"]}, "empty": None}
DECISION = {
    "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "no ${tool_input.command} here",
    }
}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${tool_input.file_path}", "/a/b.py"),
        ("in ${tool_input.file_path}, ${tool_input.count} times", "in /a/b.py, 3 times"),
        ("${tool_input.flags}", '["x"]'),
        ("[${empty}][${none}][${tool_input.count.x}]", "[][][]"),
        ({"a": ["${tool_input.count}", 5, None]}, {"a": ["3", 5, None]}),
        ("$tool_input ${} ${a b}", "$tool_input ${} ${a b}"),
    ],
)
def test_parts_of_the_input_replace_their_places(value: Any, expected: Any) -> None:
    assert fill_places(value, FIELDS) == expected


def make_hook(event: str, tool: str, given: object, server: str = "quick") -> HookSpec:
    options = {"server": server, "tool": tool, "input": given}
    return make_spec(event, "", kind="mcp_tool", options=options, shown=f"{server} {tool}")


async def test_a_tool_of_a_server_decides_and_adds_text(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        if request.turn == 0:
            return [call("bash", command="touch made")]
        return str(request.messages)

    server = make_quick(fault="echoes", log=tmp_path / "log")
    hooks = [
        make_hook("PreToolUse", "echo", DECISION),
        make_hook("UserPromptSubmit", "add", {"a": 2, "b": 3}),
        make_hook("UserPromptSubmit", "add", {"a": 40, "b": 2}),
        make_hook("UserPromptSubmit", "add", {"a": 40, "b": 2}),
    ]
    options = make_options(tmp_path, model=ScriptedModel(answer))
    async with Session(
        **options, integrations=Integrations(mcp_servers=[server], hook_programs=hooks)
    ) as session:
        report = await session.run("Work.")
    assert report.reason is Reason.GOAL
    assert "no touch made here" in report.text
    assert "[hook UserPromptSubmit] 5" in report.text
    assert report.text.count("42") == 1
    assert not (tmp_path / "made").exists()
    assert count_starts(tmp_path / "log") == 1


async def test_a_tool_that_fails_or_does_not_exist_is_a_failed_hook(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = [
        make_hook("UserPromptSubmit", "echo", {"text": "bad"}),
        make_hook("UserPromptSubmit", "ad", {}),
        make_hook("UserPromptSubmit", "add", {}, server="quack"),
        make_hook("UserPromptSubmit", "add", ["no object"]),
    ]
    options = make_options(tmp_path, model=ScriptedModel(["end"]))
    servers = [make_quick(fault="echoes")]
    async with Session(
        **options, integrations=Integrations(mcp_servers=servers, hook_programs=hooks)
    ) as session:
        assert (await session.run("Work.")).text == "end"
    for reason in ("the tool failed", "unknown tool 'ad'", "'quack'", "its input is not an object"):
        assert reason in caplog.text
    outcome = await make_set(tmp_path, hooks[0]).fire("UserPromptSubmit", {})
    assert outcome.decision == ""
    assert "its MCP server is used in a session only" in caplog.text
