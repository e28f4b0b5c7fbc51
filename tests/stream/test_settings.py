"""Settings: where they come from, what wins, and what a mistake looks like."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream.settings import ConfigurationError, fields, load_settings, reference, variable_name

_ROOT = Path(__file__).resolve().parents[2]


def test_defaults_need_nothing() -> None:
    settings = load_settings()
    assert settings.kafka.bootstrap_servers == "localhost:9092"
    assert settings.worker.roles == ("assemble", "attribute")
    assert settings.worker.stop_timeout_s < 30
    assert settings.health.host == "127.0.0.1"


def test_argument_beats_environment_beats_file_beats_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("kafka:\n  group_id: file\n  client_id: file\n  linger_ms: 7\n", encoding="utf-8")
    monkeypatch.setenv("COCKPITHAT_CONFIG", str(file))
    monkeypatch.setenv("COCKPITHAT_KAFKA__GROUP_ID", "environment")
    monkeypatch.setenv("COCKPITHAT_KAFKA__CLIENT_ID", "environment")
    kafka = load_settings(kafka={"group_id": "argument"}).kafka
    assert (kafka.group_id, kafka.client_id, kafka.linger_ms) == ("argument", "environment", 7)
    assert kafka.session_timeout_ms == 10_000


def test_toml_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[worker]\nroles = ["attribute"]\n', encoding="utf-8")
    monkeypatch.setenv("COCKPITHAT_CONFIG", str(file))
    assert load_settings().worker.roles == ("attribute",)


@pytest.mark.parametrize("text", ["assemble, attribute", '["assemble", "attribute"]', "assemble,attribute,"])
def test_lists_in_the_environment_are_written_as_people_write_them(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("COCKPITHAT_WORKER__ROLES", text)
    assert load_settings().worker.roles == ("assemble", "attribute")


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("COCKPITHAT_KAFKA__GRUOP_ID", "x", "COCKPITHAT_KAFKA__GRUOP_ID: no such setting"),
        ("COCKPITHAT_KAFKAA__GROUP_ID", "x", "COCKPITHAT_KAFKAA__GROUP_ID: no such setting"),
        ("COCKPITHAT_WORKER__POOL_SIZE", "many", "worker.pool_size: .*COCKPITHAT_WORKER__POOL_SIZE"),
        ("COCKPITHAT_WORKER__POOL_SIZE", "0", "worker.pool_size: .*greater than or equal to 1"),
        ("COCKPITHAT_WORKER__ROLES", "", "worker.roles"),
        ("COCKPITHAT_KAFKA__SECURITY_PROTOCOL", "SASL_SSL", "kafka: .*needs sasl_username"),
        ("COCKPITHAT_KAFKA__SESSION_TIMEOUT_MS", "3000", "at most a third of session_timeout_ms"),
        ("COCKPITHAT_KAFKA__DELIVERY_TIMEOUT_MS", "90000", "must not exceed transaction_timeout_ms"),
        ("COCKPITHAT_TOPICS__REPORTS", "cockpit.traces.v1", "share the name 'cockpit.traces.v1'"),
        ("COCKPITHAT_TOPICS__REPORTS", "a b", "topics.reports"),
        ("COCKPITHAT_ENGINE__MAX_AGE_MS", "604800000", "input_retention_ms is .* twice the longest hold"),
        ("COCKPITHAT_KAFKA", "{", "kafka"),
        ("COCKPITHAT_CONFIG", "/nowhere/settings.yaml", "cannot read /nowhere/settings.yaml: No such file"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_setting(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=says) as error:
        load_settings()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.yaml", "kafka: [", "a.yaml: not YAML: line"),
        ("a.toml", "kafka = ", "a.toml: not TOML"),
        ("a.yaml", "- kafka", "expected sections such as `kafka:`"),
        ("a.yaml", "kafka:\n  gruop_id: x\n", "kafka.gruop_id: no such setting"),
        ("a.yaml", "kafkaa: {}\n", "kafkaa: no such setting"),
    ],
)
def test_a_wrong_file_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, content: str, says: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.setenv("COCKPITHAT_CONFIG", str(tmp_path / name))
    with pytest.raises(ConfigurationError, match=says):
        load_settings()


def test_a_password_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COCKPITHAT_KAFKA__SASL_PASSWORD", "hunter2")
    settings = load_settings()
    assert settings.kafka.password() == "hunter2"
    assert "hunter2" not in repr(settings) + settings.model_dump_json()

    # Not in the message about another mistake in the same section either.
    monkeypatch.setenv("COCKPITHAT_KAFKA__LINGER_MS", "-1")
    monkeypatch.setenv("COCKPITHAT_KAFKA__SECURITY_PROTOCOL", "SASL_SSL")
    with pytest.raises(ConfigurationError) as error:
        load_settings()
    assert "hunter2" not in str(error.value)


def test_a_password_from_a_mounted_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n", encoding="utf-8")
    assert load_settings(kafka={"sasl_password_file": file}).kafka.password() == "hunter2"
    file.unlink()
    with pytest.raises(ConfigurationError, match="sasl_password_file: cannot read"):
        load_settings(kafka={"sasl_password_file": file}).kafka.password()


def test_every_setting_is_described_and_documented() -> None:
    for place, field in fields():
        assert field.description, f"{'.'.join(place)} has no description"
        assert f"`{variable_name(place)}`" in reference()
    assert (_ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == reference(), (
        "run: python -m stream.settings > docs/configuration.md"
    )
