"""Importers: session logs of other programs, converted to mudroom's events.

These log formats are undocumented and change. Unknown entries are ignored.
"""

from .claude import read_claude_log
from .codex import read_codex_log

__all__ = ["read_claude_log", "read_codex_log"]
