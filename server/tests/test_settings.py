"""Settings: unknown names and bad values stop the start with one line that names them."""

from datetime import UTC, datetime

import pytest

from petstore_server.settings import SETTINGS, SettingsError, read_settings


def test_the_defaults_are_good() -> None:
    settings = read_settings({"PATH": "/bin", "HOME": "/root"})
    assert ("sqlite:///petstore.db", None, "127.0.0.1", 8080, 8081) == (
        settings.database_url,
        settings.redis_url,
        settings.host,
        settings.port,
        settings.admin_port,
    )
    assert datetime(2027, 12, 1, tzinfo=UTC) == settings.pets_sunset


def test_an_unknown_name_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(SettingsError, match=r"PETSTORE_DATABASE_URI .* did you mean PETSTORE_DATABASE_URL"):
        read_settings({"PETSTORE_DATABASE_URI": "sqlite:///x.db"})


def test_names_of_the_client_and_of_kubernetes_are_let_be() -> None:
    read_settings(
        {
            "PETSTORE_API_KEY": "x",
            "PETSTORE_SERVICE_HOST": "10.0.0.1",
            "PETSTORE_SERVICE_PORT": "8080",
            "PETSTORE_PORT_8080_TCP_ADDR": "10.0.0.1",
        }
    )


def test_a_port_that_kubernetes_injected_is_refused_with_its_cause() -> None:
    with pytest.raises(SettingsError, match=r"PETSTORE_PORT .*Kubernetes"):
        read_settings({"PETSTORE_PORT": "tcp://10.0.0.1:8080"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PETSTORE_DATABASE_URL", "petstore.db"),
        ("PETSTORE_DATABASE_URL", "mysql://x"),
        ("PETSTORE_REDIS_URL", "localhost:6379"),
        ("PETSTORE_HOST", ""),
        ("PETSTORE_PORT", "65536"),
        ("PETSTORE_PORT", "8080 "),
        ("PETSTORE_ADMIN_PORT", "-1"),
        ("PETSTORE_WORKERS", "0"),
        ("PETSTORE_ENVIRONMENT", "prod"),
        ("PETSTORE_BASE_URL", "https://petstore.example"),
        ("PETSTORE_BASE_URL", "petstore.example/v1"),
        ("PETSTORE_TRUSTED_PROXIES", "10.0.0.1/8"),
        ("PETSTORE_TRUSTED_PROXIES", "proxy"),
        ("PETSTORE_FORWARDED_HEADER", "X-Real-IP"),
        ("PETSTORE_BAN_STRIKES", "0"),
        ("PETSTORE_BAN_SECONDS", "two"),
        ("PETSTORE_BAN_MAX_SECONDS", "60"),
        ("PETSTORE_BAN_GRACE_SECONDS", "-1"),
        ("PETSTORE_DRAIN_DELAY_SECONDS", "nan"),
        ("PETSTORE_PETS_SUNSET", "soon"),
        ("PETSTORE_PETS_SUNSET", "2020-01-01"),
        ("PETSTORE_LOG_LEVEL", "loud"),
    ],
)
def test_a_bad_value_is_refused_in_one_line_that_names_the_setting(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({name: value})
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_setting_is_explained() -> None:
    assert all(setting.help.endswith(".") for setting in SETTINGS)
