"""`mudroom models`: the model providers, and those this machine can use."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct, field

from ..._adapters.models import providers
from ..._session.config import Settings
from ..._session.model_registry import choose_default_model
from ..output.json_output import print_json
from ..output.listing import get_listing_columns, print_entry, print_rows
from .load_settings import load_settings

# The wire of providers that need the extra mudroom[providers].
_EXTRA_WIRE = "library"
_MIN_COLUMNS_FOR_WIRE = 100
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ProviderRow(Struct, frozen=True):
    """One model provider. `field(name=...)` is the key in the JSON output.

    `variable` makes it usable; `missing_variable` is the one to set if it is not. `reachable`
    is None if no connection was tried.
    """

    provider: str
    wire: str
    is_usable: bool = field(name="found")
    variable: str = field(name="by")
    missing_variable: str = field(name="wanted")
    base_url: str
    model: str
    reachable: bool | None = None


def print_providers(*, as_json: bool = False, **flags: object) -> None:
    settings = load_settings(".", **flags)
    rows = list_providers(os.environ)
    model = _find_model(settings, os.environ)
    if as_json:
        print_json({"model": model, "providers": rows})
        return
    print_entry(f"Model: {model} ({settings.get_origin('model')})")
    own_rows = [row for row in rows if row.wire != _EXTRA_WIRE]
    own_rows.sort(key=lambda row: not row.is_usable)
    print_rows([_make_cells(row, model) for row in own_rows])
    others = ", ".join(row.provider for row in rows if row.wire == _EXTRA_WIRE)
    print_entry(f"With the extra mudroom[providers]: {others}")


def _make_cells(row: ProviderRow, model: str) -> tuple[str, ...]:
    """Format a provider's row; narrow terminals show no wire, the provider in use its own model."""
    state = f"found {row.variable}".rstrip() if row.is_usable else f"set {row.missing_variable}"
    wire = () if 0 < get_listing_columns() < _MIN_COLUMNS_FOR_WIRE else (row.wire,)
    provider, _, name = model.partition(":")
    name = name if name and provider == row.provider else row.model
    return (row.provider, *wire, state, "  ".join(filter(None, (name, _describe_reachable(row)))))


def list_providers(environ: Mapping[str, str]) -> list[ProviderRow]:
    """List all providers except the scripted one. Only servers on this machine are contacted."""
    return [
        _make_row(provider, environ)
        for provider in providers.PROVIDERS.values()
        if provider.wire != "scripted"
    ]


def _make_row(provider: providers.Provider, environ: Mapping[str, str]) -> ProviderRow:
    if providers.has_key(provider, environ):
        variable = providers.find_key_variable(provider, environ)
    else:
        set_variables = (name for name in provider.url_vars if environ.get(name, "").strip())
        variable = next(set_variables, "")
    url = urlsplit(providers.get_base_url(provider, environ))
    address = ""
    if url.hostname:
        # Omit user name, password and query, which may be secrets.
        port = f":{url.port}" if url.port else ""
        address = f"{url.scheme}://{url.hostname}{port}{url.path}"
    reachable = None
    if variable and url.hostname in _LOOPBACK:
        default_port = 443 if url.scheme == "https" else 80
        reachable = _accepts_connections(url.hostname, url.port or default_port)
    missing = providers.get_url_variable(provider) if provider.is_local else ""
    return ProviderRow(
        provider=provider.name,
        wire=provider.wire,
        is_usable=bool(variable) or provider.wire == "offline",
        variable=variable,
        missing_variable=missing or next(iter(provider.key_vars), ""),
        base_url=address,
        model=provider.default_model,
        reachable=reachable,
    )


def _accepts_connections(host: str, port: int) -> bool:
    # A local server accepts within milliseconds, or not at all.
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _describe_reachable(row: ProviderRow) -> str:
    if row.reachable is None:
        return ""
    return f"{row.base_url} {'answers' if row.reachable else 'does not answer'}"


def _find_model(settings: Settings, environ: Mapping[str, str]) -> str:
    if settings.model != "auto":
        return settings.model
    return choose_default_model(environ)[0] or "offline"
