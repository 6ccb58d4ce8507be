"""Variables of providers that another machine may get, and those that it must not."""

from __future__ import annotations

from .providers import _TABLE as TABLE


def list_address_variables() -> list[str]:
    """Return the variables with addresses and default models of all providers; none is secret."""
    names = [name for provider in TABLE for name in (*provider.url_vars, *provider.model_vars)]
    return [*names, *(f"MUDROOM_{name}" for name in names), "MUDROOM_MODEL"]


def list_header_variables() -> list[str]:
    """Return the variables with additional headers of all providers. They may hold secrets."""
    return [name for provider in TABLE for name in provider.header_vars]
