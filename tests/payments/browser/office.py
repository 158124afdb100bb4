"""Somebody with a browser who has files of payments to send."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from playwright.sync_api import FilePayload, Page, expect

from tests.hotel.front_desk import Gateway

PATIENCE: Final = 120_000  # milliseconds, for a loaded machine; what is waited for comes at once or never


@dataclass
class Office:
    """The page, and the gateway behind the service."""

    address: str
    gateway: Gateway
    page: Page

    def send(self, content: bytes, name: str = "salaries.csv") -> None:
        """Choose a file, and press the button."""
        self.page.goto(self.address)
        file: FilePayload = {"name": name, "mimeType": "text/csv", "buffer": content}
        self.page.locator("#file").set_input_files(file)
        self.page.locator("#send").click()

    def follow(self, content: bytes, name: str = "salaries.csv") -> None:
        """The same, and then see the page of its bulk."""
        self.send(content, name)
        self.page.wait_for_url("**/bulk/*")

    def sees(self, state: str) -> None:
        """Wait until the page says so."""
        expect(self.page.locator(f'#bulk[data-state="{state}"]')).to_be_visible()

    def counts(self, **expected: int) -> None:
        """Wait until the page shows these numbers."""
        for name, number in expected.items():
            expect(self.page.locator(f"#{name}")).to_have_text(str(number))

    def press(self, button: str) -> None:
        """Press it once it is there."""
        self.page.locator(f"#{button}").click()

    def let_some_through(self) -> None:
        """Charges that are held come to an end; those that begin after them are held again."""
        self.gateway.faults(delay=0)
        self.gateway.faults(delay=600)

    def charges(self) -> Counter[str]:
        """How often each payment of this test was charged."""
        ledger = self.gateway.process.ledger()[self.gateway.before :]
        return Counter(line["reference"] for line in ledger if line["event"] == "charged")
