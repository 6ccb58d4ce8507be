"""A session that finds no key: it does not go on with the offline model unasked."""

from __future__ import annotations

import os

import pytest

from mudroom import Agent, Session, UsageError
from mudroom.driving import Notice

from .conftest import IsolatedOptions

NO_MODEL = "no model: no API key and no local server found"


async def test_a_session_without_any_key_does_not_open_and_says_what_to_set(
    isolated: IsolatedOptions,
) -> None:
    session = Session(**isolated)
    with pytest.raises(UsageError, match=NO_MODEL) as raised:
        await session.__aenter__()
    for word in ("ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "OLLAMA_HOST", 'The model "offline"'):
        assert word in raised.value.remedy
    assert not os.path.exists(isolated["home"])
    with pytest.raises(UsageError, match="not open"):
        await session.run("hello")


@pytest.mark.parametrize("choice", ["option", "variable", "agent"])
async def test_the_offline_model_is_a_choice(isolated: IsolatedOptions, choice: str) -> None:
    if choice == "variable":
        isolated["environ"] = {"MUDROOM_MODEL": "offline"}
    session = Session(
        model="offline" if choice == "option" else "auto",
        agent=Agent(name="demo", model="offline") if choice == "agent" else "",
        **isolated,
    )
    async with session:
        assert session.model == "offline:rules"
    assert "offline" not in {notice.kind for notice in session.notices}


async def test_a_resumed_session_goes_on_with_the_offline_model_that_it_chose(
    isolated: IsolatedOptions,
) -> None:
    async with Session(model="offline", **isolated) as first:
        await first.run("help")
    async with Session(**isolated, resume=first.id) as resumed:
        assert (await resumed.run("help")).model == "offline:rules"


async def test_a_service_that_lost_its_key_opens_no_further_session(
    isolated: IsolatedOptions,
) -> None:
    isolated["environ"] = {"ANTHROPIC_API_KEY": "k"}
    async with Session(**isolated) as session:
        assert session.model.startswith("anthropic:")
    isolated["environ"] = {}
    with pytest.raises(UsageError, match=NO_MODEL):
        async with Session(**isolated):
            pass


async def test_a_session_that_may_use_the_demo_has_a_notice_of_its_kind(
    isolated: IsolatedOptions,
) -> None:
    session = Session(**isolated)
    session.allows_offline = True
    async with session:
        assert session.model == "offline:rules"
    (notice,) = [each for each in session.notices if each.kind == "offline"]
    assert "ANTHROPIC_API_KEY" in str(notice)
    assert notice == Notice("offline", notice.text)
