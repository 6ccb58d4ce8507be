"""The packages that users install: content and metadata, and the program in a new environment."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


ADDRESS = "https://git.example/owner/mudroom"


def build(source: Path, target: Path, kind: str, address: str = "") -> Path:
    """Build a package without the network and return its path."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target],
        cwd=source,
        check=True,
        capture_output=True,
        env={**os.environ, "MUDROOM_PROJECT_URL": address},
    )
    return next(target.iterdir())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source package, and the wheel from it, as an installer does."""
    base = tmp_path_factory.mktemp("packages")
    copy = base / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, copy)
    (copy / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "package_metadata.py", copy / "scripts")
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with tarfile.open(build(copy, base / "sdist", "sdist", ADDRESS)) as archive:
        # Python 3.11.2, as Debian has it, knows no filters.
        safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(base / "source", **safe)
    (source,) = (base / "source").iterdir()
    return build(source, base / "wheel", "wheel")


def read_page(address: str) -> str:
    """Return the front page that a package index shows, with the given address of the project."""
    hook = runpy.run_path(str(ROOT / "scripts" / "package_metadata.py"))["PackageMetadataHook"]
    metadata: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUDROOM_PROJECT_URL", address)
        hook(str(ROOT), {}).update(metadata)
    return metadata["readme"]["text"]


def read_metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        return Parser().parsestr(archive.read(path).decode())


@pytest.mark.timeout(600)  # the first test builds both packages
def test_the_wheel_has_every_file_of_the_source(wheel: Path) -> None:
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == source
    assert "mudroom/py.typed" in packed


def test_the_metadata_says_what_the_package_is(wheel: Path) -> None:
    metadata = read_metadata(wheel)
    assert metadata["Name"] == "mudroom"
    assert metadata["Summary"] == PROJECT["description"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith("# mudroom")


def test_links_on_the_package_index_lead_to_the_files_of_the_version(wheel: Path) -> None:
    metadata = read_metadata(wheel)
    page = str(metadata.get_payload())
    targets = re.findall(r"\]\(([^)]+)\)", page)
    assert len(targets) > 10
    files = [target for target in targets if target.startswith(ADDRESS)]
    for target in files:
        found = re.fullmatch(rf"{ADDRESS}/(blob|raw)/v[\d.]+/([^#]+)(?:#.+)?", target)
        assert found is not None
        kind, path = found.groups()
        assert (ROOT / path).exists()
        assert (kind == "raw") == (Path(path).suffix in {".svg", ".png"})
    assert all(target.startswith("https://") for target in targets)
    assert "pipx install mudroom" in page
    urls = [url.partition(", ") for url in metadata.get_all("Project-URL", [])]
    addresses = {name: url for name, _, url in urls}
    assert addresses["Source"] == ADDRESS
    assert addresses["Changelog"].endswith("/CHANGELOG.md")


def test_without_an_address_the_package_has_no_broken_link() -> None:
    page = read_page("")
    assert "](" not in re.sub(r"\]\((https://|#)", "", page)
    assert "All models" in page and "![" not in page
    assert "make demo" in page


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not the address of a repository"):
        read_page("mudroom.example")


def test_each_extra_brings_its_packages(wheel: Path) -> None:
    metadata = read_metadata(wheel)
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    required = metadata.get_all("Requires-Dist", [])
    for extra, packages in PROJECT["optional-dependencies"].items():
        names = [re.split(r"[^\w-]", package)[0] for package in packages]
        brought = [line for line in required if re.search(rf"extra == '{extra}'", line)]
        assert [re.split(r"[^\w-]", line)[0] for line in brought] == names
    (library,) = (line for line in required if line.startswith("pydantic-ai-slim"))
    # All other providers of the library use its extra `openai`.
    assert "pydantic-ai-slim[bedrock,cohere,google,huggingface,openai]" in library


@pytest.mark.timeout(600)  # many programs, one after the other: slow on a busy machine
def test_the_program_works_in_a_new_environment(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "new"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    with zipfile.ZipFile(wheel) as archive:
        (packages,) = place.glob("lib/python*/site-packages")
        archive.extractall(packages)
    # The dependencies are those of the tests; `mudroom` itself is not visible there, because a
    # development install is a file that Python reads only in its own environment.
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    (tmp_path / "test_boots.py").write_text("import pytest\n")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "MUDROOM_HOME": str(tmp_path / "state"),
        "LANG": "C.UTF-8",
    }

    def run(*arguments: str) -> str:
        command = [place / "bin" / "python", "-I", "-m", "mudroom", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import mudroom; print(mudroom.__file__)"
    done = subprocess.run(
        [place / "bin" / "python", "-I", "-c", where], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(place))
    assert run("config", "path").strip() == str(tmp_path / "state" / "config.toml")
    run("config", "set", "model", "offline")
    assert "offline" in (tmp_path / "state" / "config.toml").read_text()
    answer = run("-q", "-p", "use a subtask to find what testing framework this project uses")
    assert "pytest" in answer
    assert "1 child" in run("-C", str(tmp_path), "runs")
    assert (tmp_path / "run.html").exists() is False
    run("-C", str(tmp_path), "view", "--export", str(tmp_path / "run.html"))
    assert "<html" in (tmp_path / "run.html").read_text("utf-8")[:500]
