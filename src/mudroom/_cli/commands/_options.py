"""Click settings and options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ... import Mode

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

CONTEXT_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 120}

# A number from 1 on, and one above 0; errors call them so.
COUNT = click.IntRange(1)
COUNT.name = "whole number"
AMOUNT = click.FloatRange(0, min_open=True)
AMOUNT.name = "number"

MODES = [mode.value for mode in Mode]

OUTPUT_FORMATS = ("text", "json", "stream-json")


def complete_folders(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Tell the shell to complete this option with folders."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(typed, type="dir")]


def join_values(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Join the values of an option that may be given several times, as settings have them."""
    return ",".join(values) or None


def join_folders(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Join the folders of an option that may be given several times, as settings have them."""
    return os.pathsep.join(values) or None


def value_option(
    names: str, metavar: str, help_text: str, kind: click.ParamType[Any] | None = None
) -> Decorator:
    """Make an option that takes a value. `names`: its flags, separated by blanks."""
    return click.option(*names.split(), metavar=metavar, help=help_text, type=kind)


def switch_option(name: str, help_text: str) -> Decorator:
    """Make the flag of a setting: None if it is not given, so that files may set it."""
    return click.option(name, is_flag=True, default=None, help=help_text)


sandbox_option = click.option(
    "--sandbox",
    type=click.Choice(["auto", "full", "file", "off", "experimental-seatbelt"]),
    help='Sandbox for shell commands ("off" disables it).',
)


def rules_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --allowed-tools and --disallowed-tools."""
    command = rules_option("disallowed", 'Never allow: "Bash(git push:*)".')(command)
    return rules_option("allowed", 'Allow without asking: "Bash(git diff:*),Edit".')(command)


def rules_option(word: str, help_text: str) -> Decorator:
    """Make the option --allowed-tools or --disallowed-tools. `word`: "allowed", "disallowed"."""
    return click.option(
        # The second form is Claude Code's.
        f"--{word}-tools",
        f"--{word}Tools",
        multiple=True,
        callback=join_values,
        metavar="RULES",
        help=help_text,
    )


def folder_option(help_text: str, default: str | None = ".") -> Decorator:
    """Make the option -C. A default of None tells whether it is given."""
    return click.option(
        "-C", "cwd", default=default, metavar="DIR", shell_complete=complete_folders, help=help_text
    )


def worker_option(what: str) -> Decorator:
    """Make the option --worker. `what`: the runs that it is about, such as "children"."""
    return value_option(
        "--worker",
        "KIND",
        f'Where {what} run: "local", "process" (one process per core), "process:N", or "ray" and '
        '"ray:N" (on the cluster of RAY_ADDRESS), N up to 64.',
    )


def listen_details(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of a command that listens, beside its address."""
    details = (
        value_option("--tls-cert", "FILE", "Certificate for TLS (PEM)."),
        value_option("--tls-key", "FILE", "Its key (PEM)."),
        click.option("--behind-proxy", is_flag=True, help="A proxy does TLS; needs --host-name."),
        click.option(
            "--host-name", "host_names", multiple=True, metavar="NAME", help="A name of the server."
        ),
    )
    # Decorators apply from the bottom up; the help shows the top one first.
    for add in reversed(details):
        command = add(command)
    return command


plugin_dir_option = click.option(
    "--plugin-dir",
    "plugin_dirs",
    multiple=True,
    callback=join_folders,
    metavar="DIR",
    shell_complete=complete_folders,
    help="Use the plugin in this folder, too (mudroom plugins).",
)
store_option = click.option(
    "--store",
    metavar="URL",
    help="Database with the sessions: postgresql://USER@HOST/NAME (default: files).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
verbose_option = click.option(
    "--verbose", is_flag=True, help="Log every tool call to stderr when the live view is off."
)
no_color_option = click.option("--no-color", is_flag=True, help="No colours (or set NO_COLOR).")
format_option = click.option(
    "-o", "--output-format", type=click.Choice(OUTPUT_FORMATS), help="Output format."
)
