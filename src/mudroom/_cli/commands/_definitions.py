"""Definitions of commands. A command names its action, imported only when the command runs.

Shell completion and help therefore work without importing the modules that do the work.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import click
from msgspec import Struct

from ._options import CONTEXT_SETTINGS, Decorator, combine

_ACTIONS = f"{__name__.rpartition('.commands')[0]}.actions"


class Action(Struct, frozen=True):
    """Calls a function of `actions`, such as "board.print_task", with a command's parameters."""

    path: str

    def load(self) -> Callable[..., int | None]:
        module, _, name = self.path.rpartition(".")
        return getattr(import_module(f"{_ACTIONS}.{module}"), name)

    def __call__(self, **values: object) -> int:
        """Call the function; if it returns nothing, the exit code is 0."""
        context = click.get_current_context()
        if isinstance(context.command, click.Group) and context.invoked_subcommand:
            return 0  # the subcommand also has its group's options
        # An option that both have, such as -C, may come before or after the command's name.
        shared = context.parent.params if context.parent else {}
        own = {
            name: each for name, each in values.items() if name not in shared or each is not None
        }
        return self.load()(**{**shared, **own}) or 0


def define_command(
    name: str, action: str, help_text: str, *parameters: Decorator, **settings: Any
) -> click.Command:
    """Define a command whose action receives its parameters and those of its group.

    Parameters are in help order; `settings` are for click's context.
    """
    return click.Command(
        name,
        callback=Action(action),
        help=help_text,
        params=_make_parameters(*parameters),
        context_settings=CONTEXT_SETTINGS | settings,
    )


class CommandGroup(click.Group):
    """A command with subcommands, which also receive its options.

    `action` runs if no subcommand is given; "" if one is required.
    """

    def __init__(self, name: str, action: str, help_text: str, *parameters: Decorator) -> None:
        super().__init__(
            name,
            callback=Action(action) if action else None,
            help=help_text,
            params=_make_parameters(*parameters),
            invoke_without_command=bool(action),
            context_settings=CONTEXT_SETTINGS,
        )

    def define(
        self, name: str, action: str, help_text: str, *parameters: Decorator, **settings: Any
    ) -> None:
        self.add_command(define_command(name, action, help_text, *parameters, **settings))


def _make_parameters(*decorators: Decorator) -> list[click.Parameter]:
    def collect() -> None: ...

    combine(*decorators)(collect)
    # click's decorators leave their parameters here, last one first.
    return list(reversed(getattr(collect, "__click_params__", [])))
