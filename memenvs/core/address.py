"""Addresses of servers, and settings and texts, without the secrets that may be in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

MARK = "…"  # where a secret was left out

_ADDRESS = re.compile(
    r"""(?P<scheme>[a-z][a-z0-9+.-]*://)
    (?P<user>[^\s/?#@"<>]*@|[^\s/?#@:"<>\[]*:(?!\d+(?:[/?#]|$))[^\s?"<>]*@)?  # a password may hold a slash
    (?P<place>[^\s?#"<>]*)
    (?P<query>\?[^\s#"<>]*)?
    (?:\#[^\s"<>]*)?""",
    re.IGNORECASE | re.VERBOSE,
)
_NAME = (
    r"[\w-]*(?:api[_-]?key|secret(?:[_-]?key)?|private[_-]?key|passw(?:or)?d|authorization|credentials?|headers|"
    r"(?:access|auth|api|bearer|hf|refresh|session)[_-]?token)|(?:[\w-]+[_-])?(?:sig|signature|pwd|cookie)|"
    r"token|key|auth"
)
_NAMED = re.compile(rf"""(?i)(^(?:{_NAME})=|["'](?:{_NAME})["']\s*:\s*["'])(?:(?<==).+|[^"']+)""")


class Address:
    """The address of a server, which prints itself without its user, password, query and fragment.

    Its `url`, an `httpx.URL`, has all but the fragment. Raises a `ValueError` for what is no `http://host:port`
    or `https://`, and for an address that was written without its secrets.
    """

    def __init__(self, text: str) -> None:
        import httpx  # here, as most of what imports this module asks no server

        # without a scheme it is none that `without_secrets` finds
        plain = text if "://" in text else re.sub(r".*@", f"{MARK}@", re.sub(r"[?#].*", f"?{MARK}", text))
        visible = without_secrets(plain.strip())
        if MARK in text:
            raise ValueError(f"{visible} was written without its secrets; give the whole address again")
        try:
            self.url = httpx.URL(text.strip()).copy_with(fragment=None)
        except httpx.InvalidURL:
            self.url = httpx.URL()
        if self.url.scheme not in ("http", "https") or not self.url.host:
            raise ValueError(f"no server at {visible!r}; an address is http://host:port/v1")

    def __str__(self) -> str:
        return str(self.url.copy_with(query=None, userinfo=b"")).rstrip("/")

    def hide(self, text: str, key: str | None = None) -> str:
        """A text, such as what a server said, without the secrets of this address and the key."""
        query = re.sub(r"\bapi-version=[^&]*", "", self.url.query.decode())
        # a shorter part may be any word
        parts = re.findall(r"[^&=]{4,}(?=&|$)", query) + re.findall("[^:]{4,}", self.url.userinfo.decode())
        for secret in sorted({*parts, *map(unquote_plus, parts), key or MARK}, key=len, reverse=True):
            text = text.replace(secret, MARK)
        return str(without_secrets(text))


def without_secrets(value: Any) -> Any:
    """Plain data, such as the settings of a run, as files and screens may have it.

    Addresses in it lose their user, password, query and fragment. What is under a name such as `api_key`,
    `password`, `token` or `headers` is left out.

    >>> without_secrets({"retriever": "http://me:word@host:8000/v1?sig=x#y", "api_key": "k", "k": 3})
    {'retriever': 'http://…@host:8000/v1?…', 'api_key': '…', 'k': 3}
    """
    if isinstance(value, Mapping):
        secret = {name for name in value if value[name] and re.fullmatch(_NAME, str(name), re.IGNORECASE)}
        return {name: MARK if name in secret else without_secrets(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(part) for part in value]
    return _NAMED.sub(rf"\1{MARK}", _ADDRESS.sub(_without, value)) if isinstance(value, str) else value


def _without(match: re.Match[str]) -> str:
    query = match["query"] or ""
    user = f"{MARK}@" if match["user"] else ""
    is_plain = re.fullmatch(r"\?api-version=[\w.-]+|", query)  # of Azure
    return f"{match['scheme']}{user}{match['place']}{query if is_plain else f'?{MARK}'}"
