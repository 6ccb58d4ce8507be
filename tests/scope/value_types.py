"""Types of outputs whose values pydantic checks beyond their schema."""

from __future__ import annotations

from typing import Self

import pydantic


class Book(pydantic.BaseModel):
    title: str

    @pydantic.field_validator("title")
    @classmethod
    def check_title(cls, title: str) -> str:
        if not title.istitle():
            raise ValueError("the title must begin with a capital letter")
        return title


class Span(pydantic.BaseModel):
    first: int
    last: int

    @pydantic.model_validator(mode="after")
    def check_order(self) -> Self:
        if self.first > self.last:
            raise ValueError("first is greater than last")
        return self
