"""`mudroom mcp`, `mudroom hooks`, `mudroom trust`: listings, and changes of files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mudroom._cli.actions.doctor import check_servers
from mudroom._cli.actions.load_permissions import load_permissions
from mudroom._cli.actions.load_settings import load_settings
from mudroom._cli.actions.programs.edit_servers import add_member, remove_member
from mudroom._cli.actions.programs.load_programs import list_server_names, load_programs
from mudroom._session.config import Settings

from ..integrations.mcp_servers.servers import QUICK_SERVER, count_starts, make_quick
from .conftest import Run


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def declare(project: Path) -> None:
    write(
        project / ".mcp.json",
        {"mcpServers": {"git": {"command": "git-server", "env": {"API_KEY": "hunter2"}}, "x": 1}},
    )
    groups = [{"matcher": "Bash", "hooks": [{"command": "guard"}]}]
    never = [{"hooks": [{"command": "watch"}]}]
    write(
        project / ".claude/settings.json", {"hooks": {"PreToolUse": groups, "FileChanged": never}}
    )


def test_the_lists_say_what_there_is_and_why_something_is_not_used(
    project: Path, call: Run
) -> None:
    assert call("mcp")[1].startswith("no MCP servers") and call("hooks")[1].startswith(
        "no hooks. They"
    )
    declare(project)
    code, out, _ = call("mcp")
    assert code == 0 and "hunter2" not in out
    assert out.splitlines()[:3] == [
        "git  API_KEY=*** git-server",
        f"     stdio, not trusted; {project}/.mcp.json",
        "See them: mudroom trust. Use them: mudroom trust add, or --trust for one run.",
    ]
    assert f"problem: {project}/.mcp.json: server x is not used: it is no table" in out
    code, out, _ = call("hooks")
    assert out.splitlines()[:4] == [
        "PreToolUse for Bash  guard",
        f"                     not trusted; {project}/.claude/settings.json",
        "FileChanged          watch",
        "                     not used: the event never happens here;"
        f" {project}/.claude/settings.json",
    ]
    code, out, _ = call("mcp", "get", "git")
    assert "call timeout   28800 s" in out and "hunter2" not in out
    assert call("mcp", "get", "got")[0] == 2


def test_each_list_has_the_problems_of_its_own_files(project: Path, call: Run) -> None:
    declare(project)
    hooks = {"PreToolUse": [{"hooks": [{"command": 7}]}]}
    write(project / ".claude/settings.json", {"hooks": hooks})
    servers = call("mcp")[1]
    assert "server x is not used" in servers and "command" not in servers
    listed = call("hooks")[1]
    assert "command must be a text" in listed and "server x" not in listed
    assert "mcp.json" not in call("hooks", "list", "--json")[1]
    assert "settings.json" not in call("mcp", "list", "--json")[1]


def test_the_lists_as_json(project: Path, call: Run) -> None:
    declare(project)
    listed = json.loads(call("mcp", "list", "--json")[1])
    assert listed["servers"] == [
        {
            "name": "git",
            "transport": "stdio",
            "command": "API_KEY=*** git-server",
            "scope": "project",
            "origin": f"{project}/.mcp.json",
            "used": False,
            "reason": "not trusted",
        }
    ]
    assert [finding["is_problem"] for finding in listed["findings"]] == [True]
    hooks = json.loads(call("hooks", "list", "--json")[1])["hooks"]
    assert [(hook["event"], hook["matcher"], hook["fires"]) for hook in hooks] == [
        ("PreToolUse", "Bash", True),
        ("FileChanged", "", False),
    ]
    here = json.loads(call("trust", "list", "--json")[1])["programs_here"]
    assert [(item["name"], item["trusted"]) for item in here] == [
        ("MCP server git", False),
        ("hook PreToolUse for Bash", False),
    ]
    assert json.loads(call("mcp", "get", "git", "--json")[1])[0]["call timeout"] == "28800 s"


def test_trust_lists_the_whole_commands_and_ends(project: Path, call: Run) -> None:
    declare(project)
    out = call("trust")[1]
    assert "no folder is trusted for its agents" in out and "hook PreToolUse for Bash  guard" in out
    assert "To trust them: mudroom trust add" in out
    out = call("trust", "add")[1]
    assert f"trusted: {project}" in out and "outside the sandbox" in out
    assert "API_KEY=*** git-server" in out and "guard" in out
    out = call("trust")[1]
    assert f"2 trusted programs of {project}" in out and "not trusted" not in out
    assert "stdio, used;" in call("mcp")[1]
    write(project / ".mcp.json", {"mcpServers": {"git": {"command": "evil"}}})
    assert "stdio, not trusted;" in call("mcp")[1]
    assert call("trust", "remove")[0] == 0
    assert call("trust", "remove")[0] == 2


def test_a_folder_that_is_trusted_for_agents_does_not_start_programs(
    project: Path, call: Run
) -> None:
    assert call("trust", "add")[0] == 0
    declare(project)
    assert "not trusted" in call("mcp")[1]
    _, _, err = call("-p", "hello", "-m", "offline")
    assert err.count("not used: 1 MCP server and 1 hook of this folder") == 1


def test_a_setting_of_a_file_does_not_trust_programs(project: Path, call: Run) -> None:
    declare(project)
    write(project.parent / "state" / "config.toml", "trust = true\n")
    assert "which are not trusted" in call("-p", "hello", "-m", "offline")[2]
    assert "which are not trusted" not in call("-p", "hello", "-m", "offline", "--trust")[2]


def test_add_and_remove_a_server(project: Path, call: Run) -> None:
    code, out, err = call("mcp", "add", "time", "uvx", "time-server", "--zone", "X")
    assert (code, out) == (0, f"{project}/.mcp.json\n")
    assert err == "Added: time. The next session uses it.\n"
    assert (
        (project / ".mcp.json")
        .read_text()
        .startswith('{\n  "mcpServers": {\n    "time": {\n      "command": "uvx",\n')
    )
    assert json.loads((project / ".mcp.json").read_text()) == {
        "mcpServers": {"time": {"command": "uvx", "args": ["time-server", "--zone", "X"]}}
    }
    assert "stdio, used;" in call("mcp")[1]
    header = ("-H", "Authorization: Bearer ${TOKEN}")
    code, out, _ = call("mcp", "add", "--scope", "user", *header, "docs", "https://d.example/mcp")
    assert call("mcp", "add", "--scope", "user", "time", "z")[2].startswith(
        f"Added: time. Not used: {project}/.mcp.json has the same name"
    )
    assert call("mcp", "remove", "--scope", "user", "time")[2] == "Removed: time\n"
    own = project.parent / "state" / "mcp.json"
    assert (code, out) == (0, f"{own}\n")
    assert json.loads(own.read_text())["mcpServers"]["docs"] == {
        "type": "http",
        "url": "https://d.example/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
    }
    assert "http, used;" in call("mcp")[1]
    assert call("mcp", "add", "time", "x")[0] == 2
    code, _, err = call("mcp", "add", "far", "--url", "https://far.example/mcp")
    assert code == 2
    assert "a command or an address must follow the name of the server (--url)" in err
    assert call("mcp", "remove", "docs")[1] == f"{own}\n"
    assert call("mcp", "remove", "time")[0] == 0
    assert call("mcp")[1].startswith("no MCP servers")


def test_doctor_starts_each_trusted_server_once(project: Path, call: Run) -> None:
    log = project.parent / "starts"
    quick = ("-e", f"SERVER_LOG={log}", "quick", sys.executable, str(QUICK_SERVER))
    call("mcp", "add", "--scope", "user", *quick)
    call("mcp", "add", "--scope", "user", "lost", "/no/such/program")
    started = project.parent / "started"
    write(
        project / ".mcp.json", {"mcpServers": {"new": {"command": "touch", "args": [f"{started}"]}}}
    )
    code, out, err = call("doctor", "--json")
    rows = {
        check["name"]: check
        for check in json.loads(out)["checks"]
        if "mcp" in check["name"].lower()
    }
    assert (code, err) == (1, "") and not started.exists()
    assert list(rows) == ["MCP servers", "MCP server quick", "MCP server lost", "mcp serve"]
    assert "; 7 tools, " in rows["MCP server quick"]["found"] and count_starts(log) == 1
    assert "'/no/such/program' cannot be started: No such file" in rows["MCP server lost"]["found"]
    assert rows["MCP server lost"]["remedy"].startswith("mudroom mcp get lost shows its settings")
    assert rows["mcp serve"]["found"].startswith("hosts can start it; package mcp 2.")


def test_doctor_shows_no_secret_of_a_server(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", "bearer-5e6f7a8b")
    secrets = ("licence-1a2b3c4d", "header-9f8e7d6c", "bearer-5e6f7a8b", "client-0c1d2e3f")
    server = make_quick(
        fault="no_start",
        env={"LICENCE_KEY": secrets[0], "LAST_LINES": f"refused: {' '.join(secrets)}"},
        headers={"Authorization": f"Bearer {secrets[1]}"},
        bearer_token_variable="OTHER",
        oauth={"client_secret": secrets[3]},
    )
    (check,) = check_servers([server], load_settings("."), str(project))
    assert check.state == "fail" and "last lines: refused: [redacted: $LICENCE_KEY]" in check.result
    assert not [secret for secret in secrets if secret in check.result]


def test_a_list_of_tools_shows_no_secret_of_a_server(project: Path, call: Run) -> None:
    variables = ("-e", "LICENCE_KEY=a1b2c3d4e5", "-e", "LAST_LINES=refused: a1b2c3d4e5")
    program = (sys.executable, str(QUICK_SERVER), "no_start")
    call("mcp", "add", "--scope", "user", *variables, "quick", *program)
    code, out, _ = call("mcp", "tools")
    assert code == 1 and "last lines: refused: [redacted: $LICENCE_KEY]" in out
    assert "a1b2c3d4e5" not in out


def test_a_server_that_cannot_start_is_reported_once(project: Path, call: Run) -> None:
    call("mcp", "add", "--scope", "user", "lost", "/no/such/program")
    code, out, err = call("mcp", "call", "lost", "add")
    assert (code, out) == (2, "") and err.count("cannot be used") == 1
    code, out, err = call("mcp", "tools")
    assert (code, err) == (1, "") and out.count("cannot be started") == 1


def test_a_list_of_tools_says_what_is_left_out(project: Path, call: Run) -> None:
    call("mcp", "add", "--scope", "user", "quick", sys.executable, str(QUICK_SERVER), "tasks")
    code, out, err = call("mcp", "tools")
    assert code == 0 and "mcp__quick__pid" in out and "mcp__quick__add" not in out
    assert "the tool add works only as a task" in " ".join(out.split())
    assert err == ""


def test_a_list_of_tools_names_servers_that_are_not_trusted(project: Path, call: Run) -> None:
    declare(project)
    call("mcp", "add", "mine", "touch", str(project / "started"))
    code, out, _ = call("mcp", "tools")
    assert code == 0 and not (project / "started").exists()
    assert ["mine", "not", "used:", "not", "trusted"] in [each.split() for each in out.splitlines()]
    assert "mudroom trust add" in out and "no MCP servers" not in out


def test_add_to_an_untrusted_folder_trusts_nothing(project: Path, call: Run) -> None:
    declare(project)
    _, _, err = call("mcp", "add", "mine", "run", "-e", "A=b")
    assert "To use it, trust the programs of this folder: mudroom trust add" in err
    assert "uses it" in call("mcp", "add", "--scope", "user", "own", "run")[2]
    assert call("mcp")[1].count("stdio, not trusted;") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "a b", "x"), "cannot be the name of a server"),
        (("add", "-e", "A", "a", "x"), "has not the form NAME=VALUE"),
        (("add", "-H", "A: b", "a", "x"), "--header is not for the transport stdio"),
        (("add", "a", "https://x", "arg"), "--env and arguments are not for the transport http"),
        (("add", "-t", "http", "a", "x"), "needs an address"),
        (("add", "-t", "stdio", "a", "https://x"), "needs a command"),
        (("remove", "nope"), "unknown MCP server 'nope'"),
        (("remove", "cursor"), "is in a file that this command does not change"),
    ],
)
def test_wrong_changes_are_refused(
    project: Path, call: Run, arguments: tuple[str, ...], message: str
) -> None:
    write(project / ".cursor/mcp.json", {"mcpServers": {"cursor": {"command": "x"}}})
    code, out, err = call("mcp", *arguments)
    assert (code, out) == (2, "") and message in err
    assert not (project / ".mcp.json").exists()


def test_a_file_with_comments_is_not_changed(project: Path, call: Run) -> None:
    path = write(project / ".mcp.json", '{"mcpServers": {} // mine\n}')
    assert "comments are not understood here" in call("mcp", "add", "a", "x")[2]
    assert path.read_text() == '{"mcpServers": {} // mine\n}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", '{\n  "a": 1\n}'),
        ('{"b": [1, 2.50]}', '{"b": [1, 2.50], "a": 1}'),
        ('{\n\t"b": {"c": 1}\n}\n', '{\n\t"b": {"c": 1},\n\t"a": 1\n}\n'),
        ('{\n "b":1 }', '{\n "b":1,\n "a": 1 }'),
    ],
)
def test_a_new_member_leaves_all_other_text_as_it_is(text: str, expected: str) -> None:
    changed = add_member(text, 0, "a", 1)
    assert changed == expected
    assert json.loads(remove_member(changed, 0, "a")) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": {"x": [1]} }', "{ }"),
        ('{\n  "a": 1,\n  "b": 2.50\n}', '{\n  "b": 2.50\n}'),
        ('{\n  "b": "}",\n  "a": {\n  }\n}\n', '{\n  "b": "}"\n}\n'),
        ('{"a": 1, "b\\"": 2, "a": 3}', '{"b\\"": 2}'),
    ],
)
def test_a_removed_member_leaves_all_other_text_as_it_is(text: str, expected: str) -> None:
    assert remove_member(text, 0, "a") == expected


def test_a_rule_for_a_tool_of_a_server_that_is_used_is_no_mistake(project: Path, call: Run) -> None:
    call("mcp", "add", "my-files", "server")
    programs = load_programs(load_settings(str(project)), str(project))
    rules = ("mcp__my-files__read", "mcp__my-files", "mcp__*", "mcp__my-file__read")
    settings = Settings(allowed_tools=",".join(rules))
    notices = load_permissions(settings, str(project), servers=list_server_names(programs)).notices
    assert len(notices) == 1 and "mcp__my-file__read" in notices[0]
    assert not load_permissions(settings, str(project)).notices


def test_a_server_with_the_transport_sse_is_not_used(project: Path, call: Run) -> None:
    assert call("mcp", "add", "-t", "sse", "old", "https://x")[0] == 2
    write(project / ".mcp.json", {"mcpServers": {"old": {"type": "sse", "url": "https://x"}}})
    call("trust", "add")
    assert "sse, not used: the transport sse is not supported" in call("mcp")[1]
