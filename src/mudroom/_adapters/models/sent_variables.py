"""Provider variables that may be sent to another machine, and those that must not."""

from __future__ import annotations

from .providers import _TABLE as TABLE


def list_address_variables() -> list[str]:
    """List the variables with providers' addresses and default models; none is secret."""
    names = [name for provider in TABLE for name in (*provider.url_vars, *provider.model_vars)]
    return [*names, *(f"MUDROOM_{name}" for name in names), "MUDROOM_MODEL"]


def list_header_variables() -> list[str]:
    """List the variables with providers' additional headers, which may hold secrets."""
    return [name for provider in TABLE for name in provider.header_vars]
