"""Schemas of servers as models get them: an object at the root, without references."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jsonschema_rs
import pytest

from mudroom._adapters.integrations.mcp_servers.listing import ListedTool, make_tool
from mudroom._adapters.models._http import HttpClient
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom._adapters.models.google import GoogleModel
from mudroom._adapters.models.ollama import OllamaModel
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._adapters.models.openai.responses import ResponsesModel
from mudroom._core.messages import user_message
from mudroom._core.ports import Model, RequestConfig
from mudroom._core.schemas import make_sendable
from mudroom._core.tools import Tool
from mudroom.testing.clock import FakeClock

from .servers import make_quick

RECORDED = Path(__file__).with_name("tool_schemas.jsonl")
"""Schemas that 16 published servers listed, without titles and descriptions: a line for each."""
TEXT = {"type": "string"}
NUMBER = {"type": "number"}
MAPS = ("properties", "patternProperties", "dependentSchemas")
VALUES = ("default", "const", "enum", "examples")
REFERENCES = {"$ref", "$defs", "definitions", "$dynamicRef"}
CHOICES = {"anyOf", "oneOf", "allOf"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"properties": {"a": TEXT}}, {"type": "object", "properties": {"a": TEXT}}),
        (
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "https://x.test/b"}},
                "$defs": {"A": TEXT},
            },
            {"type": "object", "properties": {"a": TEXT, "b": {}}},
        ),
        (
            {
                "anyOf": [
                    {"properties": {"a": TEXT, "b": NUMBER}, "required": ["a", "b"]},
                    {"properties": {"a": TEXT, "c": TEXT}, "required": ["a"]},
                ]
            },
            {
                "type": "object",
                "properties": {"a": TEXT, "b": NUMBER, "c": TEXT},
                "required": ["a"],
            },
        ),
        (
            {
                "allOf": [
                    {"properties": {"a": TEXT}, "required": ["a"]},
                    {"properties": {"b": TEXT}},
                ]
            },
            {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["a"]},
        ),
    ],
)
def test_parameters_are_an_object_without_choices_and_references(
    schema: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert make_sendable(schema) == expected


def test_a_recursive_schema_is_sent_without_references() -> None:
    schema = {"properties": {"a": {"$ref": "#"}}, "required": ["a", "lost"]}
    sent = make_sendable(schema)
    assert "$ref" not in json.dumps(sent) and sent["required"] == ["a"]


def test_references_that_multiply_are_cut() -> None:
    names = [f"p{number}" for number in range(60)]
    levels = {
        f"L{level}": {"properties": {name: {"$ref": f"#/$defs/L{level + 1}"} for name in names}}
        for level in range(4)
    }
    schema = {"$ref": "#/$defs/L0", "$defs": {**levels, "L4": TEXT}}  # 13 million parts
    assert len(json.dumps(make_sendable(schema))) < 200_000


def read_tools() -> list[Tool]:
    async def run_call(*_: Any) -> Any:
        raise NotImplementedError

    tools: list[Tool] = []
    for number, line in enumerate(RECORDED.read_text().splitlines()):
        for name, schema in json.loads(line)["tools"].items():
            listed = ListedTool(f"{number}_{name}", f"Does {name}.", schema)
            tools.append(make_tool(make_quick("s"), listed, run_call))
            assert jsonschema_rs.validator_for(schema, offline=True), name
    return tools


def list_keywords(schema: object) -> Iterator[str]:
    """Return the keywords of a schema and of its parts, not the names of properties."""
    if isinstance(schema, list):
        for item in cast("list[object]", schema):
            yield from list_keywords(item)
    elif isinstance(schema, dict):
        for key, value in cast("dict[str, Any]", schema).items():
            yield key
            parts: Any = value.values() if key in MAPS else [value]
            for part in parts if key not in VALUES else ():
                yield from list_keywords(part)


def make_models() -> dict[str, Model]:
    http = HttpClient(clock=FakeClock())
    url = "http://127.0.0.1:1/v1"
    return {
        "input_schema": AnthropicModel("claude-sonnet-4-6", http=http),
        "parametersJsonSchema": GoogleModel("gemini-2.5-flash", http=http),
        "parameters of chat": OpenAIModel("some-model", http=http, base_url=url),
        "parameters of responses": ResponsesModel("gpt-5", http=http),
        "parameters of ollama": OllamaModel("llama", http=http, base_url=url),
    }


def list_sent(value: object, key: str) -> Iterator[dict[str, Any]]:
    """Return the parameters of all tools in a part of a request."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from list_sent(item, key)
    elif isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if key in fields and "name" in fields:
            yield fields[key]
        else:
            for item in fields.values():
                yield from list_sent(item, key)


def test_schemas_of_real_servers_are_sent_whole_by_each_wire() -> None:
    tools = read_tools()
    assert len(tools) >= 200
    for tool in tools:
        sent = tool.parameters
        assert jsonschema_rs.meta.is_valid(sent), tool.name
        assert sent["type"] == "object" and not CHOICES & sent.keys(), tool.name
        assert set(sent.get("required", ())) <= sent["properties"].keys(), tool.name
        assert not REFERENCES & set(list_keywords(sent)), tool.name
    config = RequestConfig(system="", tools=tuple(tools), max_tokens=1000)
    for words, model in make_models().items():
        conversation: Any = model.start_conversation(config)
        conversation.append(user_message("Hello."))
        body = json.loads(conversation.build_body())
        sent = list(list_sent(body["tools"], words.partition(" ")[0]))
        assert sent == [tool.parameters for tool in tools], words
