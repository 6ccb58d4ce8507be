"""Every file of the corpus.

Used or not as it should be, each complaint with path and line, never a crash.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.agent_files.corpus import AGENTS, SKILLS, Sample, make_file
from tests.long_form import count_examples

from mudroom._adapters import agent_files
from mudroom._adapters.agent_files import Diagnostic
from mudroom._adapters.agent_files.frontmatter import parse_document
from mudroom._adapters.agent_files.safe_read import FileDiagnostics
from mudroom._session.agent_catalog import KNOWN_TOOLS


def write_samples(folder: Path, samples: Iterable[Sample]) -> None:
    (folder / ".git").mkdir(exist_ok=True)
    for sample in samples:
        path = folder / sample.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sample.text if isinstance(sample.text, bytes) else sample.text.encode())


def check(findings: Iterable[Diagnostic], sample: Sample, folder: Path) -> None:
    messages = [f"{finding.line}: {finding.severity}: {finding.text}" for finding in findings]
    lines = (folder / sample.path).read_bytes().count(b"\n") + 2
    for finding in findings:
        assert finding.path == str(folder / sample.path)
        assert 1 <= finding.line <= lines
    for wanted in filter(None, sample.expected.split("; ")):
        *place, part = (
            wanted.split(": ", 2) if wanted[0].isdigit() else ["", *wanted.split(": ", 1)]
        )
        pattern = ": ".join(place).lstrip(": ")
        assert any(pattern in line and part in line for line in messages), (wanted, messages)
    if not sample.expected:
        assert messages == []


@pytest.mark.parametrize("sample", AGENTS, ids=lambda sample: sample.path)
def test_c11_an_agent_file_is_used_or_has_a_diagnostic(tmp_path: Path, sample: Sample) -> None:
    write_samples(tmp_path, [sample])
    found = agent_files.load_agent_files(str(tmp_path), user_home="", tools=KNOWN_TOOLS)
    agents = [*found.agents, *found.main_agents]
    assert len(agents) == sample.used
    for agent in agents:
        assert {name: getattr(agent, name) for name in sample.wanted} == sample.wanted
    check(found.diagnostics, sample, tmp_path)


@pytest.mark.parametrize("sample", SKILLS, ids=lambda sample: sample.path)
def test_c11_a_skill_is_used_or_has_a_diagnostic(tmp_path: Path, sample: Sample) -> None:
    write_samples(tmp_path, [sample])
    found = agent_files.load_agent_files(str(tmp_path), user_home="", tools=KNOWN_TOOLS)
    assert len(found.skills) == sample.used
    check(found.diagnostics, sample, tmp_path)


def test_c11_all_files_together_have_paths_and_lines(tmp_path: Path) -> None:
    write_samples(tmp_path, [*AGENTS, *SKILLS])
    found = agent_files.load_agent_files(str(tmp_path), user_home="", tools=KNOWN_TOOLS)
    assert len(found.agents) > 20
    assert len({agent_files.fold_name(agent.name) for agent in found.agents}) == len(found.agents)
    for finding in found.diagnostics:
        assert Path(finding.path).exists()
        assert re.fullmatch(r"/.*:\d+: (error|warning|note): .+", str(finding), re.DOTALL)
    clashes = [finding for finding in found.diagnostics if "takes precedence" in finding.text]
    assert clashes


@settings(
    max_examples=count_examples(100, 300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=st.text(max_size=300))
def test_c11_any_frontmatter_is_read_or_refused(text: str) -> None:
    notes = FileDiagnostics("x.md")
    read = parse_document(f"---\n{text}\n---\nbody", notes)
    assert read is not None or notes.items or text.split("\n")[0].rstrip() == "---"


YAML = st.text(alphabet="ab:-[]{}'\"|>&*!#?,\n \t%@`1.~", max_size=120)


@settings(max_examples=count_examples(150, 500), deadline=None)
@given(text=YAML)
def test_c11_any_yaml_is_read_or_refused_with_a_line_of_the_file(text: str) -> None:
    notes = FileDiagnostics("x.md")
    parse_document(f"---\n{text}\n---\nbody", notes)
    for finding in notes.items:
        assert 1 <= finding.line <= text.count("\n") + 4


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
KNOWN = (
    "name description tools disallowedTools permission permissionMode model maxTurns "
    "timeout_mins temperature skills outputs budget "
    "child_tools context mode kind disable modelConfig runConfig sandbox_mode prompt hooks other"
)
KEYS = st.sampled_from(KNOWN.split())


@settings(max_examples=count_examples(100, 400), deadline=None)
@given(keys=st.dictionaries(KEYS, VALUES, max_size=8))
def test_c11_any_value_of_any_key_is_accepted_or_reported(keys: dict[str, object]) -> None:
    agent, draft = agent_files.parse_agent_keys(keys, "x", "--agents", KNOWN_TOOLS)
    assert (
        agent is not None
        or draft.unused_reason
        or any(finding.severity == "error" for finding in draft.diagnostics.items)
    )


@settings(max_examples=100, deadline=None)
@given(keys=st.dictionaries(KEYS, VALUES, max_size=8))
def test_c11_an_invalid_limit_of_tools_makes_the_file_unusable(
    keys: dict[str, object],
) -> None:
    agent, _ = agent_files.parse_agent_keys(
        {**keys, "description": "d", "prompt": "p", "tools": {"a": "b"}},
        "x",
        "--agents",
        KNOWN_TOOLS,
    )
    assert agent is None


def test_c11_special_files_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "agents"
    folder.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (folder / "circle").symlink_to(folder)
    (folder / "self.md").symlink_to(folder / "self.md")
    (folder / "gone.md").symlink_to(folder / "nowhere.md")
    (folder / "out.md").symlink_to("/etc/passwd")
    (folder / "folder.md").mkdir()
    os.mkfifo(folder / "pipe.md")
    (folder / "locked.md").write_text(make_file("name: x", "description: y"))
    (folder / "locked.md").chmod(0)
    found = agent_files.load_agent_files(str(tmp_path), user_home="", tools=KNOWN_TOOLS)
    messages = {Path(finding.path).name: finding.text for finding in found.diagnostics}
    assert "leads out of" in messages["out.md"]
    assert "cannot be read" in messages["gone.md"]
    assert "not a regular file" in messages["pipe.md"]
    assert "self.md" in messages
    assert set(messages) - {"locked.md"} == {
        *("self.md", "gone.md", "out.md", "pipe.md", "folder.md")
    }
