"""Protected names: files in a workspace that decide which programs the user's own tools run.

Commands and file tools may read but not change them. Standard library only, because the sandbox
daemon imports this module.
"""

from __future__ import annotations

# All of mudroom's own files start with it.
OWN_PREFIX = ".mudroom"

# Files being written. They are not protected, because they are renamed a moment later, and code
# that checks names would find them gone.
UNFINISHED_PREFIX = f"{OWN_PREFIX}-unfinished"

_LISTED = """
.git .gitmodules .gitconfig .githooks .husky
.bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin .zlogout
.envrc .claude .agents .codex .gemini .cursor .windsurf .opencode .mcp.json
.vscode .idea .devcontainer .ripgreprc
"""
# Settings of git, shells, agents and editors. Texts that agents often write, such as AGENTS.md,
# are not protected.
PROTECTED_NAMES = frozenset(_LISTED.split())


def is_protected(name: str) -> bool:
    """Return whether a path component is protected.

    Names that some file system treats as equal (letter case, Unicode form) count as equal.
    """
    if not name.isascii():
        import unicodedata

        name = "".join(
            c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf"
        )
    folded = name.casefold()
    if folded in PROTECTED_NAMES:
        return True
    return folded.startswith(OWN_PREFIX) and not folded.startswith(UNFINISHED_PREFIX)


def find_protected_component(path: str) -> str:
    """Return the first protected component of a relative path, "" if there is none."""
    return next((name for name in path.split("/") if is_protected(name)), "")
