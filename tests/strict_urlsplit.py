"""The parser of URLs of newer releases of Python, for tests under every release."""

import importlib
import sys
import urllib.parse

import pytest


def make_urlsplit_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse brackets in a URL unless they enclose its only host, wherever semel or a library splits one."""
    original = urllib.parse.urlsplit

    def urlsplit(url: str, scheme: str = "", allow_fragments: bool = True) -> urllib.parse.SplitResult:
        authority = url.partition("//")[2].partition("/")[0].partition("?")[0]
        before, bracket, rest = authority.rpartition("@")[2].partition("[")
        if bracket and (before or rest.partition("]")[2][:1] not in ("", ":")):
            raise ValueError("Invalid IPv6 URL")
        return original(url, scheme, allow_fragments)

    for name in ("semel.stores.redis", "semel.stores.postgresql", "semel.stores.mysql"):
        importlib.import_module(name)
    for name, module in list(sys.modules.items()):
        if name == "urllib.parse" or (name.startswith("semel.") and hasattr(module, "urlsplit")):
            monkeypatch.setattr(module, "urlsplit", urlsplit)
