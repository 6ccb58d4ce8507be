"""List of the models that a server with the protocol of OpenAI serves, with their windows."""

from __future__ import annotations

from http.client import HTTPException
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import msgspec
from msgspec import Struct

_TIMEOUT = 2.0
"""Seconds for each request; these servers are usually on this machine or in its network."""


class ServedModel(Struct, frozen=True):
    """One model of a server. `context_window`: in tokens, 0 if the server does not say."""

    name: str
    context_window: int = 0


class _Model(Struct):
    id: str
    max_model_len: int | None = None


class _ModelList(Struct):
    data: list[_Model]


class _GenerationSettings(Struct):
    n_ctx: int = 0


class _Properties(Struct):
    default_generation_settings: _GenerationSettings


def list_served_models(base_url: str, key: str) -> list[ServedModel]:
    """Ask a server for its models; return none if it does not answer as expected.

    Reads `max_model_len` of vLLM, and `/props` of llama.cpp, which serves one model.

    Arguments:
        base_url: the URL before `/models`.
        key: sent as bearer token; "" sends none.
    """
    base_url = base_url.rstrip("/")
    listed = _get_json(f"{base_url}/models", key, _ModelList)
    if listed is None:
        return []
    models = [ServedModel(model.id, model.max_model_len or 0) for model in listed.data]
    if len(models) == 1 and not models[0].context_window:
        properties = _get_json(f"{base_url.removesuffix('/v1')}/props", key, _Properties)
        if properties is not None:
            window = properties.default_generation_settings.n_ctx
            models = [ServedModel(models[0].name, window)]
    return models


def _get_json(url: str, key: str, kind: type[Any]) -> Any | None:  # noqa: ANN401
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    is_local = "://127." in url or "://localhost" in url or "://[::1]" in url
    opener = build_opener(ProxyHandler({})) if is_local else build_opener()
    try:
        with opener.open(Request(url, headers=headers), timeout=_TIMEOUT) as response:
            return msgspec.json.decode(response.read(), type=kind)
    except (OSError, HTTPException, ValueError, RecursionError):
        return None
