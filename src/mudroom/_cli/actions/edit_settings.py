"""`mudroom config`: prints settings with their origins, and changes the user's file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from ..._session import config
from ...errors import UnknownName, UsageError
from ..output.listing import print_rows
from .load_settings import load_settings


def print_settings(name: str | None = None) -> None:
    """Print one setting, or all of them, each with its origin. Raises UnknownName."""
    settings = load_settings(".")
    names = config.SETTING_NAMES
    if name:
        names = (name.replace("-", "_"),)
        if names[0] not in config.SETTING_NAMES:
            raise UnknownName("setting", name, config.SETTING_NAMES)
    print_rows(
        [(key, _format_value(key, settings.get(key)), settings.get_origin(key)) for key in names]
    )


def _format_value(setting: str, value: object) -> str:
    if value is None or value == "":
        return "(none)"
    if setting == "store":
        from ..._adapters.journals import sessions  # slow to import

        return sessions.hide_password(str(value))
    if isinstance(value, Mapping):
        rules = cast("Mapping[str, str]", value)
        return "; ".join(f"{agent}={model}" for agent, model in rules.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def change_setting(name: str, value: str) -> None:
    """Set a value in the user's file and print the file's path; "" removes the setting.

    Raises UsageError for an unusable setting or value.
    """
    if name == "store" and value:
        from ..._adapters.journals import sessions  # slow to import

        sessions.check_address(value)
    path = config.find_user_file(os.environ)
    try:
        config.write_setting(path, name, value)
    except OSError as error:
        raise UsageError(
            f"the settings cannot be written: {error.strerror}", where=str(path)
        ) from None
    print(path)


def print_user_file() -> None:
    print(config.find_user_file(os.environ))
