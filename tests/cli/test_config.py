"""Settings: each source, its priority, its origin, and the errors for wrong values."""

from pathlib import Path

import pytest

from mudroom._cli.actions.doctor import _check_settings
from mudroom._session import config
from mudroom._session.agent_catalog import parse_child_models
from mudroom.errors import UsageError


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "etc"), "MUDROOM_HOME": str(tmp_path / "home")}


def write_user_file(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "home" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def load(tmp_path: Path, env: dict[str, str], **flags: object) -> config.Settings:
    return config.load_settings(cwd=str(tmp_path), environ=env, flags=flags)


def test_mudroom_home_moves_sessions_and_settings(tmp_path: Path) -> None:
    user = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "etc"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    assert config.find_user_file(user) == tmp_path / "etc" / "mudroom" / "config.toml"
    assert config.find_home(user) == str(tmp_path / "state" / "mudroom")
    moved = user | {"MUDROOM_HOME": str(tmp_path / "all")}
    assert config.find_user_file(moved) == tmp_path / "all" / "config.toml"
    assert config.find_home(moved) == str(tmp_path / "all")
    assert config.find_home({}).endswith("mudroom"), "without HOME the system says where"


def test_defaults_need_no_file(tmp_path: Path, env: dict[str, str]) -> None:
    settings = load(tmp_path, env)
    children = settings.children
    assert (settings.model, children.model, settings.max_turns) == ("auto", "inherit", None)
    assert children.parallel == 64
    assert settings.home == str(tmp_path / "home")
    assert settings.get_origin("model") == "default"


def test_each_source_overrides_the_one_before_and_is_named_as_origin(
    tmp_path: Path, env: dict[str, str]
) -> None:
    path = write_user_file(tmp_path, '# mine\nmodel = "openai:a"\nmax-children = 20\n')
    settings = load(tmp_path, env)
    assert (settings.model, settings.get_origin("model")) == ("openai:a", f"{path}:2")
    (tmp_path / ".mudroom.toml").write_text("max_children = 5\n")
    settings = load(tmp_path, env)
    assert (settings.children.parallel, settings.get_origin("max_children")) == (
        5,
        f"{tmp_path}/.mudroom.toml:1",
    )
    settings = load(tmp_path, env | {"MUDROOM_MODEL": "b", "MUDROOM_MAX_CHILDREN": "7"})
    assert (settings.model, settings.children.parallel, settings.get_origin("max_children")) == (
        "b",
        7,
        "$MUDROOM_MAX_CHILDREN",
    )
    settings = load(tmp_path, env | {"MUDROOM_MODEL": "b"}, model="c", max_turns=None)
    assert (settings.model, settings.get_origin("model"), settings.max_turns) == ("c", "flag", None)


def test_a_project_file_only_lowers_limits(tmp_path: Path, env: dict[str, str]) -> None:
    write_user_file(tmp_path, "max_children = 4\n")
    project = tmp_path / ".mudroom.toml"
    project.write_text("max_children = 500\nmax_turns = 9\nchild_turns = 99\n")
    settings = load(tmp_path, env)
    assert (settings.children.parallel, settings.max_turns, settings.children.turns) == (4, 9, 30)
    for key, value in (("model", '"openai:expensive"'), ("retention_days", "1")):
        project.write_text(f"{key} = {value}\n")
        with pytest.raises(UsageError, match=rf"may not set '{key}'.*mudroom\.toml:1.*flag"):
            load(tmp_path, env)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('modle = "x"\n', r"unknown setting 'modle' .*config\.toml:1.* Did you mean model"),
        ("\nmax_turns = 0\n", r"max_turns must be a whole number from 1, not 0 .*config\.toml:2"),
        ("max_turns = true\n", "whole number"),
        ("model = 3\n", "model must be text in quotes, not 3"),
        ('output_format = "jsn"\n', r"output_format cannot be 'jsn'.*Did you mean json"),
        ('worker = "proces"\n', r"unknown worker 'proces' .*config\.toml:1.*process:N"),
        ('worker = "process:65"\n', r"unknown worker 'process:65' .*N from 1 to 64"),
        ("model = \n", "not TOML: .*line 1"),
        (f"model = {'[' * 5_000}{']' * 5_000}\n", r"not TOML: .*recursion.*config\.toml"),
        (b"model = '\xff'", r"it is not UTF-8 .*config\.toml"),
        ("max_minutes = 0", "a number above 0"),
        ("max_minutes = true", "a number above 0"),
        ("max_minutes = inf", "a number above 0"),
        ('max_budget_usd = "much"', "a number above 0"),
        ("max_budget_usd = -1", "a number above 0"),
    ],
)
def test_a_wrong_setting_is_reported_with_line_key_and_nearest_name(
    tmp_path: Path, env: dict[str, str], text: str | bytes, message: str
) -> None:
    write_user_file(tmp_path, text)
    with pytest.raises(UsageError, match=message):
        load(tmp_path, env)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("MAX_CHILDREN", "many", r"max_children must be .* not 'many' \(\$MUDROOM_MAX_CHILDREN\)"),
        ("CHILD_MODEL", " ", r"^child_model is blank \(\$MUDROOM_CHILD_MODEL\)"),
    ],
)
def test_a_wrong_environment_variable_is_named(
    tmp_path: Path, env: dict[str, str], name: str, value: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load(tmp_path, env | {f"MUDROOM_{name}": value})


def test_color_follows_no_color_and_force_color(tmp_path: Path, env: dict[str, str]) -> None:
    assert load(tmp_path, env).color == "auto"
    assert load(tmp_path, env | {"NO_COLOR": "1", "FORCE_COLOR": "1"}).color == "never"
    assert load(tmp_path, env | {"NO_COLOR": "", "FORCE_COLOR": "1"}).color == "always"
    assert load(tmp_path, env | {"CLICOLOR_FORCE": "0"}).color == "auto"


@pytest.mark.parametrize("variable", ["MUDROOM_HOME", "XDG_STATE_HOME"])
def test_the_variable_that_moves_the_state_folder_is_named(tmp_path: Path, variable: str) -> None:
    settings = load(tmp_path, {"HOME": "/nowhere", variable: str(tmp_path)})
    assert settings.home.startswith(str(tmp_path))
    assert settings.get_origin("home") == f"${variable}"
    assert load(tmp_path, {"HOME": "/nowhere"}).get_origin("home") == "default"


def test_a_project_file_may_lower_minutes_tokens_and_money(
    tmp_path: Path, env: dict[str, str]
) -> None:
    write_user_file(tmp_path, "max_minutes = 2.5\nmax_budget_usd = 3\nretention_days = 30\n")
    (tmp_path / ".mudroom.toml").write_text(
        "max_minutes = 9\nmax_budget_usd = 0.5\nmax_tokens = 1000\n"
    )
    settings = load(tmp_path, env | {"MUDROOM_MAX_TOKENS": "500"})
    assert (
        settings.max_minutes,
        settings.max_budget_usd,
        settings.max_tokens,
        settings.retention_days,
    ) == (2.5, 0.5, 500, 30)


def test_rules_for_child_models_may_be_a_table(tmp_path: Path, env: dict[str, str]) -> None:
    path = write_user_file(tmp_path, '\n[child-model]\nexplore = "haiku"\n"*" = "sonnet"\n')
    settings = load(tmp_path, env)
    rules = {"explore": "haiku", "*": "sonnet"}
    assert settings.children.model == rules
    assert settings.get_origin("child_model") == f"{path}:2"
    config.write_setting(path, "model", "opus")
    settings = load(tmp_path, env)
    assert (settings.model, settings.children.model) == ("opus", rules)
    config.write_setting(path, "child_model", "plan=opus")
    assert load(tmp_path, env).children.model == "plan=opus"


def test_models_in_a_table_may_have_any_characters(tmp_path: Path, env: dict[str, str]) -> None:
    write_user_file(tmp_path, '[child_model]\nexplore = "mine:a;b=c"\n"*" = "sonnet"\n')
    settings = load(tmp_path, env)
    assert parse_child_models(settings.children.model) == {"explore": "mine:a;b=c", "*": "sonnet"}


@pytest.mark.parametrize(
    "rules", ["explore = 5", 'explore = ""', '" " = "haiku"', 'a = "x"\n" a" = "y"', ""]
)
def test_a_wrong_table_of_child_models_is_refused(
    rules: str, tmp_path: Path, env: dict[str, str]
) -> None:
    path = write_user_file(tmp_path, f"[child_model]\n{rules}\n")
    expected = r"child_model must be text in quotes, or a table of agents and models, not \{"
    with pytest.raises(UsageError, match=expected) as caught:
        load(tmp_path, env)
    assert caught.value.where == f"{path}:1"


def test_doctor_names_only_settings_that_are_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    user = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "etc")}
    path = tmp_path / "etc" / "mudroom" / "config.toml"
    result = next(_check_settings(user)).result
    assert result == f"{path} (no file): all settings have their defaults"
    path.parent.mkdir(parents=True)
    path.write_text('model = "openai:a"\n')
    assert next(_check_settings(user)).result == f"{path}: model from {path}:1"
    moved = next(_check_settings(user | {"MUDROOM_HOME": str(tmp_path / "home")})).result
    assert moved.endswith("config.toml (no file): home from $MUDROOM_HOME")
