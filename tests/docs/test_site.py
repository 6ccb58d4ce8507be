"""The documentation site: it is built without a fault, and a link that leads nowhere ends the build, whatever kind it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import mudroom

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pages(site: ModuleType, tmp_path: Path) -> Path:
    """The pages, laid out."""
    site.lay_out(tmp_path)
    return tmp_path / "build" / "pages"


def test_it_is_built_without_a_fault(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "site", tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.strip().endswith("build/site/index.html")
    reference = (tmp_path / "build" / "site" / "docs" / "reference.html").read_text("utf-8")
    assert all(f'id="{name.lower()}"' in reference for name in mudroom.__all__)


@pytest.mark.parametrize(
    ("link", "fault"),
    [
        ("[a](no-such-page.md)", "page does not exist"),
        ("[a](tools.md#no-such-place)", "anchor does not exist"),
        ("[a](#no-such-place)", "anchor does not exist"),
        ("[a][no-such-reference]", "unresolved"),
    ],
)
def test_a_broken_link_between_pages_ends_the_build(
    link: str, fault: str, site: ModuleType, pages: Path
) -> None:
    with (pages / "docs" / "budgets.md").open("a") as page:
        page.write(f"\n{link}\n")
    (found,) = site.build(pages.parents[1])
    assert fault in found and "docs/budgets.md" in found


def test_broken_links_to_anything_else_and_pages_that_fetch_are_found(
    site: ModuleType, pages: Path
) -> None:
    with (pages / "docs" / "budgets.md").open("a") as page:
        page.write(
            "\n[a](../no/such/file.py) [a](../../outside) ![a](assets/none.svg) ![a](https://elsewhere.example/a.png)\n"
        )
    (pages / "docs" / "forgotten.md").write_text("# Forgotten\n")
    assert site.build(pages.parents[1]) == [
        "docs/forgotten.md: has no place in the nav of zensical.toml",
        "docs/budgets.html: fetches https://elsewhere.example/a.png",
        "docs/budgets.html: ../no/such/file.py leads nowhere",
        "docs/budgets.html: ../../outside leads nowhere",
        "docs/budgets.html: assets/none.svg leads nowhere",
    ]
