"""The pages and a worker as real processes, and somebody with a browser in front of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from subprocess import Popen

import pytest
from playwright.sync_api import Browser, Page, expect

from examples.hospital.instances import Instances
from examples.hospital.settings import Settings
from tests.hospital.conftest import ROOT, Neighbours, end_leases, served, working

ARTIFACTS = ROOT / "artifacts" / "hospital"
PATIENCE = 120_000  # milliseconds, for a loaded machine; what is waited for comes at once or never
expect.set_options(timeout=PATIENCE)


class Worker:
    """A worker process that all tests share, until one of them kills it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = ExitStack()
        self._process: Popen[str] | None = None

    def start(self) -> None:
        """Start it, if it does not run."""
        if self._process is None or self._process.poll() is not None:
            self._process = self._stack.enter_context(working(self._settings))

    def wait(self) -> int:
        """Wait until it is dead, and end its leases."""
        assert self._process is not None
        code = self._process.wait(PATIENCE / 1000)
        end_leases(self._settings)
        return code

    def close(self) -> None:
        """End it."""
        self._stack.close()


@dataclass
class Desk:
    """The page, and what it is about."""

    page: Page
    settings: Settings
    neighbours: Neighbours
    worker: Worker

    def hold(self) -> None:
        """Start a claim, and let the insurer have it and not answer."""
        self.neighbours.insurer.faults(delay=600)
        self.start()
        self.sees(SUB_05="ran", SUB_06="running")
        self.until(lambda: self.neighbours.insurer.faults()["under_way"] == 1)

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the browser's events come in until something has happened."""
        for _ in range(PATIENCE // 20):
            if condition():
                return
            self.page.wait_for_timeout(20)
        raise AssertionError("what was waited for did not happen")

    def start(self, button: str = "#start") -> None:
        """Press a button that starts a process, and come to its page."""
        before = self.page.url
        self.page.locator(button).click()
        self.page.wait_for_url(lambda url: url != before)

    def sees(self, **became: str) -> None:
        """Wait until tasks stand so on the diagram."""
        for task, how in became.items():
            expect(self.page.locator(f'[data-node="{task}"]')).to_have_attribute("data-became", how)

    def ends(self, end: str = "paid") -> None:
        """Wait for the end."""
        expect(self.page.locator('#live[data-state="ended"] .badge').first).to_have_text(end)

    @property
    def claim(self) -> str:
        """The number of the claim that is shown."""
        return self.page.locator("#claim-title").inner_text()

    def has(self, *, claims: int, payments: int) -> None:
        """What the page shows of a claim, and the ledgers have."""
        expect(self.page.locator("#at-insurer dd").first).to_contain_text(f"{claims} claim")
        expect(self.page.locator("#in-books dd").first).to_contain_text(f"{payments} payment")
        found = self.neighbours.effects(self.claim)
        assert (found["claims"], found["postings"]) == (claims, payments)


@pytest.fixture(scope="session")
def _settings(tmp_path_factory: pytest.TempPathFactory, one_neighbourhood: Neighbours) -> Settings:
    """A database of the session; each test starts claims of its own in it."""
    folder = tmp_path_factory.mktemp("desk")
    made = Settings(f"sqlite:///{folder}/hospital.db", *one_neighbourhood.addresses, folder / "codes.db")
    instances = Instances(made.database)
    instances.create_tables()
    instances.close()
    return made


@pytest.fixture(scope="session")
def address(_settings: Settings) -> Iterator[str]:
    """Where the pages are."""
    with served("examples.hospital.serving", **_settings.to_environment()) as address:
        yield address


@pytest.fixture(scope="session")
def one_worker(_settings: Settings) -> Iterator[Worker]:
    """The worker of the session."""
    worker = Worker(_settings)
    yield worker
    worker.close()


@pytest.fixture
def desk(
    address: str,
    _settings: Settings,
    one_worker: Worker,
    neighbours: Neighbours,
    browser: Browser,
    request: pytest.FixtureRequest,
) -> Iterator[Desk]:
    """Somebody who sees the first page; at the end there is a picture of what they saw."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    one_worker.start()
    yield Desk(page, _settings, neighbours, one_worker)
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"{request.node.name}.png", full_page=True)
    context.close()
    assert errors == []
