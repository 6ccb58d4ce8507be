"""Which similar commands an approval covers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .program_table import APPROVALS, APPROVED_MODULES, APPROVED_RUNNERS
from .program_wrappers import get_program_name, strip_version
from .program_writes import starts_plainly
from .shell_words import Word


def find_approved_prefix(words: Sequence[Word]) -> str:
    """Return the first words of a command, if approving it covers similar arguments.

    These are its program with subcommand or module. "" if the command could run something else, or
    its arguments are not known to be harmless.
    """
    values = [word.value for word in words]
    if (values[0], *values[1:2]) in APPROVED_RUNNERS:
        inner = find_approved_prefix(words[2:]) if words[2:] else ""
        return f"{values[0]} {values[1]} {inner}" if inner else ""
    is_python = strip_version(get_program_name(words)) == "python"
    if is_python and values[1:2] == ["-m"] and words[2:]:
        inner = find_approved_prefix(words[2:]) if values[2] in APPROVED_MODULES else ""
        return f"{values[0]} -m {inner}" if inner else ""
    for count in (2, 1):
        prefix = " ".join(value or "?" for value in values[:count])
        if prefix in APPROVALS and len(values) >= count:
            return prefix if _covers(prefix, words[count:]) else ""
    return ""


def _covers(prefix: str, arguments: Sequence[Word]) -> bool:
    approval = APPROVALS[prefix]
    if any(word.value is None and not starts_plainly(word) for word in arguments):
        return False
    values = [word.raw if word.value is None else word.value for word in arguments]
    flags = [value for value in values if value.startswith("-")]
    operands = [value for value in values if not value.startswith("-")]
    return (
        all(re.fullmatch(approval.flags, flag) for flag in flags)
        # Many programs read options from `@file`; cargo picks another toolchain with `+name`.
        and not any(operand.startswith(("@", "+")) for operand in operands)
        and bool(re.fullmatch(approval.operands, " ".join(operands), re.DOTALL))
    )
