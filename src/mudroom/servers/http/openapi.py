"""The OpenAPI description of the server, made from its routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ..._version import __version__
from .bodies import parse_body
from .errors import ErrorBody, RequestError
from .route import Route

_PATH_NAME = re.compile(r"\{(\w+)\}")
_REFERENCES = "#/components/schemas/{name}"
_TOKEN: list[dict[str, list[str]]] = [{"token": []}]


def make_openapi(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the description as OpenAPI 3.1."""
    types: list[Any] = [ErrorBody]
    for route in routes:
        types += [each for each in (route.body, route.answer) if each is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCES)
    known = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe(route, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "mudroom", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(route: Route, known: dict[int, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if route.answer is not None:
        content["application/json"] = {"schema": known[id(route.answer)]}
    if route.media:
        content[route.media] = {"schema": {"type": "string"}}
    error = {"schema": known[id(ErrorBody)]}
    described: dict[str, Any] = {
        "summary": route.summary,
        "parameters": [*_list_path_parameters(route.path), *_list_parameters(route)],
        "responses": {
            str(route.status): {"description": "Success.", "content": content},
            **{
                str(status): {"description": meaning, "content": content}
                for status, meaning in route.more_statuses.items()
            },
            "default": {
                "description": "An error.",
                "content": {"application/json": error},
            },
        },
    }
    if route.scope:
        described["security"] = _TOKEN
        described["x-scope"] = route.scope
    if route.body is not None:
        described["requestBody"] = {
            "required": not _accepts_nothing(route.body),
            "content": {"application/json": {"schema": known[id(route.body)]}},
        }
    return described


def _accepts_nothing(kind: Any) -> bool:  # noqa: ANN401  (a type, or a union of types)
    """Return whether a request without a body is accepted."""
    try:
        parse_body(kind, b"")
    except RequestError:
        return False
    return True


def _list_path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PATH_NAME.findall(path)
    ]


def _list_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "in": each.place,
            "description": each.description,
            "schema": each.schema,
        }
        for each in route.parameters
    ]
