"""The OpenAPI description: random requests that it allows, and others, never fail the server."""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import Any, cast
from urllib.parse import quote

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import MakeSite

Schema = dict[str, Any]
EXAMPLES = 2_000 if os.environ.get("MUDROOM_LONG") else 150
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
"""Any JSON value."""


def make_values(schema: Schema, components: Schema) -> st.SearchStrategy[Any]:
    """Return values that a schema of the description mostly allows, and some that it does not."""
    if "$ref" in schema:
        return make_values(components[schema["$ref"].rpartition("/")[2]], components)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return st.one_of([make_values(each, components) for each in schema[key]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "string": st.text(max_size=12),
        "integer": st.integers(),
        "number": st.floats(allow_nan=False),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    match schema.get("type"):
        case "object" if "properties" in schema:
            fields = cast("dict[str, Schema]", schema["properties"])
            values = {name: make_values(each, components) for name, each in fields.items()}
            required = set(schema.get("required", ()))
            known = st.fixed_dictionaries(
                {name: value for name, value in values.items() if name in required},
                optional={name: value for name, value in values.items() if name not in required},
            )
            return known | ANY
        case "array":
            return st.lists(make_values(schema.get("items", {}), components), max_size=3)
        case str() as kind if kind in kinds:
            return kinds[kind]
        case _:
            return ANY


def make_requests(description: Schema) -> st.SearchStrategy[tuple[str, str, Schema, Any]]:
    """Return requests: method, path, parameters, body."""
    components = description["components"]["schemas"]
    kinds: list[st.SearchStrategy[tuple[str, str, Schema, Any]]] = []
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            if path.endswith("/stream"):
                continue  # it does not end
            parameters = {
                each["name"]: make_values(each["schema"], components)
                for each in operation["parameters"]
                if each["in"] != "path"
            }
            body: st.SearchStrategy[Any] = st.none()
            if "requestBody" in operation:
                content = operation["requestBody"]["content"]
                body = make_values(content["application/json"]["schema"], components)
            some = st.fixed_dictionaries({}, optional=parameters)
            kinds.append(st.tuples(st.just(method.upper()), st.just(path), some, body))
    return st.one_of(kinds)


async def test_the_description_is_complete(make_site: MakeSite) -> None:
    site = make_site(["One."])
    async with site.connect() as client:
        description = await client.get("/openapi.json")
        assert site.server
        described = {
            (method.upper(), path)
            for path, methods in description["paths"].items()
            for method in methods
        }
        assert described == {(route.method, route.path) for route in site.server.routes}
        references = set(re.findall(r"#/components/schemas/([^\"]+)", json.dumps(description)))
        assert references <= set(description["components"]["schemas"])
        paths = description["paths"]
        for path, method, status in (
            ("/v1/sessions", "post", "200"),
            ("/health", "get", "503"),
            ("/ready", "get", "503"),
            ("/openapi.json", "get", "200"),
        ):
            content = paths[path][method]["responses"][status]["content"]["application/json"]
            assert content["schema"].get("type") == "object" or "$ref" in content["schema"]
        needed = {
            path
            for path, methods in paths.items()
            for method in methods.values()
            if method.get("requestBody", {}).get("required")
        }
        assert needed == {
            "/v1/sessions/{session}/events",
            "/v1/chat/completions",
            "/v1/responses",
        }
        session = await client.run("Go.")
        for path, name in (
            ("/v1/sessions", "SessionPage"),
            (f"/v1/sessions/{session}", "SessionView"),
            ("/v1/agents", "AgentPage"),
            ("/v1/models", "ModelPage"),
        ):
            schema = {
                "$ref": f"#/components/schemas/{name}",
                "components": description["components"],
            }
            jsonschema_rs.validator_for(schema).validate(await client.get(path))


@pytest.mark.timeout(1_800)
async def test_random_requests_never_fail_the_server(make_site: MakeSite) -> None:
    site = make_site(
        ["Answer."] * EXAMPLES, options={"idle_seconds": 0.0, "keepalive_seconds": 1.0}
    )
    async with site.connect(scopes=("read", "run", "answer", "admin")) as client:
        description = await client.get("/openapi.json")
        session = (await client.create())["id"]
        names = {
            "session": session,
            "model": "mudroom",
            "response": "resp_x",
        }
        statuses: set[int] = set()
        loop = asyncio.get_running_loop()

        async def send(method: str, path: str, parameters: Schema, body: Any) -> None:
            if method == "DELETE":
                path = path.replace("{session}", "none")
            query = "&".join(
                f"{quote(name)}={quote(str(value), errors='replace')}"
                for name, value in parameters.items()
                if name[0].islower()
            )
            url = f"{path.format(**names)}?{query}"
            status, value = await client.send(method, url, body)
            assert status < 500, (method, url, body, value)
            if status >= 400:
                assert value["error"]["message"]
            statuses.add(status)

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
        )
        @given(make_requests(description))
        def send_one(request: tuple[str, str, Schema, Any]) -> None:
            asyncio.run_coroutine_threadsafe(send(*request), loop).result(60)

        await asyncio.to_thread(send_one)
        assert {200, 202, 400} <= statuses
        assert not site.notices
