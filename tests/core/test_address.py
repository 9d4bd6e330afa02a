"""Addresses and settings print themselves without secrets."""

import pytest

from memenvs.core.address import Address, without_secrets
from memenvs.core.data import shown
from memenvs.core.terminal import report_error


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("http://host:8000/v1", "http://host:8000/v1"),
        ("https://host/v1?sig=s1", "https://host/v1?…"),
        ("https://host/v1?s1", "https://host/v1?…"),
        ("https://host/v1#s1", "https://host/v1"),
        ("https://s1@host/v1", "https://…@host/v1"),
        ("https://me:s1@host/v1?a=b@s1#s1", "https://…@host/v1?…"),
        ("https://me:a/s1@host/v1", "https://…@host/v1"),
        ("http://[::1]:8000/v1?sig=a@s1", "http://[::1]:8000/v1?…"),
        ("http://host:80/run/@cf/model", "http://host:80/run/@cf/model"),
        ("https://host/x?api-version=2024-10-21", "https://host/x?api-version=2024-10-21"),
        ("https://host/x?api-version=1&sig=s1", "https://host/x?…"),
        ("openai:MODEL@http://me:s1@host/v1?k=s1", "openai:MODEL@http://…@host/v1?…"),
        ("url=http://host/v1?k=s1", "url=http://host/v1?…"),
        ('["Judge", {"url": "http://host/v1?k=s1"}]', '["Judge", {"url": "http://host/v1?…"}]'),
        ('["My", {"api_key": "s1", "k": 1}]', '["My", {"api_key": "…", "k": 1}]'),
        ("api_key=s1", "api_key=…"),
        ("Why? See a@b.org: the key is in the box.", "Why? See a@b.org: the key is in the box."),
    ],
)
def test_a_text_loses_the_secrets_of_its_addresses(text, plain):
    assert without_secrets(text) == plain


def test_settings_lose_what_is_under_the_name_of_a_secret():
    settings = {
        "retriever": "http://host?token=s1",
        "api_key": "s1",
        "password": "s1",
        "X-Api-Key": "s1",
        "access_token": "s1",
        "headers": {"Anything": "s1"},
        "inner": [{"Authorization": "Bearer s1"}, ("http://s1@host",)],
    }
    assert "s1" not in str(without_secrets(settings))
    kept = {"key_variable": "K", "max_tokens": 3, "tokens": [["a", 1]], "cut_at": "token", "api_key": None}
    assert without_secrets(kept) == kept


@pytest.mark.parametrize("text", ["http://…@host", "http://host?…", "https://host/v1?…"])
def test_an_address_that_was_written_without_its_secrets_is_refused(text):
    with pytest.raises(ValueError, match="without its secrets"):
        Address(text)


def test_an_error_shows_no_secret(capsys):
    report_error("memenvs", ValueError("no server at 'http://me:s1@host?k=s1'; start it"))
    assert "s1" not in capsys.readouterr().err + shown({"password": "s1", "url": "x://me:s1@host"})
