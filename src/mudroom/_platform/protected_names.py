"""Names in a workspace that decide what the user's own programs will run: commands and file tools may read, not change them."""

from __future__ import annotations

OWN_PREFIX = ".mudroom"
"""What begins like this is ours."""

UNFINISHED_PREFIX = f"{OWN_PREFIX}-unfinished"
"""What a file is called while it is written, for a moment: not protected, for whoever lists names would find it gone."""

_LISTED = """
.git .gitmodules .gitconfig .githooks .husky
.bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin .zlogout .envrc
.claude .agents .codex .gemini .cursor .windsurf .opencode .mcp.json
.vscode .idea .devcontainer .ripgreprc
"""
PROTECTED_NAMES = frozenset(_LISTED.split())
"""Settings of git, shells, agents and editors. Texts an agent may well write (AGENTS.md) are not among them."""


def is_protected(name: str) -> bool:
    """Whether one component of a path is such a name, in whatever case or Unicode form a file system may take for the same."""
    if not name.isascii():
        import unicodedata

        name = "".join(
            c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf"
        )
    folded = name.casefold()
    return folded in PROTECTED_NAMES or (
        folded.startswith(OWN_PREFIX) and not folded.startswith(UNFINISHED_PREFIX)
    )


def find_protected_component(path: str) -> str:
    """The first protected component of a relative path, "" when there is none."""
    return next((part for part in path.split("/") if is_protected(part)), "")
