"""Type of the structs that a program constructs: an unknown field is an error with a remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import StructMeta

from ..errors import UnknownName


class NamedFields(StructMeta):
    """Type of structs whose constructor names an unknown field, and the nearest known one."""

    if not TYPE_CHECKING:  # Type checkers read the fields of the struct.

        def __call__(cls, *values: object, **fields: object) -> object:
            """Construct a struct. Raises UnknownName for an argument that is no field."""
            try:
                return super().__call__(*values, **fields)
            except TypeError:
                known = cls.__struct_fields__
                unknown = next((name for name in fields if name not in known), None)
                if unknown is None:
                    raise
                raise UnknownName("argument", unknown, known, where=cls.__name__) from None
