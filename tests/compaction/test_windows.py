"""Sources of context windows, and thresholds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from genai_prices.data_snapshot import get_snapshot

from mudroom import Compaction, Session, Usage, UsageError
from mudroom._adapters.models import model_facts
from mudroom._adapters.models.model_facts import find_facts
from mudroom._adapters.models.pricing import calculate_cost, get_context_window
from mudroom._adapters.models.providers import PROVIDERS
from mudroom._adapters.models.refusals.overflow import find_stated_sizes
from mudroom._adapters.models.scripted import ScriptedModel
from mudroom._engine.context_policy import ContextPolicy
from mudroom._platform.time_limits import SystemClock
from mudroom._session.context_windows import FILE_NAME, ContextWindows, LearntWindows
from mudroom._session.model_registry import ModelRegistry


def open_registry(**windows: int) -> ModelRegistry:
    environ = {"ANTHROPIC_API_KEY": "k-test", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    names = {name.replace("__", ":"): size for name, size in windows.items()}
    return ModelRegistry(environ, SystemClock(), _refuse, windows=names)


def _refuse(name: str) -> Any:
    raise AssertionError(name)


def test_the_table_knows_a_hosted_model_and_the_setting_comes_first() -> None:
    models = open_registry()
    name = "anthropic:claude-sonnet-4-5"
    assert ContextWindows(models).look_up(name) == 200_000
    assert ContextWindows(models, find_listed=lambda _: 300_000).find(name) == 300_000
    assert ContextWindows(models, 50_000, find_listed=lambda _: 300_000).find(name) == 50_000


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("deepseek:deepseek-v4-pro", 1_000_000),
        ("moonshotai:kimi-k3.1-pro", 1_048_576),
        ("mistral:mistral-large-4", 1_048_576),
        ("openai:gpt-6.1-sol", 1_050_000),
        ("openrouter:anthropic/claude-sonnet-4.5", 1_000_000),
        ("xai:grok-4.7", 500_000),
        ("google:gemini-3-pro-preview", 1_000_000),
        ("anthropic:claude-opus-4-8[1m]", 1_000_000),
        ("anthropic:claude-opus-4-8[1M]", 1_000_000),
    ],
)
def test_the_table_of_prices_wins_and_own_rows_fill_its_gaps(name: str, window: int) -> None:
    keys = ("OPENAI", "ANTHROPIC", "DEEPSEEK", "MOONSHOT", "MISTRAL", "OPENROUTER", "XAI", "GEMINI")
    environ = {f"{key}_API_KEY": "k-test" for key in keys}
    models = ModelRegistry(environ, SystemClock(), _refuse)
    assert ContextWindows(models).look_up(name) == window


def test_own_rows_are_no_older_than_the_table_of_prices() -> None:
    """Name the rows to correct: at the models' own providers, they never differ from the table."""
    tables = {provider.id: provider.models for provider in get_snapshot().providers}
    providers = ("anthropic", "openai", "google", "mistral", "deepseek", "groq", "together")
    older = [
        f"{model.id} at {name}: {usual:,} in model_facts.py, {model.context_window:,} in the table"
        for name in providers
        for model in tables[name]
        if (usual := find_facts(model.id, PROVIDERS[name].base_url).usual_window)
        and model.context_window
        and not 0.9 <= usual / model.context_window <= 1
    ]
    assert older == []


def test_the_default_models_are_in_the_table_with_a_price() -> None:
    hosted = [each for each in PROVIDERS.values() if each.default_model and not each.is_local]
    models = [f"{each.name}:{each.default_model}" for each in hosted]
    models += [f"anthropic:{model}" for model in PROVIDERS["anthropic"].shortcuts.values()]
    assert [model for model in models if not calculate_cost(model, Usage(1, 1))] == []
    assert [model for model in models if not get_context_window(model)] == []


def test_the_file_of_prices_keeps_windows_for_later_sessions(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom mudroom._adapters.models.pricing import PriceFile\n"
        "from mudroom._core.messages import Usage\n"
        "file = PriceFile(sys.argv[1])\n"
        "print(file.find_window('deepseek:deepseek-v4-pro'), 'genai_prices.data' in sys.modules)\n"
        "file.calculate_cost('deepseek:deepseek-v4-pro', Usage(1, 1))\n"
    )
    lines = [
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert lines == ["0 False", "1000000 False"]


def test_a_local_server_says_its_window_else_the_default_is_low() -> None:
    models = open_registry(**{"openai__some-model": 16_384})
    assert ContextWindows(models).find("openai:some-model") == 16_384
    assert ContextWindows(models).find("lmstudio:some-model") == 32_000


def test_a_model_that_no_source_knows_has_a_default_and_scripted_ones_have_no_limit() -> None:
    models = open_registry()
    models.register(ScriptedModel([], "mine:model"))
    windows = ContextWindows(models)
    assert windows.find("mine:model") == 0
    assert windows.look_up("mine:model") == 128_000
    assert windows.look_up("scripted:model") == 0


def test_a_refusal_teaches_the_window_to_all_conversations_of_the_model() -> None:
    models = open_registry()
    windows = ContextWindows(models)
    name = "anthropic:claude-window-test"
    windows.learn(name, 300_000, "prompt is too long: 214468 tokens > 150000 maximum")
    assert windows.find(name) == 150_000
    windows.learn(name, 100_000, "prompt is too long")
    assert windows.find(name) == 90_000
    assert ContextWindows(open_registry()).find(name) == 90_000


def test_of_several_models_the_smallest_window_counts() -> None:
    models = open_registry(**{"openai__some-model": 16_384})
    windows = ContextWindows(models)
    assert windows.find("anthropic:claude-sonnet-4-5,openai:some-model") == 16_384


@pytest.mark.parametrize(
    ("refusal", "window"),
    [
        ("prompt is too long: 214468 tokens > 200000 maximum", 200_000),
        ("prompt too long; exceeded max context length by 1234 tokens", 0),
        (
            "The input token count (1200000) exceeds the maximum number of tokens allowed "
            "(1048576).",
            1_048_576,
        ),
        ("This model's maximum context length is 65,536 tokens. You requested 90000", 65_536),
        ("This model's maximum prompt length is 131072 but the request contains 200000", 131_072),
        ("request (2033 tokens) exceeds the available context size (1024 tokens)", 1_024),
        ("input length and `max_tokens` exceed context limit: 199900 + 8192 > 200000", 200_000),
        ("Your request exceeded model token limit: 131072", 131_072),
        ("too large for model with 32768 maximum context length", 32_768),
        ("Request too large", 0),
    ],
)
def test_the_window_that_a_refusal_states_is_read(refusal: str, window: int) -> None:
    assert find_stated_sizes(refusal).window == window


def test_thresholds_leave_room_for_the_answer() -> None:
    policy = ContextPolicy(find_window=lambda _: 200_000)
    limits = policy.choose_thresholds("m", 1, 32_000)
    assert limits is not None
    assert (limits.clear_at, limits.compact_at) == (120_000, 148_000)
    limits = policy.choose_thresholds("m", 1, None)
    assert limits is not None and limits.compact_at == 170_000
    assert ContextPolicy().choose_thresholds("m", 1, None) is None


@pytest.mark.parametrize("name", ["clear_at", "compact_at", "context_window"])
async def test_a_wrong_threshold_is_refused(tmp_path: Path, name: str) -> None:
    values: dict[str, Any] = {name: 0}
    with pytest.raises(UsageError, match=rf"{name} must be .* \(Compaction\)"):
        Session(model="offline", cwd=str(tmp_path), compaction=Compaction(**values))


def open_windows(home: Path, setting: int | None = None, *, now: float = 0.0) -> ContextWindows:
    return ContextWindows(open_registry(), setting, LearntWindows(str(home), lambda: now))


def test_a_learnt_window_holds_in_later_sessions_until_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "anthropic:claude-kept-window"
    open_windows(tmp_path, now=5.0).learn(name, 100_000, "prompt is too long")
    monkeypatch.setattr(model_facts, "_learnt", {})
    assert open_windows(tmp_path, now=5.0 + 29 * 86_400).find(name) == 90_000
    assert open_windows(tmp_path, 150_000).find(name) == 150_000, "a setting wins"
    kept = LearntWindows(str(tmp_path), lambda: 5.0 + 2 * 86_400)
    assert kept.describe() == f"{name} at api.anthropic.com 90,000 tokens, learnt 2 days ago"
    assert kept.find(name, "http://127.0.0.1:1/v1") == 0, "another server may accept more"
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert open_windows(tmp_path, now=6.0 + 30 * 86_400).find(name) == 0


def test_processes_that_learn_at_once_lose_no_window(tmp_path: Path) -> None:
    program = (
        "import sys; from mudroom._session.context_windows import LearntWindows\n"
        "home, name = sys.argv[1:]\n"
        "for n in range(20): LearntWindows(home).add(f'{name}:{n}', 'http://h', n + 1)"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name]) for name in "abcd"
    ]
    assert [process.wait(60) for process in processes] == [0] * 4
    kept = LearntWindows(str(tmp_path))
    assert len(kept.read()) == 80
    assert kept.find("d:19", "http://h") == 20


def test_a_damaged_file_or_folder_keeps_no_window(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("{")
    kept = LearntWindows(str(tmp_path))
    assert (kept.find("m", "http://h"), kept.describe()) == (0, "")
    kept.add("m", "http://h", 7)
    assert LearntWindows(str(tmp_path)).find("m", "http://h") == 7
    (tmp_path / "file").touch()
    LearntWindows(str(tmp_path / "file" / "below")).add("m", "http://h", 7)
