"""Asks a user's server for its models, their windows and abilities."""

from __future__ import annotations

from http.client import HTTPException
from typing import Any
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

import msgspec
from msgspec import Struct

# Seconds per request; these servers are usually on this machine or its network.
_TIMEOUT = 2.0


class ServedModel(Struct, frozen=True):
    """A model as described by its server; 0 and None mean that the server does not say."""

    name: str
    context_window: int = 0
    takes_images: bool | None = None
    takes_tools: bool | None = None


class _Architecture(Struct):
    input_modalities: list[str] | None = None


class _Model(Struct):
    id: str
    max_model_len: int | None = None
    architecture: _Architecture | None = None
    supported_parameters: list[str] | None = None


class _ModelList(Struct):
    data: list[_Model]


class _Endpoint(Struct):
    supported_parameters: list[str] | None = None


class _Endpoints(Struct):
    endpoints: list[_Endpoint]


class _EndpointList(Struct):
    data: _Endpoints


class _GenerationSettings(Struct, frozen=True):
    n_ctx: int = 0


class _Modalities(Struct, frozen=True):
    vision: bool | None = None


class _Properties(Struct):
    default_generation_settings: _GenerationSettings = _GenerationSettings()
    modalities: _Modalities = _Modalities()


class _Tag(Struct):
    name: str


class _TagList(Struct):
    models: list[_Tag]


class _Shown(Struct):
    parameters: str = ""
    model_info: dict[str, Any] = {}
    capabilities: list[str] | None = None


def list_served_models(base_url: str, key: str) -> list[ServedModel]:
    """Ask a server for its models; empty if it does not answer as expected.

    Reads `max_model_len` of vLLM, `architecture` of servers like OpenRouter, and `/props` of
    llama.cpp, which serves one model. The key "" sends none.
    """
    base_url = base_url.rstrip("/")
    listed = _get_json(f"{base_url}/models", key, _ModelList)
    if listed is None:
        return []
    models = [
        ServedModel(
            model.id,
            model.max_model_len or 0,
            _find_image_input(model.architecture),
            "tools" in model.supported_parameters if model.supported_parameters else None,
        )
        for model in listed.data
    ]
    if len(models) == 1 and not models[0].context_window:
        properties = _get_json(f"{base_url.removesuffix('/v1')}/props", key, _Properties)
        if properties is not None:
            window = properties.default_generation_settings.n_ctx
            models = [ServedModel(models[0].name, window, properties.modalities.vision)]
    return models


def ask_gateway(base_url: str, key: str, wanted: str) -> list[ServedModel]:
    """Ask a gateway such as OpenRouter what a model takes; empty if it does not say.

    Its long list of all models is requested only if the request about this model fails.
    """
    base_url = base_url.rstrip("/")
    name = quote(wanted.partition(":")[0])
    found = _get_json(f"{base_url}/models/{name}/endpoints", key, _EndpointList)
    if found is None:
        return [each for each in list_served_models(base_url, key) if each.name == wanted]
    endpoints = found.data.endpoints
    known = [each.supported_parameters for each in endpoints if each.supported_parameters]
    takes_tools = any("tools" in parameters for parameters in known) if known else None
    return [ServedModel(wanted, takes_tools=takes_tools)]


def _find_image_input(architecture: _Architecture | None) -> bool | None:
    if architecture is None or architecture.input_modalities is None:
        return None
    return "image" in architecture.input_modalities


def list_ollama_models(
    base_url: str, key: str, wanted: str, default_window: int
) -> list[ServedModel]:
    """Ask Ollama for its models, and for details of `wanted` or else of the first one."""
    listed = _get_json(f"{base_url}/api/tags", key, _TagList)
    names = [model.name for model in listed.models] if listed else []
    if f"{wanted}:latest" in names:
        names.append(wanted)
    chosen = wanted if wanted in names else next(iter(names), "")
    return [
        _ask_ollama(base_url, key, name, default_window) if name == chosen else ServedModel(name)
        for name in names
    ]


def _ask_ollama(base_url: str, key: str, model: str, default_window: int) -> ServedModel:
    shown = _get_json(f"{base_url}/api/show", key, _Shown, {"model": model})
    if shown is None:
        return ServedModel(model)
    abilities = shown.capabilities
    takes_images = None if abilities is None else "vision" in abilities
    # Without this entry, the list is not about chatting at all.
    takes_tools = "tools" in abilities if abilities and "completion" in abilities else None
    window = _find_ollama_window(shown, default_window)
    return ServedModel(model, window, takes_images, takes_tools)


def _find_ollama_window(shown: _Shown, default: int) -> int:
    """Find a model's `num_ctx`, else the smaller of the default and its own window."""
    for line in shown.parameters.splitlines():
        name, _, value = line.partition(" ")
        if name == "num_ctx" and value.strip().isdecimal():
            return int(value)
    lengths = (
        length
        for name, length in shown.model_info.items()
        if name.endswith(".context_length") and isinstance(length, int) and length > 0
    )
    return min([default, *lengths])


def _get_json(
    url: str,
    key: str,
    kind: type[Any],
    body: dict[str, str] | None = None,
) -> Any | None:  # noqa: ANN401
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    is_local = "://127." in url or "://localhost" in url or "://[::1]" in url
    # A proxy set for the internet cannot reach a server on this machine.
    opener = build_opener(ProxyHandler({})) if is_local else build_opener()
    data = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        data = msgspec.json.encode(body)
    try:
        with opener.open(Request(url, data, headers), timeout=_TIMEOUT) as response:
            return msgspec.json.decode(response.read(), type=kind)
    except (OSError, HTTPException, ValueError, RecursionError):
        return None
