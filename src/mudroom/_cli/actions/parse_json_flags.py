"""Parses the flags that take JSON: --agents and --json-schema."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from ..._adapters import agent_files
from ..._adapters.agent_files import Severity
from ..._adapters.integrations.mcp_servers.spec import ServerSpec
from ..._core.agents import Agent
from ..._core.tool_names import is_known_elsewhere, parse_tool_patterns
from ..._platform.regular_files import MAX_BYTES
from ..._session.agent_catalog import KNOWN_TOOLS
from ...errors import UnknownName, UsageError

_AGENTS_FLAG = "--agents"
_SCHEMA_FLAG = "--json-schema"
_SCHEMA_REMEDY = (
    'Write a schema such as {"type": "object", "properties": {"title": {"type": "string"}}}, '
    "or the name of a file with one."
)
_JSON_KINDS = {"list": "a list", "str": "a text", "bool": "true or false", "NoneType": "null"}


class InlineAgents(NamedTuple):
    agents: list[Agent]
    servers: list[ServerSpec]


def parse_inline_agents(text: str, cwd: str, notices: list[str]) -> InlineAgents:
    """Parse `--agents`: a JSON object that maps names to keys as in agent files.

    A notice is added for each key not used, or not used as written. Raises UsageError.
    """
    agents: list[Agent] = []
    servers: list[ServerSpec] = []
    for name, keys in _parse_json_object(text, _AGENTS_FLAG).items():
        if not isinstance(keys, dict):
            raise UsageError(
                f"the value of {name} is not an object of keys",
                where=_AGENTS_FLAG,
                remedy='Write {"name": {"description": …, "prompt": …}}.',
            )
        keys = cast("dict[str, Any]", keys)
        agent, draft = agent_files.parse_agent_keys(keys, name, _AGENTS_FLAG, KNOWN_TOOLS)
        problems = [
            finding.text
            for finding in draft.diagnostics.items
            if finding.severity is not Severity.NOTE
        ]
        if agent is None:
            reason = "; ".join(problems) or draft.unused_reason
            raise UsageError(f"agent {name}: {reason}", where=_AGENTS_FLAG)
        _check_tools(agent)
        notices += [f"agent {name}: {problem} ({_AGENTS_FLAG})" for problem in problems]
        agents.append(agent)
        servers += _parse_servers(agent.name, draft.servers, cwd, notices)
    return InlineAgents(agents, servers)


def _parse_servers(
    agent: str, entries: Mapping[str, Any], cwd: str, notices: list[str]
) -> list[ServerSpec]:
    """Parse the servers an agent configures itself; an entry of None names one from a file."""
    declared = {name: entry for name, entry in entries.items() if entry is not None}
    if not declared:
        return []
    from ..._adapters.integrations.mcp_servers.load import parse_servers  # slow to import

    loaded = parse_servers(declared, origin=_AGENTS_FLAG, folder=cwd, environ=os.environ)
    notices += [f"agent {agent}: {each.text}. {each.remedy}".strip() for each in loaded.findings]
    return [replace(spec, agent=agent) for spec in loaded.servers]


def _check_tools(agent: Agent) -> None:
    """Raise UnknownName for a tool that neither mudroom nor another program has."""
    for pattern in parse_tool_patterns(agent.tools):
        is_known = any(map(pattern.matches_tool, KNOWN_TOOLS)) or is_known_elsewhere(pattern.tool)
        if not is_known and "*" not in pattern.tool:
            where = f"{_AGENTS_FLAG}, agent {agent.name}"
            raise UnknownName("tool", pattern.written_name, KNOWN_TOOLS, where=where)


def load_json_schema(text: str) -> dict[str, Any]:
    """Load the schema of `--json-schema`, JSON or a file's name. Raises UsageError."""
    # JSON other than an object gets an error about JSON, not about a missing file.
    if text.lstrip().startswith(("{", "[", '"')):
        return _parse_json_object(text, _SCHEMA_FLAG, _SCHEMA_REMEDY)
    try:
        with open(text, "rb") as file:
            # One extra byte tells a file at the limit from a larger one.
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES:,} bytes")
        content = data.decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot be read: {reason}", where=f"{_SCHEMA_FLAG} {text}", remedy=_SCHEMA_REMEDY
        ) from None
    return _parse_json_object(content, text, _SCHEMA_REMEDY)


def _parse_json_object(text: str, where: str, remedy: str = "") -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}", where=where, remedy=remedy) from None
    if not isinstance(value, dict):
        kind = _JSON_KINDS.get(type(value).__name__, "a number")
        raise UsageError(f"expected a JSON object, not {kind}", where=where, remedy=remedy)
    return cast("dict[str, Any]", value)
