"""Session logs of other programs as events of ours. Their forms are promised by nobody: what is not known is let go."""

from .claude import claude
from .codex import codex

__all__ = ["claude", "codex"]
