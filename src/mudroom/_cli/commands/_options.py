"""Click settings and options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ... import Mode

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

CONTEXT_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 120}

# An integer of at least 1, and a number above 0; errors use these names.
COUNT = click.IntRange(1)
COUNT.name = "whole number"
AMOUNT = click.FloatRange(0, min_open=True)
AMOUNT.name = "number"

MODES = [mode.value for mode in Mode]

OUTPUT_FORMATS = ("text", "json", "stream-json")


def complete_folders(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(typed, type="dir")]


def join_values(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> str | None:
    return ",".join(values) or None


def join_folders(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> str | None:
    return os.pathsep.join(values) or None


def value_option(
    names: str,
    metavar: str,
    help_text: str,
    kind: click.ParamType[Any] | None = None,
    **settings: Any,
) -> Decorator:
    """Make an option that takes a value.

    `names` are its flags and optionally its parameter's name, separated by spaces.
    """
    return click.option(*names.split(), metavar=metavar, help=help_text, type=kind, **settings)


def choice_option(
    names: str, choices: Sequence[str], help_text: str | None = None, **settings: Any
) -> Decorator:
    return click.option(*names.split(), type=click.Choice(choices), help=help_text, **settings)


def flag_option(names: str, help_text: str) -> Decorator:
    return click.option(*names.split(), is_flag=True, help=help_text)


def switch_option(name: str, help_text: str) -> Decorator:
    """Make a setting's flag: None if not given, so that files may set it."""
    return click.option(name, is_flag=True, default=None, help=help_text)


def combine(*options: Decorator) -> Decorator:
    def add_all(command: Callable[..., Any]) -> Callable[..., Any]:
        # Decorators apply from the bottom up; the help shows the top one first.
        for add in reversed(options):
            command = add(command)
        return command

    return add_all


def mode_option(help_text: str) -> Decorator:
    return choice_option("--permission-mode", MODES, help_text)


sandbox_option = choice_option(
    "--sandbox",
    ["auto", "full", "file", "off", "experimental-seatbelt"],
    'Sandbox for shell commands ("off" disables it).',
)


def rules_option(word: str, help_text: str) -> Decorator:
    # The second form is Claude Code's.
    names = f"--{word}-tools --{word}Tools"
    return value_option(names, "RULES", help_text, multiple=True, callback=join_values)


rules_options = combine(
    rules_option("allowed", 'Allow without asking: "Bash(git diff:*),Edit".'),
    rules_option("disallowed", 'Never allow: "Bash(git push:*)".'),
)


def folder_option(help_text: str, default: str | None = ".") -> Decorator:
    """Make the option -C. A default of None shows whether it was given."""
    return value_option(
        "-C cwd", "DIR", help_text, default=default, shell_complete=complete_folders
    )


def worker_option(what: str) -> Decorator:
    return value_option(
        "--worker",
        "KIND",
        f'Where {what} run: "local", "process" (one process per core), "process:N", or "ray" and '
        '"ray:N" (on the cluster of RAY_ADDRESS), N up to 64.',
    )


# Flags of a command that listens, besides its address.
listen_details = combine(
    value_option("--tls-cert", "FILE", "Certificate for TLS (PEM)."),
    value_option("--tls-key", "FILE", "Its key (PEM)."),
    flag_option("--behind-proxy is_behind_proxy", "A proxy does TLS; needs --host-name."),
    value_option("--host-name host_names", "NAME", "A name of the server.", multiple=True),
)


def limit_options(what: str) -> Decorator:
    return combine(
        value_option(
            "--max-turns", "N", f"Maximum model calls of a {what}; one more for a summary.", COUNT
        ),
        value_option("--max-minutes", "N", f"Time limit of a {what} in minutes.", AMOUNT),
        value_option("--max-tokens", "N", f"Token limit of a {what} (input + output).", COUNT),
        value_option("--max-budget-usd", "USD", f"Spending limit of a {what}.", AMOUNT),
    )


plugin_dir_option = value_option(
    "--plugin-dir plugin_dirs",
    "DIR",
    "Use the plugin in this folder, too (mudroom plugins).",
    multiple=True,
    callback=join_folders,
    shell_complete=complete_folders,
)
store_option = value_option(
    "--store", "URL", "Database with the sessions: postgresql://USER@HOST/NAME (default: files)."
)
isolate_option = switch_option("--isolate", "Give children that may change files own copies.")
net_option = switch_option("--allow-net", "Let commands and web tools reach the network.")
json_option = flag_option("--json as_json", "Print JSON.")
quiet_option = flag_option("-q --quiet", "Print errors only.")
verbose_option = flag_option(
    "--verbose", "Log every tool call to stderr when the live view is off."
)
no_color_option = flag_option("--no-color", "No colours (or set NO_COLOR).")
format_option = choice_option("-o --output-format", OUTPUT_FORMATS, "Output format.")
