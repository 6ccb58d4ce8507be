"""The terminal's theme: colors for names such as yellow, on dark and light backgrounds.

All text uses the 16 ANSI colors. On a dark background the terminal's palette applies. On a light
one, each color is replaced with a darker one from the 256 fixed colors. A process has one terminal,
so there is one theme.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..._platform.patterns import compile_later

_SEQUENCE = compile_later(r"\x1b\[([\d;]+)m")

# Colors on a light background: number out of 256, and RGB. Contrast is at least 5 to 1.
LIGHT_COLORS = {
    "red": (124, "af0000"),
    "green": (22, "005f00"),
    "yellow": (94, "875f00"),
    "blue": (25, "005faf"),
    "magenta": (90, "870087"),
    "cyan": (23, "005f5f"),
}

_LIGHT_CODES = {
    f"{base + n}": f"38;5;{number}"
    for base in (30, 90)
    for n, (number, _) in enumerate(LIGHT_COLORS.values(), 1)
} | {"37": "38;5;238", "90": "38;5;241", "97": "38;5;236"}


class _Theme:
    is_light = False


def use_theme(name: str, environ: Mapping[str, str] | None = None) -> None:
    """Use a theme from now on; "auto" takes it from $COLORFGBG, else "dark"."""
    if name == "auto":
        background = (environ or {}).get("COLORFGBG", "").rpartition(";")[2]
        # "0;15" is black on white; 7 is light grey.
        name = "light" if background in ("7", "15") else "dark"
    _Theme.is_light = name == "light"


def is_light() -> bool:
    return _Theme.is_light


def apply_theme(text: str) -> str:
    return _SEQUENCE.sub(_replace_codes, text) if _Theme.is_light else text


def _replace_codes(match: re.Match[str]) -> str:
    codes = match[1].split(";")
    if "38" in codes or "48" in codes:  # not one of the 16 colors
        return match[0]
    return f"\x1b[{';'.join(_LIGHT_CODES.get(code, code) for code in codes)}m"
