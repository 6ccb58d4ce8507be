"""Session logs of other programs as events of ours. Their forms are promised by nobody: what is not known is let go."""

from .claude import read_claude_log
from .codex import read_codex_log

__all__ = ["read_claude_log", "read_codex_log"]
