"""The documentation site builds without faults, and every kind of broken link is an error."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from tests.docs.conftest import BuiltSite

import mudroom

ROOT = Path(__file__).parents[2]

MENU = re.compile(r"^nav = \[\n.*?^\]\n", re.MULTILINE | re.DOTALL)
PAGES = {
    "README.md": "# mudroom\n",
    "docs/budgets.md": "# Budgets\n\n[Tools](tools.md#read-files)\n",
    "docs/tools.md": "# Tools\n\n## Read files\n",
}


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Write a few pages and the settings of the site with a menu of them; return their folder."""
    folder = tmp_path / "build" / "pages"
    for name, text in PAGES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    settings, count = MENU.subn(
        f"nav = {json.dumps(list(PAGES))}\n", (ROOT / "zensical.toml").read_text()
    )
    assert count == 1
    (tmp_path / "zensical.toml").write_text(settings)
    return folder


@pytest.mark.timeout(600)  # the first test builds the site: slow on a busy machine
def test_the_site_builds_without_faults(built_site: BuiltSite) -> None:
    assert built_site.done.returncode == 0, built_site.done.stdout
    assert built_site.done.stdout.strip().endswith("build/site/index.html")
    front_page = (built_site.folder / "index.html").read_text("utf-8")
    assert "<title>Overview - mudroom" in front_page
    reference = (built_site.folder / "docs" / "reference" / "mudroom.html").read_text("utf-8")
    assert all(f'id="{name.lower()}"' in reference for name in mudroom.__all__)


def test_pages_without_broken_links_have_no_faults(site: ModuleType, pages: Path) -> None:
    assert site.build_site(pages.parents[1]) == []


def test_broken_links_between_pages_are_errors(site: ModuleType, pages: Path) -> None:
    broken = {
        "[a](no-such-page.md)": "page does not exist",
        "[a](tools.md#no-such-place)": "anchor does not exist",
        "[a](#no-such-place)": "anchor does not exist",
        "[a][no-such-reference]": "unresolved",
    }
    for number, link in enumerate(broken):
        (pages / "docs" / f"broken{number}.md").write_text(f"# Broken\n\n{link}\n")
    (text,) = site.build_site(pages.parents[1])
    errors = text.split("Warning: ")[1:]
    for number, (error, fault) in enumerate(zip(errors, broken.values(), strict=True)):
        assert error.startswith(fault) and f"docs/broken{number}.md" in error


def test_broken_links_to_files_and_external_resources_are_errors(
    site: ModuleType, pages: Path
) -> None:
    with (pages / "docs" / "budgets.md").open("a") as page:
        page.write(
            "\n[a](../no/such/file.py) [a](../../outside) ![a](assets/none.svg) ![a](https://elsewhere.example/a.png)\n"
        )
    (pages / "docs" / "forgotten.md").write_text("# Forgotten\n")
    assert site.build_site(pages.parents[1]) == [
        "docs/forgotten.md: is missing in the nav of zensical.toml",
        "docs/budgets.html: loads https://elsewhere.example/a.png",
        "docs/budgets.html: ../no/such/file.py is a broken link",
        "docs/budgets.html: ../../outside is a broken link",
        "docs/budgets.html: assets/none.svg is a broken link",
    ]
