"""What a server says of an error, made harmless."""

from __future__ import annotations

import json

import pytest

from engine.kube.errors import TooManyRequests, status_error


@pytest.mark.parametrize(
    ("body", "headers", "seconds"),
    [
        ({"details": {"retryAfterSeconds": 1_000_000_000}}, {}, 30.0),
        ({"details": {"retryAfterSeconds": 1e300}}, {}, 30.0),
        ({"details": {"retryAfterSeconds": -5}}, {}, 0.0),
        ({"details": {"retryAfterSeconds": 2}}, {}, 2.0),
        ({}, {"retry-after": "9" * 400}, 30.0),
        ({}, {"retry-after": "7"}, 7.0),
        ({}, {"retry-after": "Wed, 21 Oct 2037 07:28:00 GMT"}, None),
    ],
)
def test_nobody_is_put_to_sleep_for_long(
    body: object, headers: dict[str, str], seconds: float | None
) -> None:
    error = status_error(429, json.dumps(body).encode(), headers)
    assert isinstance(error, TooManyRequests)
    assert error.retry_after_seconds == seconds


def test_who_is_not_known_is_told_what_may_be_wrong() -> None:
    body = json.dumps({"reason": "Unauthorized", "message": "Unauthorized", "code": 401}).encode()
    assert str(status_error(401, body)).startswith(
        "401 Unauthorized: the credentials are not accepted"
    )
    body = json.dumps({"reason": "Unauthorized", "message": "it ended at noon"}).encode()
    assert str(status_error(401, body)) == "401 Unauthorized: it ended at noon"


def test_its_text_is_one_short_line_without_escapes() -> None:
    body = {"code": 1, "reason": "R\nI", "message": "no\nE1122 forged\x1b[2J " + "x" * 5_000_000}
    error = status_error(500, json.dumps(body).encode())
    assert str(error).startswith("500 R I: no E1122 forged\\x1b[2J xxx")
    assert len(str(error)) < 1100
