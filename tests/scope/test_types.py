"""What a type checker knows of typed outputs; the calls are made, too."""

from __future__ import annotations

import dataclasses
from typing import Any, TypedDict, assert_type

import msgspec
import pydantic

from mudroom import Report, Session
from mudroom.models.scripted import Answer, Request

from .conftest import Open, emit


@dataclasses.dataclass
class Data:
    title: str


class Struct(msgspec.Struct):
    title: str


class Typed(TypedDict):
    title: str


class Model(pydantic.BaseModel):
    title: str


async def checked(session: Session) -> None:
    data = await session.task("x", outputs=Data)
    assert_type(data, Report[Data])
    assert_type(data.outputs.title, str)
    assert_type((await session.run("x", outputs=Struct)).outputs.title, str)
    assert_type((await session.task("x", outputs=Typed)).outputs["title"], str)
    assert_type((await session.map(["x"], outputs=Model))[0].outputs.title, str)
    assert_type((await session.task("x", outputs={"title": "the title"})).outputs, dict[str, Any])
    assert_type((await session.task("x")).outputs, dict[str, Any])


async def test_c3_report_outputs_are_typed_for_the_checker_and_so_at_run_time(
    scripted: Open,
) -> None:
    def answer(request: Request) -> Answer:
        return [emit("title", "T")] if "self.emitvalue" in request.tools else "Done."

    async with scripted(answer) as (session, _):
        await checked(session)
