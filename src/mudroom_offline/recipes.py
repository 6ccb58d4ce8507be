"""Functions the rules know how to write: their source in Python and JavaScript, and cases that check them."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from .recipes_numbers import NUMBERS
from .recipes_text import TEXTS


class Recipe(Struct, frozen=True):
    """One function.

    Arguments:
        name: in snake case. python, javascript: whole definitions under that name. cases: arguments and expected values.
        others: further names it goes by.
    """

    name: str
    about: str
    python: str
    javascript: str
    cases: tuple[tuple[tuple[Any, ...], Any], ...]
    others: frozenset[str]


def _recipe(row: tuple[Any, ...]) -> Recipe:
    name, others, about, python, javascript, cases = row
    return Recipe(
        name, about, python.strip("\n"), javascript.strip("\n"), cases, frozenset(others.split())
    )


RECIPES = {recipe.name: recipe for recipe in map(_recipe, (*TEXTS, *NUMBERS))}
USUAL = ("capitalize", "reverse_string", "is_palindrome", "truncate")


def snake(name: str) -> str:
    """A function name in snake case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def camel(name: str) -> str:
    """A function name in camel case."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def recipe(name: str) -> Recipe | None:
    """The recipe for a function name in any case, or None."""
    plain = snake(name)
    return RECIPES.get(plain) or next((r for r in RECIPES.values() if plain in r.others), None)
