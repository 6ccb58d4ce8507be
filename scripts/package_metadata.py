"""Write the links and addresses of the package for an index (a metadata hook of hatchling).

A package index shows README.md without the repository. Its relative links lead nowhere there.
`MUDROOM_PROJECT_URL` names the public repository, such as `https://git.example/owner/mudroom`:
links then lead to the files of this version, and the package lists its addresses.
Without the variable the front page has neither pictures nor links to files.
The command that installs the folder `.` installs the published package there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "MUDROOM_PROJECT_URL"
INSTALLED = "pipx install . "
PUBLISHED = "pipx install mudroom "
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)]+)\)")


class PackageMetadataHook(MetadataHookInterface):
    """Set `readme` and `urls`, unless a source package brings them."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the missing fields to the `project` table in place.

        Raises:
            ValueError: The variable is not an address that begins with `https://`.
        """
        address = os.environ.get(VARIABLE, "").rstrip("/")
        if address and not re.fullmatch(r"https://[^\s/]+(/[^\s/]+)+", address):
            message = (
                f"{VARIABLE}={address}: not the address of a repository. "
                "Name one such as https://git.example/owner/mudroom."
            )
            raise ValueError(message)
        if "readme" not in metadata:
            root = Path(self.root)
            text = (root / "README.md").read_text("utf-8").replace(INSTALLED, PUBLISHED)
            version = read_version(root)
            metadata["readme"] = {
                "content-type": "text/markdown",
                "text": replace_links(text, address, version),
            }
            metadata["urls"] = list_addresses(address, version)


def read_version(root: Path) -> str:
    """Read the version from the source, as `[tool.hatch.version]` does."""
    text = (root / "src" / "mudroom" / "_version.py").read_text("utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        message = 'src/mudroom/_version.py: no line `__version__ = "…"`'
        raise ValueError(message)
    return found[1]


def replace_links(text: str, address: str, version: str) -> str:
    """Make each relative link absolute; without an address keep its text and drop pictures.

    Args:
        text: Markdown.
        address: Address of the repository without a slash at the end; empty if unknown.
        version: Version whose tag `vVERSION` has the files.
    """

    def replace(found: re.Match[str]) -> str:
        picture, label, target = found.groups()
        if not address:
            return "" if picture else label
        kind = "raw" if picture else "blob"
        return f"{picture}[{label}]({address}/{kind}/v{version}/{target})"

    return re.sub(r"\n{3,}", "\n\n", LINK.sub(replace, text))


def list_addresses(address: str, version: str) -> dict[str, str]:
    """Return the addresses that a package index shows beside the front page."""
    if not address:
        return {}
    files = f"{address}/blob/v{version}"
    return {
        "Homepage": address,
        "Documentation": f"{files}/docs/README.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Source": address,
        "Issues": f"{address}/issues",
    }
