"""Settings from flags, environment and file, in that order."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from kindcast.server.settings import Settings, unknown_variables


def test_load_precedence_is_flag_environment_file_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source wins over those below it."""
    config = tmp_path / "kindcast.toml"
    config.write_text('port = 1\nmax_group_events = 1\nsweep_seconds = 1.5\ndata = "from-file"\n')
    monkeypatch.setenv("KINDCAST_PORT", "2")
    monkeypatch.setenv("KINDCAST_MAX_GROUP_EVENTS", "2")
    settings = Settings.load(config, port=3, host=None)
    assert (settings.port, settings.max_group_events, settings.sweep_seconds) == (3, 2, 1.5)
    assert settings.data == Path("from-file")
    assert settings.host == "127.0.0.1"


def test_load_file_is_named_by_the_environment_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KINDCAST_CONFIG names the file where no flag does."""
    config = tmp_path / "kindcast.toml"
    config.write_text("port = 7\n")
    monkeypatch.setenv("KINDCAST_CONFIG", str(config))
    assert Settings.load().port == 7


def test_load_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As editors on Windows write it."""
    config = tmp_path / "kindcast.toml"
    config.write_text("port = 7\n", "utf-8-sig")
    assert Settings.load(config).port == 7


def test_load_unknown_name_in_the_file_is_refused(tmp_path: Path) -> None:
    """A misspelt setting is an error, not a silent default."""
    config = tmp_path / "kindcast.toml"
    config.write_text("retention_second = 5\n")
    with pytest.raises(ValidationError, match="retention_second"):
        Settings.load(config)


def test_load_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A named file must exist."""
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Settings.load(tmp_path / "nowhere.toml")
    with pytest.raises(IsADirectoryError, match="is a folder and not a settings file"):
        Settings.load(tmp_path)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_host_beyond_loopback_needs_keys(host: str) -> None:
    assert Settings(host=host).needs_keys


def test_empty_database_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a variable of a shell that is not set. SQLite would begin with nothing."""
    with pytest.raises(ValidationError, match="the URL is empty"):
        Settings.load(database="")
    monkeypatch.setenv("KINDCAST_DATABASE", " ")
    with pytest.raises(ValidationError, match="the URL is empty"):
        Settings.load()


def test_empty_data_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would mean the current folder."""
    monkeypatch.setenv("KINDCAST_DATA", "")
    with pytest.raises(ValidationError, match="the path is empty"):
        Settings.load()


@pytest.mark.parametrize("limits", [{"events": 1}, {"events_per_second": 0}, {"subscriptions": 1.5}])
def test_limits_that_mean_nothing_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="limit"):
        Settings(tenant_limits=limits)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_host_of_loopback_is_taken(host: str) -> None:
    """Every way to say this machine is fine."""
    settings = Settings(host=host)
    assert settings.host == host
    assert not settings.needs_keys


def test_index_bytes_are_for_the_engine_that_keeps_them() -> None:
    """A limit that nobody keeps is refused, not taken in silence."""
    assert Settings(index_bytes=1_000_000).index_bytes == 1_000_000
    for wrong in ({"index_bytes": 1_000_000, "engine": "naive"}, {"index_bytes": 0}):
        with pytest.raises(ValidationError, match="index_bytes"):
            Settings(**wrong)


@pytest.mark.parametrize("text", ["a.example, b.example", '["a.example", "b.example"]', "a.example,b.example,"])
def test_lists_in_variables_are_json_or_have_commas(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one writes in a shell or a container is enough."""
    monkeypatch.setenv("KINDCAST_ALLOWED_HOSTS", text)
    monkeypatch.setenv("KINDCAST_WEBHOOK_DELAYS_SECONDS", "1, 2.5")
    settings = Settings.load()
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.webhook_delays_seconds == (1.0, 2.5)


def test_variables_of_kubernetes_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service named kindcast has its address put into every container; the server starts all the same."""
    theirs = {
        "KINDCAST_PORT": "tcp://10.0.0.7:8080",
        "KINDCAST_SERVICE_HOST": "10.0.0.7",
        "KINDCAST_SERVICE_PORT": "8080",
        "KINDCAST_SERVICE_PORT_HTTP": "8080",
        "KINDCAST_PORT_8080_TCP": "tcp://10.0.0.7:8080",
        "KINDCAST_PORT_8080_TCP_ADDR": "10.0.0.7",
        "KINDCAST_MAIN_SERVICE_HOST": "10.0.0.8",
    }
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    assert Settings.load().port == 8080
    assert unknown_variables(theirs) == []


def test_unknown_variables_are_told_with_the_nearest_setting() -> None:
    """A misspelt variable is not a silent default; what another program reads is left alone."""
    told = unknown_variables({"KINDCAST_RETENTION_SECOND": "5", "KINDCAST_COLOUR": "red", "PATH": "/bin"})
    assert told == [("KINDCAST_COLOUR", None), ("KINDCAST_RETENTION_SECOND", "KINDCAST_RETENTION_SECONDS")]
