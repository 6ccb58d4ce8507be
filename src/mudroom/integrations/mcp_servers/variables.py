"""Variables in configuration files of MCP servers, in the forms of each program."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import cast

from msgspec import Struct

from ..._platform.lazy_pattern import compile_later
from ..._platform.regular_files import read_regular_file

_BRACED = compile_later(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
_SHELL_LIKE = compile_later(r"\$(?:\{([A-Za-z_]\w*)(?::-([^}]*))?\}|([A-Za-z_]\w*))")
_EDITOR = compile_later(r"\$\{([^}]+)\}")
_OPENCODE = compile_later(r"\{(env|file):([^}]+)\}")


class Expander(Struct):
    """Replacement of variables in the texts of one server.

    Arguments:
        place: folder of the project, for `${workspaceFolder}`.
        user_home: the user's home folder. base: folder of the file.

    `unset` collects the variables without a value, which stay as they are in the text.
    `inputs` collects the inputs that an editor would ask for.
    """

    environ: Mapping[str, str]
    place: str
    user_home: str
    base: str
    unset: list[str] = []
    inputs: list[str] = []

    def expand_braced(self, text: str) -> str:
        """Replace `${NAME}` and `${NAME:-default}` (Claude Code)."""
        return _BRACED.sub(lambda match: self._look_up(match[1], match[2], match[0]), text)

    def expand_shell_like(self, text: str) -> str:
        """Replace `$NAME`, `${NAME}` and `${NAME:-default}` (Gemini CLI)."""
        return _SHELL_LIKE.sub(
            lambda match: self._look_up(match[1] or match[3], match[2], match[0]), text
        )

    def expand_editor(self, text: str) -> str:
        """Replace `${env:NAME}`, `${workspaceFolder}` and their like (Cursor, VS Code)."""
        return _EDITOR.sub(self._replace_editor, text)

    def expand_opencode(self, text: str) -> str:
        """Replace `{env:NAME}` and `{file:PATH}` (opencode)."""
        return _OPENCODE.sub(self._replace_opencode, text)

    def _look_up(self, name: str, default: str | None, text: str) -> str:
        value = self.environ.get(name)
        if default is not None:
            return value or default
        if value is None:
            self.unset.append(name)
            return text
        return value

    def _replace_editor(self, match: re.Match[str]) -> str:
        kind, _, name = match[1].partition(":")
        folders = {
            "workspaceFolder": self.place,
            "workspaceFolderBasename": os.path.basename(self.place),
            "userHome": self.user_home,
            "pathSeparator": os.sep,
            "/": os.sep,
        }
        if match[1] in folders:
            return folders[match[1]]
        if kind == "env":
            return self._look_up(name, None, match[0])
        if kind == "input":
            self.inputs.append(name)
        else:
            self.unset.append(match[1])
        return match[0]

    def _replace_opencode(self, match: re.Match[str]) -> str:
        if match[1] == "env":
            return self._look_up(match[2], None, match[0])
        path = os.path.join(self.base, os.path.expanduser(match[2]))
        try:
            return read_regular_file(path).decode().strip()
        except (OSError, ValueError):
            self.unset.append(match[0])
            return match[0]


EXPANSIONS: dict[str, Callable[[Expander, str], str]] = {
    "claude": Expander.expand_braced,
    "cursor": Expander.expand_editor,
    "vscode": Expander.expand_editor,
    "gemini": Expander.expand_shell_like,
    "codex": lambda _, text: text,
    "opencode": Expander.expand_opencode,
}


def expand_all(value: object, expand: Callable[[str], str]) -> object:
    """Replace the variables in a text, or in all texts of a tuple or table."""
    if isinstance(value, str):
        return expand(value)
    if isinstance(value, tuple):
        return tuple(expand(item) for item in cast("tuple[str, ...]", value))
    return {key: expand(item) for key, item in cast("dict[str, str]", value).items()}
