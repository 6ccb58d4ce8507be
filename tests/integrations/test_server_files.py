"""MCP servers in the files of six programs: fields, variables, precedence, findings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mudroom._adapters.integrations.config_files import Finding
from mudroom._adapters.integrations.mcp_servers.load import load_servers
from mudroom._adapters.integrations.mcp_servers.spec import ServerSpec

ENVIRON = {"TOKEN": "t0ken", "HOST": "example.org"}


class Files:
    """A user's home folder, and a project with a git root."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = root / "home" / "work" / "project"
        (self.project / ".git").mkdir(parents=True)

    def write(self, path: str, content: Any, *, at: Path | None = None) -> Path:
        """Write a file of the project, or below another folder."""
        file = (at or self.project) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    def load(
        self, environ: dict[str, str] | None = None
    ) -> tuple[dict[str, ServerSpec], list[Finding]]:
        loaded = load_servers(
            str(self.project), user_home=str(self.home), environ=environ or ENVIRON
        )
        first: dict[str, ServerSpec] = {}
        for server in loaded.servers:
            first.setdefault(server.name, server)
        return first, loaded.findings


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_all_fields_of_claude_code(files: Files) -> None:
    entry = {
        "command": "${HOST}/bin",
        "args": ["--token", "${TOKEN}", "${MISSING:-default}"],
        "env": {"PORT": 8080, "KEY": "${TOKEN}", "NODE_OPTIONS": "--require ./x.js"},
        "timeout": 5000,
        "alwaysLoad": True,
    }
    remote = {
        "type": "http",
        "url": "https://${HOST}/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
        "headersHelper": "./headers.sh",
        "oauth": {"clientId": "me", "callbackPort": 7777, "scope": "read write"},
    }
    path = files.write(".mcp.json", {"mcpServers": {"here": entry, "there": remote}})
    servers, findings = files.load()
    assert findings == []
    here = servers["here"]
    assert (here.transport, here.command) == ("stdio", "example.org/bin")
    assert here.args == ("--token", "t0ken", "default")
    assert here.env == {"PORT": "8080", "KEY": "t0ken", "NODE_OPTIONS": "--require ./x.js"}
    assert (here.call_timeout, here.start_timeout, here.always_load) == (5.0, 30.0, True)
    assert (here.scope, here.origin, here.place) == ("project", str(path), str(files.project))
    assert here.cwd == str(files.project)
    assert here.shown == (
        "PORT=8080 KEY=${TOKEN} NODE_OPTIONS=--require ./x.js"
        " '${HOST}/bin' --token '${TOKEN}' '${MISSING:-default}'"
    )
    there = servers["there"]
    assert (there.transport, there.url) == ("http", "https://example.org/mcp")
    assert there.headers == {"Authorization": "Bearer t0ken"}
    assert there.headers_helper == "./headers.sh"
    assert there.oauth == {"client_id": "me", "callback_port": 7777, "scopes": ["read", "write"]}
    assert "t0ken" not in there.shown + here.shown and "./headers.sh" in there.shown


def test_the_files_of_the_other_programs(files: Files) -> None:
    files.write(
        ".cursor/mcp.json",
        {
            "mcpServers": {
                "cursor": {
                    "command": "${workspaceFolder}/run",
                    "args": ["${env:TOKEN}", "${userHome}"],
                    "envFile": "${workspaceFolder}/.env",
                }
            }
        },
    )
    files.write(".env", 'A="1"\n# no\nexport B=two\n')
    files.write(
        ".vscode/mcp.json",
        """{
          // comments and a last comma are allowed here: "{"
          "servers": {"code": {"type": "stdio", "command": "code-server", "cwd": "sub",},},
          /* nothing is asked for */ "inputs": []
        }""",
    )
    files.write(
        ".gemini/settings.json",
        {
            "mcpServers": {
                "gem": {
                    "command": "gem",
                    "args": ["$TOKEN", "${HOST}", "$5"],
                    "timeout": 60000,
                    "trust": True,
                    "includeTools": ["a"],
                    "excludeTools": ["b"],
                },
                "gem-http": {"httpUrl": "https://g.example/mcp"},
                "gem-sse": {"url": "https://g.example/sse"},
                "gem-off": {"command": "x"},
            },
            "mcp": {"excluded": ["gem-off"]},
        },
    )
    files.write(
        ".codex/config.toml",
        """
        model = "x"
        [mcp_servers.codex]
        command = "codex-server"
        args = ["$TOKEN"]
        env_vars = ["TOKEN", {name = "HOST"}, "MISSING"]
        startup_timeout_sec = 5
        tool_timeout_sec = 2.5
        enabled_tools = ["a"]
        disabled_tools = ["b"]
        supports_parallel_tool_calls = true
        [mcp_servers.codex-http]
        url = "https://c.example/mcp"
        bearer_token_env_var = "TOKEN"
        env_http_headers = {X-Host = "HOST"}
        http_headers = {X-A = "a"}
        scopes = ["s"]
        oauth_resource = "https://c.example"
        [mcp_servers.codex-off]
        command = "x"
        enabled = false
        """,
    )
    files.write(
        "opencode.json",
        {
            "mcp": {
                "one": {
                    "type": "local",
                    "command": ["npx", "-y", "one"],
                    "environment": {"T": "{env:TOKEN}"},
                    "timeout": 7000,
                },
                "one-off": {"type": "remote", "url": "https://o.example", "enabled": False},
            }
        },
    )
    files.write(
        ".opencode/opencode.jsonc",
        {
            "mcp": {
                "servers": {
                    "two": {
                        "type": "remote",
                        "url": "https://o.example/mcp",
                        "headers": {"A": "{file:secret.txt}"},
                        "oauth": False,
                        "timeout": {"startup": 1000, "request": 2000},
                    }
                }
            }
        },
    )
    files.write(".opencode/secret.txt", "s3cret\n")
    servers, findings = files.load()
    project = str(files.project)
    assert servers["cursor"].command == f"{project}/run"
    assert servers["cursor"].args == ("t0ken", str(files.home))
    assert servers["cursor"].env == {"A": "1", "B": "two"}
    assert servers["code"].cwd == f"{project}/sub"
    gem = servers["gem"]
    assert gem.args == ("t0ken", "example.org", "$5") and gem.call_timeout == 60
    assert (gem.include, gem.exclude, gem.is_trusted) == (("a",), ("b",), False)
    assert servers["gem-http"].transport == "http" and servers["gem-sse"].transport == "sse"
    codex = servers["codex"]
    assert codex.args == ("$TOKEN",) and codex.env == ENVIRON
    assert (codex.start_timeout, codex.call_timeout) == (5.0, 2.5)
    assert (codex.include, codex.exclude) == (("a",), ("b",))
    assert not codex.is_parallel and not codex.is_trusted
    remote = servers["codex-http"]
    assert remote.bearer_token_variable == "TOKEN"
    assert remote.headers == {"X-A": "a", "X-Host": "example.org"}
    assert remote.oauth == {"scopes": ["s"], "resource": "https://c.example"}
    one, two = servers["one"], servers["two"]
    assert (one.command, one.args, one.env) == ("npx", ("-y", "one"), {"T": "t0ken"})
    assert one.start_timeout == 7
    assert two.headers == {"A": "s3cret"} and two.oauth == {}
    assert (two.start_timeout, two.call_timeout) == (1.0, 2.0)
    assert not {"gem-off", "codex-off", "one-off"} & servers.keys()
    assert sorted(finding.text for finding in findings) == [
        "server codex-off: it is turned off in the file",
        "server codex: supports_parallel_tool_calls counts only in your own files",
        "server gem-off is turned off",
        "server gem: trust counts only in your own files",
        "server one-off: it is turned off in the file",
    ]
    assert not any(finding.is_problem for finding in findings)


def test_only_files_of_the_user_trust_a_server(files: Files) -> None:
    entry = {"command": "x", "trust": True}
    codex = '[mcp_servers.codex]\ncommand = "x"\nsupports_parallel_tool_calls = true'
    files.write(".mcp.json", {"mcpServers": {"shared": entry}})
    files.write(".gemini/settings.json", {"mcpServers": {"shared-gemini": entry}})
    files.write(".claude.json", {"mcpServers": {"own": entry}}, at=files.home)
    files.write(".gemini/settings.json", {"mcpServers": {"gemini": entry}}, at=files.home)
    files.write(".codex/config.toml", codex, at=files.home)
    servers, findings = files.load()
    assert {name for name, server in servers.items() if server.is_trusted} == {"own", "gemini"}
    assert servers["codex"].is_parallel
    assert sorted(finding.text for finding in findings) == [
        "server shared-gemini: trust counts only in your own files",
        "server shared: trust counts only in your own files",
    ]


def test_the_nearest_definition_comes_first(files: Files) -> None:
    def write(path: str, *names: str, at: Path | None = None) -> None:
        servers = {name: {"command": f"from {path}"} for name in names}
        files.write(path, {"mcpServers": servers}, at=at)

    files.write(
        ".claude.json",
        {
            "numStartups": 5,
            "mcpServers": {name: {"command": "user"} for name in "abcd"},
            "projects": {
                str(files.project): {"mcpServers": {"a": {"command": "local"}}},
                "/elsewhere": {"mcpServers": {"e": {"command": "wrong project"}}},
            },
        },
        at=files.home,
    )
    write(".mcp.json", "a", "b")
    write(".cursor/mcp.json", "b", "c")
    write(".cursor/mcp.json", "c", "d", "f", at=files.home)
    servers, _ = files.load()
    assert {name: (spec.scope, spec.command) for name, spec in servers.items()} == {
        "a": ("local", "local"),
        "b": ("project", "from .mcp.json"),
        "c": ("project", "from .cursor/mcp.json"),
        "d": ("user", "user"),
        "f": ("user", "from .cursor/mcp.json"),
    }
    assert servers["a"].place == "" and servers["d"].place == ""


def test_a_server_of_a_parent_folder_up_to_the_git_root(files: Files) -> None:
    files.write(".mcp.json", {"mcpServers": {"root": {"command": "./run"}}})
    files.write(".mcp.json", {"mcpServers": {"outside": {"command": "x"}}}, at=files.home)
    sub = files.project / "a" / "b"
    sub.mkdir(parents=True)
    files.project = sub
    servers, _ = files.load()
    assert list(servers) == ["root"]
    assert servers["root"].cwd == str(sub.parent.parent)


def test_claude_settings_turn_servers_off_but_approve_none(files: Files) -> None:
    files.write(".mcp.json", {"mcpServers": {name: {"command": name} for name in "abc"}})
    files.write(".claude/settings.json", {"disabledMcpjsonServers": ["a"]})
    files.write(".claude/settings.local.json", {"enableAllProjectMcpServers": True})
    files.write(
        ".claude.json",
        {"projects": {str(files.project): {"disabledMcpjsonServers": ["b"]}}},
        at=files.home,
    )
    servers, findings = files.load()
    assert list(servers) == ["c"]
    texts = [str(finding) for finding in findings]
    assert any("server a is turned off in" in text for text in texts)
    assert any("server b is turned off in" in text for text in texts)
    assert any("enableAllProjectMcpServers" in text and "mudroom trust" in text for text in texts)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "it is not JSON"),
        ("[]", "it contains no table"),
        ('{"mcpServers": []}', "mcpServers is not used: it is no table"),
        ('{"servers": {}}', "the file has no mcpServers"),
        ('{"mcpServers": {"x": 5}}', "server x is not used: it is no table"),
        ('{"mcpServers": {"x": {}}}', "it has neither a command nor a url"),
        ('{"mcpServers": {"x": {"command": ["a"]}}}', "command must be a text"),
        ('{"mcpServers": {"x": {"command": "a", "args": "b"}}}', "args must be a list of texts"),
        ('{"mcpServers": {"x": {"command": "a", "args": [1]}}}', "args must be a list of texts"),
        ('{"mcpServers": {"x": {"command": "a", "env": {"A": []}}}}', "env.A must be a text"),
        ('{"mcpServers": {"x": {"type": "ws", "url": "ws://a"}}}', "transport ws is not supported"),
        ('{"mcpServers": {"x": {"url": "file:///etc"}}}', "begins with http"),
        ('{"mcpServers": {" ": {"command": "a"}}}', "it has no name"),
        ('{"mcpServers": {"x": {"command": "a", "typo": 1}}}', "not used here: typo"),
        ('{"mcpServers": {"x": {"command": "a", "timeout": -1}}}', "it must be above 0"),
        ('{"mcpServers": {"x": {"command": "a", "timeout": true}}}', "timeout must be a number"),
        ('{"mcpServers": {"x": {"command": "${NONE}"}}}', "NONE has no value"),
        ("[" * 100_000, "nests too deeply"),
    ],
)
def test_a_wrong_file_is_a_finding_with_its_place(
    files: Files, content: str, expected: str
) -> None:
    path = files.write(".mcp.json", content)
    _, findings = files.load()
    assert len(findings) == 1, findings
    assert expected in str(findings[0]) and findings[0].where == str(path)
    assert findings[0].remedy or not findings[0].is_problem or "timeout" in findings[0].text


def test_one_wrong_server_does_not_hide_the_others(files: Files) -> None:
    files.write(".mcp.json", {"mcpServers": {"bad": {"args": 1}, "good": {"command": "x"}}})
    files.write(
        ".vscode/mcp.json",
        {"servers": {"asks": {"command": "x", "args": ["${input:key}"]}}, "inputs": [{}]},
    )
    files.write(".codex/config.toml", '[mcp_servers.inline]\nurl="https://x"\nbearer_token="t"')
    servers, findings = files.load()
    assert list(servers) == ["good"]
    text = "\n".join(map(str, findings))
    assert "input key" in text and "mudroom mcp add" in text
    assert "bearer_token_env_var" in text


def test_the_digest_follows_the_definition_not_the_environment(files: Files) -> None:
    def digest(entry: dict[str, Any], token: str = "1", env_file: str = "A=1") -> str:
        files.write(".cursor/mcp.json", {"mcpServers": {"x": entry}})
        files.write("vars", env_file)
        return files.load({"TOKEN": token})[0]["x"].digest

    entry = {"command": "a", "args": ["${env:TOKEN}"], "env": {"A": "1"}}
    first = digest(entry)
    assert first == digest(dict(reversed(entry.items())), "2")
    changes: list[dict[str, Any]] = [
        {"command": "b"},
        {"args": ["-c"]},
        {"env": {"LD_PRELOAD": "x.so"}},
        {"envFile": "vars"},
        {"typo": 1},
    ]
    digests = [digest({**entry, **change}) for change in changes]
    digests.append(digest({**entry, "envFile": "vars"}, env_file="LD_PRELOAD=x.so"))
    assert len({first, *digests}) == 7


def test_secrets_in_a_file_are_not_shown(files: Files) -> None:
    env = {"API_KEY": "hunter2", "PASSWORD": "${TOKEN}", "MODE": "fast"}
    files.write(".mcp.json", {"mcpServers": {"x": {"command": "run", "env": env}}})
    shown = files.load()[0]["x"].shown
    assert shown == "API_KEY=*** PASSWORD=${TOKEN} MODE=fast run"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=2) | st.dictionaries(st.text(max_size=5), children, max_size=2)
    ),
    max_leaves=4,
)
FIELDS = st.sampled_from(
    [
        *("type", "command", "args", "env", "url", "headers", "headersHelper", "timeout"),
        *("alwaysLoad", "oauth", "envFile", "cwd", "httpUrl", "trust", "includeTools"),
        *("env_vars", "enabled", "disabled", "env_http_headers", "environment"),
    ]
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(entry=st.dictionaries(FIELDS, JSON, max_size=5) | JSON, table=JSON)
def test_no_content_of_a_file_raises(tmp_path: Path, entry: Any, table: Any) -> None:
    project = tmp_path / "p"
    for path, content in {
        ".mcp.json": {"mcpServers": {"x": entry}},
        ".cursor/mcp.json": {"mcpServers": {"x": entry}},
        ".vscode/mcp.json": {"servers": {"x": entry}, "inputs": table},
        ".gemini/settings.json": {"mcpServers": {"x": entry}, "mcp": table},
        "opencode.json": {"mcp": {"x": entry, "servers": table}},
        ".claude/settings.json": {"disabledMcpjsonServers": table},
        ".claude.json": {"mcpServers": table, "projects": {str(project): {"mcpServers": entry}}},
    }.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(json.dumps(content))
    load_servers(str(project), user_home=str(project), environ={})
