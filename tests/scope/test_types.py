"""Typed outputs for type checkers: `outputs` of the report has the requested type."""

from __future__ import annotations

import dataclasses
from typing import Any, TypedDict, assert_type, cast

import msgspec
import pydantic

from mudroom import Report, Session
from mudroom._adapters.models.scripted import Answer, Request

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


async def check_types(session: Session) -> None:
    """Make each call, so that the type checker and the run see the same code."""
    data = await session.task("x", outputs=Data)
    assert_type(data, Report[Data])
    assert_type(data.outputs.title, str)
    assert_type((await session.run("x", outputs=Struct)).outputs.title, str)
    assert_type((await session.task("x", outputs=Typed)).outputs["title"], str)
    assert_type((await session.map(["x"], outputs=Model))[0].outputs.title, str)
    assert_type((await session.task("x", outputs=list[int])).outputs, list[int])
    assert_type((await session.task("x", outputs=list[Model])).outputs, list[Model])
    optional = cast("type[Model | None]", Model | None)
    assert_type((await session.task("x", outputs=optional)).outputs, Model | None)
    assert_type((await session.task("x", outputs={"title": "the title"})).outputs, dict[str, Any])
    assert_type((await session.task("x")).outputs, dict[str, Any])


async def test_outputs_have_the_type_that_the_type_checker_infers(scripted: Open) -> None:
    def answer(request: Request) -> Answer:
        if "self.emitvalue" not in request.tools:
            return "Done."
        values: dict[int, object] = {5: [1], 6: [{"title": "T"}], 7: {"title": "T"}}
        if request.number in values:
            return [emit("result", values[request.number])]
        return [emit("title", "T")]

    async with scripted(answer) as (session, _):
        await check_types(session)
