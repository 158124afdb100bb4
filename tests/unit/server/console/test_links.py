"""Links to where more is known of a record."""

import pytest

from semel import Semel
from semel.core.record import Record
from semel.errors import UsageError
from semel.server.console.links import Links, trace_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def record_about(**about: object) -> Record:
    with Semel("memory://") as semel:
        semel.run("k/1", lambda: None, operation="pay", scope="a&b", fingerprint=None, about=about)
        record = semel.read("k/1", operation="pay", scope="a&b")
    assert record is not None
    return record


def test_a_link_is_there_only_where_the_record_has_all_that_it_names() -> None:
    links = Links({"engine": "https://e.example/{process_instance}", "shop": "/orders/{business_key}?{tag_shop}"})
    assert links.of(record_about()) == []
    found = links.of(record_about(process_instance="p-1", business_key="o-1"))
    assert [(link.words, link.url) for link in found] == [("engine", "https://e.example/p-1")]
    (_, shop) = links.of(record_about(process_instance="p-1", business_key="o-1", tags={"shop": "7"}))
    assert shop.url == "/orders/o-1?7"


def test_values_cannot_leave_their_place_in_an_address() -> None:
    links = Links({"x": "https://e.example/{key}?s={scope}"})
    (link,) = links.of(record_about())
    assert link.url == "https://e.example/k%2F1?s=a%26b"


@pytest.mark.parametrize("template", ["javascript:alert({key})", "//evil.example/{key}", "data:{key}", "{key}"])
def test_a_link_leads_to_the_web_alone(template: str) -> None:
    with pytest.raises(UsageError, match="has to begin with"):
        Links({"x": template})


def test_a_name_that_no_record_has_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="names 'order', which no record has"):
        Links({"x": "https://e.example/{order}"})


@pytest.mark.parametrize("template", ["https://{", "https://}", "https://{key", "https://e.example/{key!x}{"])
def test_a_template_that_cannot_be_read_is_refused_at_once(template: str) -> None:
    with pytest.raises(UsageError, match="nothing was made"):
        Links({"x": template})


@pytest.mark.parametrize("template", ["https://e.example/{key!r}", "https://e.example/{key:>99}"])
def test_braces_hold_a_name_and_nothing_else(template: str) -> None:
    with pytest.raises(UsageError, match="more than a name in its braces"):
        Links({"x": template})


def test_the_name_of_a_tag_may_have_a_dot() -> None:
    (link,) = Links({"x": "https://e.example/{tag_a.b}"}).of(record_about(tags={"a.b": "7"}))
    assert link.url == "https://e.example/7"


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ({"trace_id": TRACE}, TRACE),
        ({"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}, TRACE),
        ({"trace_id": "no trace"}, None),
        ({}, None),
    ],
)
def test_the_trace_of_a_record_is_read_from_its_tags(tags: dict[str, str], found: str | None) -> None:
    assert trace_of(tags) == found
