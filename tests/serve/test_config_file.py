"""`metaxc serve --config metaxc.toml`: every setting, with the options of the command and the environment above it."""

import re
import tomllib

import pytest

from metaxc.errors import ConfigError
from metaxc.serve.config_file import (
    build_settings,
    read_config_file,
    render_config_file,
    setting_names,
    tokens_are_exposed,
)
from metaxc.serve.serve_settings import READ_TOKEN, WRITE_TOKEN, ServeSettings

TOKEN = "t" * 20


@pytest.fixture(autouse=True)
def _no_tokens(monkeypatch):
    for name in (READ_TOKEN, WRITE_TOKEN):
        monkeypatch.delenv(name, raising=False)


def write(tmp_path, content):
    path = tmp_path / "metaxc.toml"
    path.write_text(content, encoding="utf-8")
    return path


def test_every_field_can_be_set(tmp_path):
    """Each setting of each group gets another value than its default, and arrives."""
    changed, lines = {}, []
    for group, field in ServeSettings.model_fields.items():
        lines.append(f"[{group}]")
        for name, info in field.annotation.model_fields.items():
            default = info.get_default()
            if group == "tokens":
                value = f'"{name}-{TOKEN}"'
            elif isinstance(default, str):
                value = '"127.0.0.2"'
            elif isinstance(default, tuple):
                value = '["example.org"]'
            else:
                value = str(default / 2 if isinstance(default, float) else default + 1)
            lines.append(f"{name} = {value}")
            changed[group, name] = default
    path = write(tmp_path, "\n".join(lines))
    _, settings = build_settings(read_config_file(path), {}, path)
    for (group, name), default in changed.items():
        assert getattr(getattr(settings, group), name) != default, (group, name)
    assert settings.tokens.write.get_secret_value() == f"write-{TOKEN}"


def test_the_printed_file_has_every_setting_with_its_default(tmp_path):
    printed = render_config_file()
    path = write(tmp_path, re.sub(r"(?m)^#(\w+ = )", r"\1", printed))
    content = read_config_file(path)
    names = {
        *(name for name, value in content.items() if not isinstance(value, dict)),
        *(group for group, value in content.items() if isinstance(value, dict)),
        *(f"{group}.{name}" for group, value in content.items() if isinstance(value, dict) for name in value),
    }
    assert names == set(setting_names())
    _, settings = build_settings({**content, "tokens": {}}, {}, path)
    assert settings == ServeSettings()
    assert [name for name, value in tomllib.loads(printed).items() if not isinstance(value, dict)] == [
        "model"
    ]


def test_options_and_the_environment_replace_what_the_file_says(tmp_path, monkeypatch):
    path = write(
        tmp_path,
        f'model = "m"\nthreads = 2\n[network]\nport = 1\nhost = "localhost"\n[tokens]\nwrite = "{TOKEN}"',
    )
    content = read_config_file(path)
    sources, settings = build_settings(content, {"network": {"port": 7}, "threads": 3}, path)
    assert (settings.network.port, settings.network.host, sources.threads) == (7, "localhost", 3)
    assert sources.model == tmp_path / "m", "relative to the file"
    assert settings.tokens.write.get_secret_value() == TOKEN
    monkeypatch.setenv(WRITE_TOKEN, "e" * 20)
    assert build_settings(content, {}, path)[1].tokens.write.get_secret_value() == "e" * 20


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("prot = 1", "prot"),
        ("[network]\nprot = 1", "did you mean network.port?"),
        ("[netwrk]\nport = 1", "did you mean network"),
        ("[network", "cannot be read"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path, content, named):
    with pytest.raises(ConfigError, match=re.escape(named)) as error:
        read_config_file(write(tmp_path, content))
    assert "metaxc.toml" in str(error.value)


def test_a_wrong_value_names_the_file_or_the_option(tmp_path):
    path = write(tmp_path, "[network]\nport = 99999")
    with pytest.raises(ConfigError, match=r"metaxc\.toml: network\.port"):
        build_settings(read_config_file(path), {}, path)
    with pytest.raises(ConfigError, match="Invalid value for --port"):
        build_settings({}, {"network": {"port": 99999}})
    with pytest.raises(ConfigError, match="other machines without a token"):
        build_settings({"network": {"host": "0.0.0.0"}}, {})


def test_tokens_that_others_can_read_are_noticed(tmp_path):
    path = write(tmp_path, f'[tokens]\nwrite = "{TOKEN}"')
    path.chmod(0o644)
    assert tokens_are_exposed(read_config_file(path), path)
    path.chmod(0o600)
    assert not tokens_are_exposed(read_config_file(path), path)
    path.chmod(0o644)
    assert not tokens_are_exposed({}, path)
