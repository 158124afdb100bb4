"""Targets, from files and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from semel_lab.conform import Target, TargetInvalid, read_settings, target_of

URL = "http://127.0.0.1:8000/payments"


def test_a_file_has_the_names_of_the_options(tmp_path: Path) -> None:
    (tmp_path / "target.toml").write_text(
        """
        url = "http://127.0.0.1:8000/payments"
        body = { amount = 3 }
        with = ["Authorization: Bearer a", "X-Tenant: acme"]
        other-caller = "Authorization: Bearer b"
        reused-status = 409
        required = true
        """
    )
    target = target_of(read_settings(tmp_path / "target.toml"))
    assert target == Target(
        url=URL,
        body=b'{"amount": 3}',
        caller=(("Authorization", "Bearer a"), ("X-Tenant", "acme")),
        other_caller=(("Authorization", "Bearer b"),),
        reused_status=409,
        required=True,
    )


def test_a_body_can_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "body.json").write_bytes(b'{"n": 1}')
    assert target_of({"url": URL, "body": f"@{tmp_path / 'body.json'}"}).body == b'{"n": 1}'


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"url": "ftp://example.com"},
        {"url": "/payments"},
        {"url": "http://user:secret@127.0.0.1/"},
        {"url": "http://127.0.0.1:99999/"},
        {"url": "http://127.0.0.1/a b"},
        {"url": URL, "colour": "red"},
        {"url": URL, "body": "@nowhere.json"},
        {"url": URL, "body": "{not json"},
        {"url": URL, "with": "no colon"},
        {"url": URL, "with": "X: a\r\nY: b"},
        {"url": URL, "header": "Not a name"},
        {"url": URL, "method": "PO ST"},
        {"url": URL, "required": "yes"},
        {"url": URL, "copies": 1},
        {"url": URL, "timeout": 0},
        {"url": URL, "effects": "ftp://elsewhere/"},
    ],
    ids=str,
)
def test_what_cannot_be_a_target_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(TargetInvalid, match="nothing was sent"):
        target_of(settings)


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(TargetInvalid) as refused:
        Target(url="http://user:hunter2@127.0.0.1/")
    assert "hunter2" not in str(refused.value)


def test_credentials_are_not_shown() -> None:
    target = target_of({"url": URL, "with": "Authorization: Bearer hunter2", "other-caller": "Cookie: hunter3"})
    assert "hunter" not in repr(target)


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target.toml").write_text("url = ")
    with pytest.raises(TargetInvalid, match=r"target\.toml"):
        read_settings(tmp_path / "target.toml")


def test_effects_may_be_a_path_of_the_service() -> None:
    assert Target(url=URL, effects="/count").effects_url == "http://127.0.0.1:8000/count"
    assert Target(url=URL, effects="http://127.0.0.1:9/n").effects_url == "http://127.0.0.1:9/n"


def test_a_body_that_is_not_json_needs_another_one_by_hand() -> None:
    target = Target(url=URL, content_type="text/plain", body=b"pay")
    assert target.different is None
