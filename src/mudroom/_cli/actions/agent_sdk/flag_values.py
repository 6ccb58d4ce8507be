"""Values of the agent SDKs' flags: settings, MCP servers, tools, system prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from ...._adapters import agent_files
from ...._adapters.agent_files.locations import SOURCES
from ...._core.agents import Agent, Mode
from ...._core.tool_names import parse_tool_patterns
from ...._session.agent_catalog import KNOWN_TOOLS
from ....errors import UsageError
from ....permissions.rules import RULE_VERDICTS, Rule, Verdict, parse_rule

_SETTINGS_FLAG = "--settings"
_USED_SETTINGS = ("permissions",)


class SdkValues(Struct, frozen=True, kw_only=True):
    """Values of the agent SDKs' flags.

    Arguments:
        system_prompt: replaces the built-in one; "" keeps it.
        appended_prompt: text after the system prompt.
        tools: patterns of the tools that prompts may use; None for all.
        rules: permission rules of `--settings`. mode: its permission mode, or "".
        host_servers: names of the MCP servers that run in the host.
        other_servers: configuration of other MCP servers, by name.
        sources: whose settings, agents and context files are read.
    """

    system_prompt: str = ""
    appended_prompt: str = ""
    tools: tuple[str, ...] | None = None
    rules: tuple[Rule, ...] = ()
    mode: str = ""
    host_servers: tuple[str, ...] = ()
    other_servers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sources: tuple[str, ...] = SOURCES

    def make_root_agent(self, system_prompt: str, appended_prompt: str) -> Agent | None:
        """Return the agent that runs the prompts, or None if neither flags nor host change it.

        Arguments:
            system_prompt, appended_prompt: the host's, which come before those of the flags.
        """
        prompt = system_prompt or self.system_prompt
        appended = appended_prompt or self.appended_prompt
        if not (prompt or appended) and self.tools is None:
            return None
        agent = agent_files.load_builtin_agent("main")
        parts = [part for part in (prompt or agent.instructions, appended) if part]
        tools = agent.tools if self.tools is None else self.tools
        return replace(agent, instructions="\n\n".join(parts), tools=tools)


def parse_sdk_values(flags: Mapping[str, Sequence[str]], cwd: str, notices: list[str]) -> SdkValues:
    """Parse the flags' values, given by flag in their order on the command line.

    Arguments:
        notices: a line is added for each part that is not used.

    Raises UsageError for a file that cannot be read, and for values that are not JSON.
    """
    # Like the CLI that it stands in for, use the last value of a repeated flag.
    last = {name: values[-1] for name, values in flags.items()}
    prompt = last.get("--system-prompt", "")
    if file := last.get("--system-prompt-file"):
        prompt = _read_file(file, cwd, "--system-prompt-file")
    rules, mode = _parse_settings(flags.get(_SETTINGS_FLAG, ()), cwd, notices)
    servers: dict[str, Any] = {}
    for text in flags.get("--mcp-config", ()):
        servers |= _read_servers(text, cwd)
    in_host = [name for name, entry in servers.items() if _get_type(entry) == "sdk"]
    return SdkValues(
        system_prompt=prompt,
        appended_prompt=last.get("--append-system-prompt", ""),
        tools=_parse_tools(last.get("--tools"), notices),
        rules=tuple(rules),
        mode=mode,
        host_servers=tuple(in_host),
        other_servers={name: servers[name] for name in servers if name not in in_host},
        sources=_parse_sources(last.get("--setting-sources"), notices),
    )


def _parse_sources(text: str | None, notices: list[str]) -> tuple[str, ...]:
    if text is None:
        return SOURCES
    names = [name.strip() for name in text.split(",") if name.strip()]
    notices += [
        f"mudroom has no {name} of --setting-sources" for name in names if name not in SOURCES
    ]
    if "local" in names and "project" not in names:
        notices.append("mudroom reads the files of local with those of project only")
    return tuple(name for name in SOURCES if name in names)


def _parse_tools(text: str | None, notices: list[str]) -> tuple[str, ...] | None:
    if text is None or text == "default":
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    known: list[str] = []
    for pattern in parse_tool_patterns(names):
        if any(map(pattern.matches_tool, KNOWN_TOOLS)):
            known.append(pattern.written_name)
        else:
            notices.append(f"mudroom has no tool {pattern.written_name} (--tools)")
    # `--tools` chooses among built-in tools only; those of MCP servers always stay.
    return (*known, "mcp__*")


def _parse_settings(values: Sequence[str], cwd: str, notices: list[str]) -> tuple[list[Rule], str]:
    rules: list[Rule] = []
    mode = ""
    for value in values:
        settings = _load_json(value, cwd, _SETTINGS_FLAG)
        notices += [
            f"not used by mudroom: {name} of {_SETTINGS_FLAG}"
            for name in settings
            if name not in _USED_SETTINGS
        ]
        lists = settings.get("permissions")
        if not isinstance(lists, dict):
            continue
        lists = cast("dict[str, Any]", lists)
        for verdict in RULE_VERDICTS:
            rules += _parse_rules(lists.get(verdict.value), verdict, cwd)
        default = str(lists.get("defaultMode", ""))
        mode = default if default in list(Mode) else mode
    return rules, mode


def _parse_rules(texts: object, verdict: Verdict, cwd: str) -> list[Rule]:
    listed = cast("list[Any]", texts) if isinstance(texts, list) else []
    return [parse_rule(str(text), verdict, origin=_SETTINGS_FLAG, base=cwd) for text in listed]


def _read_servers(text: str, cwd: str) -> dict[str, Any]:
    servers = _load_json(text, cwd, "--mcp-config").get("mcpServers")
    return cast("dict[str, Any]", servers) if isinstance(servers, dict) else {}


def _get_type(entry: object) -> object:
    return cast("dict[str, Any]", entry).get("type") if isinstance(entry, dict) else None


def _load_json(text: str, cwd: str, flag: str) -> dict[str, Any]:
    """Parse a JSON object, given as text or as the name of a file."""
    if not text.lstrip().startswith("{"):
        text = _read_file(text, cwd, flag)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}", where=flag) from None
    if not isinstance(value, dict):
        raise UsageError("expected a JSON object", where=flag)
    return cast("dict[str, Any]", value)


def _read_file(name: str, cwd: str, flag: str) -> str:
    try:
        return Path(cwd, name).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot be read: {reason}", where=f"{flag} {name}") from None
