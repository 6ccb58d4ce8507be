"""The protocol, also of `mudroom acp` as a process: messages, logins, lists, output, the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from mudroom_hosts.acp.params import InitializeParams

from ..gate import Gate
from .conftest import Line, MakeEditor


async def test_initialize_states_version_abilities_and_logins(make_editor: MakeEditor) -> None:
    editor = make_editor([])
    async with editor.serve():
        terminal = await editor.request(
            "initialize", protocolVersion=7, clientCapabilities={"auth": {"terminal": True}}
        )
    first = editor.lines[0]["result"]
    assert first["protocolVersion"] == terminal["protocolVersion"] == 1
    assert first["agentCapabilities"]["loadSession"] is True
    assert [each["id"] for each in first["authMethods"]] == ["environment"]
    assert terminal["authMethods"][1]["args"] == ["--setup"]


async def test_lines_that_are_no_messages_get_errors_and_the_server_goes_on(
    make_editor: MakeEditor,
) -> None:
    editor = make_editor(["Fine."])
    lines: list[bytes] = [
        b"garbage",
        b"[1, 2]",
        b'"text"',
        b"{}",
        b'{"jsonrpc": "2.0", "id": true, "method": "initialize"}',
        b'{"jsonrpc": "2.0", "id": null, "method": "initialize"}',
        b'{"jsonrpc": "2.0", "id": 999, "result": {}}',
        b'{"jsonrpc": "2.0", "id": "x", "result": {}}',
        b'{"jsonrpc": "2.0", "method": 7}',
        b'{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": []}}',
        b'{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": {}}}',
        b'{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 12}}',
        b'{"jsonrpc": "2.0", "method": "$/cancel_request", "params": 12}',
        b"[" * 100_000,
        b"\xff\xfe",
        b"",
    ]
    async with editor.serve():
        for line in lines:
            editor.send_bytes(line)
        session = await editor.open()
        assert (await editor.ask(session, "Work."))["stopReason"] == "end_turn"
    errors = [line["error"]["code"] for line in editor.lines if "error" in line]
    assert len(errors) == 10
    assert set(errors) == {-32700, -32600}
    assert sum("a line on stdin" in notice for notice in editor.notices) == 10


WRONG_REQUESTS: list[tuple[str, Line, int, str]] = [
    ("session/fork", {}, -32601, "mudroom has no method session/fork"),
    ("session/new", {}, -32602, "cwd"),
    ("session/new", {"cwd": "relative"}, -32602, "absolute path"),
    ("session/new", {"cwd": 3}, -32602, "cwd"),
    ("session/new", {"cwd": "/nonexistent/folder"}, -32602, "no such directory"),
    ("session/prompt", {"sessionId": "none", "prompt": []}, -32002, "is not open"),
    ("session/prompt", {"sessionId": "none"}, -32602, "prompt"),
    ("session/load", {"cwd": "/", "sessionId": "a/1.1.1"}, -32002, "recorded"),
    ("session/load", {"cwd": "/", "sessionId": "nothing"}, -32602, "nothing"),
    ("session/set_mode", {"sessionId": "none", "modeId": "plan"}, -32002, "not open"),
    ("authenticate", {"methodId": "magic"}, -32602, "magic"),
    ("initialize", {"protocolVersion": "one"}, -32602, "protocolVersion"),
]


async def test_a_wrong_request_is_an_error_that_says_what_is_wrong(make_editor: MakeEditor) -> None:
    editor = make_editor([])
    async with editor.serve():
        for method, params, code, part in WRONG_REQUESTS:
            error = await editor.request(method, **params)
            assert error["code"] == code, params
            assert part in error["message"]


def test_abilities_of_another_type_are_not_used() -> None:
    values: list[tuple[Any, bool]] = [({}, True), (None, False), (3, False), ({"x": 1}, True)]
    for value, shows in values:
        params = InitializeParams(
            1, {"subagents": value, "session": {"notices": {}}, "auth": "all", "fs": 3}
        )
        assert params.abilities.shows_children is shows
        assert params.abilities.shows_notices
        assert not (params.abilities.has_terminal or params.abilities.reads_files)


async def test_without_a_model_a_session_asks_to_log_in(make_editor: MakeEditor) -> None:
    editor = make_editor([])
    editor.has_model = False
    async with editor.serve():
        new = await editor.request("session/new", cwd=str(editor.folder), mcpServers=[])
        login = await editor.request("authenticate", methodId="environment")
        editor.has_model = True
        again = await editor.request("authenticate", methodId="environment")
    assert new["code"] == login["code"] == -32000
    assert "ANTHROPIC_API_KEY" in new["message"]
    assert again == {}


async def test_sessions_are_listed_in_pages_and_deleted(make_editor: MakeEditor) -> None:
    editor = make_editor([])
    async with editor.serve():
        first = await editor.request("session/list", cwd="/x")
        second = await editor.request("session/list", cwd="/x", cursor=first["nextCursor"])
        session = await editor.open()
        refused = await editor.request("session/delete", sessionId=session)
        assert await editor.request("session/delete", sessionId="7") == {}
    assert len(first["sessions"]) == 50
    assert len(second["sessions"]) == 10
    assert "nextCursor" not in second
    assert first["sessions"][0]["updatedAt"] == "1970-01-01T00:00:00Z"
    assert "close it first" in refused["message"]
    assert editor.notices[-1] == "deleted 7"


async def test_servers_of_the_editor_belong_to_their_session(make_editor: MakeEditor) -> None:
    editor = make_editor([])
    servers: list[Line] = [
        {"name": "a", "command": "/bin/a", "args": ["-x"], "env": [{"name": "K", "value": "v"}]},
        {
            "type": "http",
            "name": "b",
            "url": "https://b.example/mcp",
            "headers": [{"name": "H", "value": "w"}],
        },
    ]
    wrong: list[Line] = [
        {"type": "sse", "name": "c", "url": "https://c.example/sse", "headers": []},
        {"name": "d", "command": "", "args": [], "env": []},
        {"type": "http", "name": "e", "url": "", "headers": []},
    ]
    async with editor.serve():
        await editor.open(mcpServers=servers)
        await editor.open()
        errors = [
            await editor.request("session/new", cwd=str(editor.folder), mcpServers=[server])
            for server in wrong
        ]
    program, address = editor.plans[0].servers
    assert (program.transport, program.command, program.args) == ("stdio", "/bin/a", ("-x",))
    assert dict(program.env) == {"K": "v"}
    assert (address.transport, address.url) == ("http", "https://b.example/mcp")
    assert dict(address.headers) == {"H": "w"}
    assert editor.plans[1].servers == ()
    texts = [error["message"] for error in errors]
    assert "c has the transport sse" in texts[0]
    assert "d has no command" in texts[1]
    assert "e has no url" in texts[2]


async def test_the_end_of_the_input_stops_all_work(make_editor: MakeEditor) -> None:
    gate = Gate()
    editor = make_editor(gate)
    async with editor.use() as session:
        prompt = editor.start_prompt(session, "Wait.")
        await gate.asked.wait()
        editor.send_bytes(b'{"jsonrpc": "2.0", "method": "session/pro')
    result = await editor.finish(prompt)
    assert result["stopReason"] == "cancelled"


async def test_unknown_notifications_and_cancels_are_notices(make_editor: MakeEditor) -> None:
    editor = make_editor(["Fine."])
    async with editor.use() as session:
        editor.notify("session/cancel", sessionId="none")
        editor.notify("session/cancel", sessionId=session)
        editor.notify("document/didOpen", uri="x")
        editor.notify("$/progress", x=1)
        assert (await editor.ask(session, "Work."))["stopReason"] == "end_turn"
    assert editor.notices[1:] == [
        "nothing to cancel: no session 'none' works",
        "not used by mudroom: the notification document/didOpen",
    ]


def test_the_answer_to_initialize_needs_no_slow_import() -> None:
    code = (
        "import sys, mudroom._cli.commands.serve, mudroom._cli.actions.serve_acp\n"
        "slow = ('mudroom._session.session', 'mudroom._session.build', "
        "'mudroom._adapters.models.pricing', 'pydantic', 'acp')\n"
        "print([name for name in slow if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def run_acp(folder: Path, *words: str, input: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mudroom", "acp", *words],
        input=input,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        check=False,
    )


def test_the_process_answers_only_with_lines_and_ends_with_its_input(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [
        {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}},
        {"id": 1, "method": "session/new", "params": {"cwd": str(tmp_path), "mcpServers": []}},
        {"id": 2, "method": "session/list", "params": {}},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", **message}) for message in messages]
    lines.append('{"jsonrpc": "2.0", "id": 3, "meth')
    done = run_acp(tmp_path, "-m", "offline", input="\n".join(lines))
    assert done.returncode == 0
    answers = {line.get("id"): line for line in map(json.loads, done.stdout.splitlines())}
    assert answers[0]["result"]["agentInfo"]["name"] == "mudroom"
    assert answers[1]["result"]["modes"]["currentModeId"] == "default"
    assert answers[2]["result"] == {"sessions": []}
    assert "a line on stdin is no JSON" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_key_the_setup_says_so(tmp_path: Path) -> None:
    done = run_acp(tmp_path, "--setup")
    assert done.returncode == 1
    assert "no model is set up" in done.stderr
    done = run_acp(tmp_path, "--setup", "-m", "offline")
    assert done.returncode == 0
    assert done.stdout.startswith("Model: offline (flag)")
