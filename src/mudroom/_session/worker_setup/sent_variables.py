"""The variables with keys and addresses that a worker process gets, or takes from its machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec.structs import replace

from ..._adapters.models.sent_variables import list_address_variables, list_header_variables
from ..._adapters.output_filters.redaction import is_secret_name
from ..._adapters.workers.remote.messages import WorkerConfig


def leave_secrets_out(config: WorkerConfig, environ: Mapping[str, str]) -> WorkerConfig:
    """Leave secrets out of the config for another machine: its environment has its own."""
    if config.environ is None:
        names = list_address_variables()
        sent = {name: environ[name] for name in names if name in environ}
        return replace(config, environ=sent, own_variables="all")
    sent = {name: text for name, text in config.environ.items() if not may_be_secret(name)}
    return replace(config, environ=sent, own_variables="secrets")


def get_environ(config: WorkerConfig) -> Mapping[str, str]:
    """Return the variables of a session in this worker process."""
    if config.environ is None:
        return os.environ
    if config.own_variables == "all":
        return {**os.environ, **config.environ}
    if config.own_variables == "secrets":
        own = {name: text for name, text in os.environ.items() if may_be_secret(name)}
        return {**own, **config.environ}
    return config.environ


def may_be_secret(name: str) -> bool:
    """Guess by its name whether a variable may have a secret."""
    return is_secret_name(name) or name in list_header_variables()
