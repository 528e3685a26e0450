"""The settings: tokens, and which addresses need one."""

import pytest

from metaxc.errors import ConfigError
from metaxc.serve.serve_settings import ServeSettings, TokenSettings, read_tokens

READ, WRITE = "r" * 20, "w" * 20


def test_only_loopback_addresses_work_without_a_token():
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.org"):
        with pytest.raises(ConfigError, match="METAXC_WRITE_TOKEN"):
            ServeSettings(network={"host": host})
        assert ServeSettings(network={"host": host}, tokens={"write": WRITE}).tokens.required
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        assert not ServeSettings(network={"host": host}).tokens.required


def test_tokens_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("METAXC_WRITE_TOKEN", WRITE)
    monkeypatch.setenv("METAXC_READ_TOKEN", "")
    tokens = read_tokens()
    assert tokens.write.get_secret_value() == WRITE
    assert tokens.read is None
    assert WRITE not in repr(ServeSettings(tokens=tokens))


@pytest.mark.parametrize("token", ["", "short", "ü" * 20, "with spaces in between", "x" * 20 + "\n"])
def test_a_weak_token_is_rejected(token):
    with pytest.raises(ConfigError, match="too weak"):
        TokenSettings(write=token)


def test_the_two_tokens_must_differ():
    with pytest.raises(ConfigError, match="the same"):
        TokenSettings(read=READ, write=READ)
