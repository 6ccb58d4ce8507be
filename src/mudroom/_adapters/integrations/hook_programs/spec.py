"""A hook's configuration, whichever file it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from ..file_names import Dialect
from ..mcp_servers.spec import Scope

HookKind = Literal["command", "http", "mcp_tool", "prompt", "agent"]


class HookSpec(Struct, frozen=True, kw_only=True):
    """A hook's configuration, modelled on Claude Code's settings files.

    Arguments:
        matcher: selects by tool, agent, source or reason, depending on the event; "" for all.
        origin: path of the file.
        command: a line for the shell, or the program if `args` is given.
        args: arguments of the program, which then runs without a shell; None for a shell line.
        allowed_variables: environment variables that headers may contain.
        env: variables the program gets in addition to the usual ones.
        condition: a permission rule such as `Bash(git *)` that a call must match.
        timeout: seconds, None for the event's limit.
        once: run only the first time in a session.
        blocks_on_failure: a failure of the hook itself blocks.
        dialect: the program whose tool names and input and output formats it expects.
        options: other fields of the kinds mcp_tool, prompt and agent, as in the file.
        file_event: the event's name in the file, if the dialect has a different one.
        shown: command, address or prompt as in the file, for screens.
        place: folder the file belongs to, which needs trust; "" for the user's files.
        digest: identifies the definition in the file, for the trust in a folder.
    """

    event: str
    kind: HookKind
    origin: str
    scope: Scope
    matcher: str = ""
    command: str = ""
    args: tuple[str, ...] | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    allowed_variables: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    condition: str = ""
    timeout: float | None = None
    status_message: str = ""
    once: bool = False
    in_background: bool = False
    blocks_on_failure: bool = False
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    dialect: Dialect = "claude"
    file_event: str = ""
    shown: str = ""
    place: str = ""
    digest: str = ""
