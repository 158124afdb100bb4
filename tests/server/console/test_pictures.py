"""Pictures of the console for the README and the documentation: `SEMEL_PICTURES=1` draws them anew into docs/images."""

from __future__ import annotations

import os
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.server.console.sample_site import ARTIFACTS, ROOT, Reader

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
KEPT: Final = ROOT / "docs" / "images"
PICTURES: Final = {
    "console-attention": ("/", False),
    "console-overview": ("/overview", True),
    "console-record": ("/records?operation=ship&scope=acme", False),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_the_documentation_can_be_drawn(reader: Reader, name: str) -> None:
    place, is_dark = PICTURES[name]
    reader.page.set_viewport_size({"width": 1180, "height": 760})
    reader.page.emulate_media(color_scheme="dark" if is_dark else "light")
    page = reader.opens(place)
    if name == "console-record":
        page.locator("tbody a").first.click()
        expect(page.locator(".timeline")).to_be_visible()
    page.locator(".foot").evaluate("part => part.remove()")  # it names the file of the test
    folder = KEPT if os.environ.get("SEMEL_PICTURES") else ARTIFACTS
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png")
    assert (KEPT / f"{name}.png").stat().st_size < 200_000
