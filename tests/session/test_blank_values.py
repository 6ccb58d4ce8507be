"""Options of a session whose text is blank or unknown: refused before the session opens."""

from __future__ import annotations

import pytest

from mudroom import Agent, Session, SessionOptions
from mudroom._session.config import find_home
from mudroom._session.options import gather_options, list_places
from mudroom.errors import UnknownName, UsageError

from .conftest import IsolatedOptions

PLACES = list_places(SessionOptions)
TEXT_OPTIONS = [name for name, place in PLACES.items() if isinstance(place.field.default, str)]


@pytest.mark.parametrize("blank", ["", "  "])
@pytest.mark.parametrize("name", TEXT_OPTIONS)
def test_a_blank_option_is_refused(name: str, blank: str) -> None:
    place = PLACES[name]
    if blank == place.field.default:
        return  # "" is the default
    where = place.owner.__name__ if place.group else "Session"
    options = gather_options({name: blank}, SessionOptions())
    with pytest.raises(UsageError, match=rf"^{place.field.name} is blank \({where}\)\. Leave it"):
        Session(**options)


def test_an_unknown_journal_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"unknown journal 'sqlit'.*Did you mean sqlite"):
        Session(journal="sqlit")


async def test_a_blank_model_of_a_task_is_refused(isolated: IsolatedOptions) -> None:
    async with Session(**isolated, model="offline") as session:
        with pytest.raises(UnknownName, match="unknown model ''"):
            await session.task("hello", model="")


def test_an_agent_with_a_blank_name_is_refused() -> None:
    with pytest.raises(UsageError, match="the name is blank"):
        Agent(name=" ")


def test_unknown_context_files_of_an_agent_are_refused() -> None:
    agent = Agent(name="a", context_files="ful")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="context_files of Agent 'a' must be"):
        Session(agents=[agent])


def test_a_blank_home_variable_is_refused() -> None:
    with pytest.raises(UsageError, match=r"it is blank \(\$MUDROOM_HOME\). Name a folder"):
        find_home({"MUDROOM_HOME": " "})
