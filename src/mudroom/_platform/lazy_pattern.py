"""Regular expressions compiled at first use, so that imports are quick.

Standard library only, because the sandbox daemon imports this module.
"""

from __future__ import annotations

import re
from typing import AnyStr, Generic, cast


def compile_later(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Make a pattern that is compiled when one of its attributes is first read.

    The functions of `re` do not accept it; call its methods instead.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern(Generic[AnyStr]):
    def __init__(self, pattern: AnyStr, flags: int) -> None:
        self._source = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # copies and pickles look for such names before __init__
            raise AttributeError(name)
        value = getattr(re.compile(self._source, self._flags), name)
        # Later reads find the attribute without __getattr__.
        setattr(self, name, value)
        return value
