"""Regular expressions that are compiled at their first use, so that imports are quick.

Standard library only: the sandbox daemon imports this module.
"""

from __future__ import annotations

import re
from typing import AnyStr, Generic, cast


def compile_later(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that is compiled when its first attribute is read.

    Functions of `re` do not accept it: call its methods.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern(Generic[AnyStr]):
    """A pattern and its flags, with the attributes of the compiled pattern."""

    def __init__(self, pattern: AnyStr, flags: int) -> None:
        self._source = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the compiled pattern, and keep it for the next time."""
        if name.startswith("__"):  # copies and pickles look for such names before __init__
            raise AttributeError(name)
        value = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, value)
        return value
