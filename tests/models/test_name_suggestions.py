"""A name that an error suggests is accepted in the place of the wrong one."""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable, Mapping

import click
import pytest

from mudroom import UsageError
from mudroom._adapters.agent_files import BUILTIN_AGENTS, load_builtin_agent
from mudroom._adapters.models.providers import PROVIDERS, parse_model_name
from mudroom._cli.actions.load_settings import describe_unknown_variables
from mudroom._cli.commands._command_line import describe_usage_error
from mudroom._cli.commands.root import root_command
from mudroom._core.ports.journal import select_session
from mudroom._session import config
from mudroom._session.agent_catalog import find_agent
from mudroom._session.options import make_options
from mudroom.errors import MudroomError, UnknownName

SESSIONS = [str(uuid.UUID(int=number << 96 | 7)) for number in (0xABCD1234, 0xABCD1235, 0x77AA0000)]
NAMED = [("review auth", SESSIONS[0]), ("fix-tests", SESSIONS[1])]


def find_builtin(name: str) -> object:
    agents = {each: load_builtin_agent(each) for each in BUILTIN_AGENTS}
    return find_agent(name, agents)


def set_option(name: str) -> object:
    try:
        return make_options({name: None})
    except MudroomError as error:
        if isinstance(error, UnknownName):
            raise
        return None  # the name is known, its value is wrong


def read_variable(name: str) -> None:
    for notice in describe_unknown_variables({name: "x"}):
        raise UsageError(notice)


def parse_flags(name: str) -> None:
    context = click.Context(root_command)
    try:
        root_command.make_parser(context).parse_args([name])
    except click.NoSuchOption as error:
        error.ctx = context
        raise UsageError(describe_usage_error(error)) from error
    except click.UsageError:
        pass  # a known option without its value


FINDERS: Mapping[str, tuple[Callable[[str], object], list[str]]] = {
    "model": (
        parse_model_name,
        ["no-such-model", "gtp-5", "claud-sonnet-4", "gemni-2.5-pro", "sonet"],
    ),
    "provider": (parse_model_name, [*PROVIDERS]),
    "provider and model": (
        lambda name: parse_model_name(name if ":" in name else f"{name}:x"),
        [f"{name}:x" for name in PROVIDERS],
    ),
    "agent": (find_builtin, [*BUILTIN_AGENTS]),
    "option": (set_option, ["model", "children", "permissions", "compaction"]),
    "variable": (read_variable, [*config.list_variables()]),
    "flag": (parse_flags, ["--model", "--resume", "--allowed-tools", "--max-turns", "--yolo"]),
    "session": (
        lambda name: select_session(name, SESSIONS, NAMED),
        ["review auth", "fix-tests", SESSIONS[0][:8]],
    ),
}


def misspell(word: str, chance: random.Random) -> str:
    """Return the word with one or two letters changed, left out, doubled or exchanged."""
    letters = list(word)
    for _ in range(chance.randint(1, 2)):
        at = chance.randrange(2, max(3, len(letters)))
        if at >= len(letters):
            continue
        kind = chance.randrange(4)
        if kind == 0:
            letters[at] = chance.choice("abcdefghij-_")
        elif kind == 1:
            del letters[at]
        elif kind == 2:
            letters.insert(at, letters[at])
        else:
            letters[at - 1], letters[at] = letters[at], letters[at - 1]
    return "".join(letters)


def list_suggested(error: Exception) -> list[str]:
    text = f"{error} {getattr(error, 'remedy', '')}"
    if match := re.search(r"Did you mean (.+?)\?", text):
        return match[1].split(" or ")
    return []


@pytest.mark.parametrize("kind", FINDERS)
def test_what_is_suggested_is_accepted(kind: str) -> None:
    find, names = FINDERS[kind]
    chance = random.Random(kind)
    suggested: set[str] = set()
    for _ in range(150):
        wrong = misspell(chance.choice(names), chance)
        try:
            find(wrong)
        except MudroomError as error:
            suggested.update(list_suggested(error))
    assert suggested, "nothing was suggested"
    for name in suggested:
        find(name.split()[0] if kind == "flag" else name)


def test_a_suggested_model_is_one_of_the_price_table() -> None:
    from genai_prices.data_snapshot import get_snapshot

    models = {model.id for provider in get_snapshot().providers for model in provider.models}
    for wrong in ("gtp-5", "claud-sonnet-4-5", "no-such-model", "gemni-2.5-flash", "grk-4"):
        with pytest.raises(UnknownName) as caught:
            parse_model_name(wrong)
        assert set(list_suggested(caught.value)) <= models, wrong
