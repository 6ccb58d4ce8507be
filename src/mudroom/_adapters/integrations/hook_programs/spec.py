"""The configuration of one hook, from whichever file it comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from ..file_names import Dialect
from ..mcp_servers.spec import Scope

HookKind = Literal["command", "http", "mcp_tool", "prompt", "agent"]


class HookSpec(Struct, frozen=True, kw_only=True):
    """Configuration of one hook.

    Modelled on the hooks of Claude Code's settings files.

    Arguments:
        event: such as `PreToolUse`.
        matcher: selects by tool, agent, source or reason, as the event defines; "" for all.
        origin: path of the file.
        command: a line for the shell, or the program if `args` is given.
        args: arguments of the program, which then runs without a shell; None for a shell line.
        url: address of a hook of kind http.
        allowed_variables: environment variables that headers may contain.
        env: variables that the program gets besides the usual ones.
        condition: a permission rule such as `Bash(git *)` that a call must match.
        timeout: seconds, None for the limit of the event.
        once: whether it runs only the first time in a session.
        in_background: whether the run continues without its result.
        blocks_on_failure: whether a failure of the hook itself blocks.
        dialect: the program whose names of tools and forms of input and output it expects.
        options: further fields of the kinds mcp_tool, prompt and agent, as in the file.
        file_event: name of the event in the file, if the dialect has another one.
        shown: command, address or prompt as in the file, for screens.
        place: folder whose content the file is, which needs trust; "" for a file of the user.
        digest: identifies the definition in the file; the trust of a folder refers to it.
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
