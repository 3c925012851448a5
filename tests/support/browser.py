"""A real Chromium without a screen, for tests of pages. CI has one; without it the error says what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from playwright.sync_api import Browser, Page, expect, sync_playwright

from system_programs import executable

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]

_PAUSE, _PATIENCE = 50, 120_000  # milliseconds: between two checks, and the limit of every wait on a busy machine
expect.set_options(timeout=_PATIENCE)

DESK, PHONE = (1440, 900), (390, 844)
Scheme = Literal["light", "dark"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a profile of its own."""
    path = executable("Chromium", *NAMES)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS, timeout=_PATIENCE)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Sheet:
    """An open page, scrolled once from top to bottom.

    Attributes:
        page: of Playwright.
        complaints: warnings and errors of the console and the scripts.
        requests: all requested addresses except those inside the page.
    """

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def scroll(self) -> None:
        """Scrolls to every part once, so that all charts are drawn; of a live page, when it has been read."""
        self.wait_until("document.getElementById('reading')?.hidden ?? true")
        for place in self.page.locator("main > section, .chart").all():
            place.scroll_into_view_if_needed()
        charts = "[...document.querySelectorAll('.chart')]"
        self.wait_until(f"{charts}.every((c) => c.drawn || !c.offsetParent)")
        self.page.evaluate(f"Promise.all({charts}.map((c) => c.drawn)).then(() => null)")  # to their ends

    def wait_until(self, condition: str) -> None:
        """Waits until an expression holds; Playwright's own way needs `eval`, which the page forbids."""
        for _ in range(_PATIENCE // _PAUSE):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(_PAUSE)
        raise AssertionError(f"in vain: {condition}")


@contextmanager
def opened(
    browser: Browser, address: str, *, size: tuple[int, int] = DESK, scheme: Scheme = "light"
) -> Iterator[Sheet]:
    """A page in a window of this size; a narrow one is a phone, with touch."""
    width, height = size
    phone = width < 500
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=phone, is_mobile=phone
    )
    try:
        context.set_default_timeout(_PATIENCE)
        sheet = Sheet(context.new_page())
        sheet.page.on("console", lambda said: _hear(sheet, said))
        sheet.page.on("pageerror", lambda error: sheet.complaints.append(str(error)))
        sheet.page.on("request", lambda request: _note(sheet, request.url))
        sheet.page.goto(address)
        yield sheet
    finally:
        context.close()


def _hear(sheet: Sheet, said: Any) -> None:
    if said.type in ("error", "warning"):
        sheet.complaints.append(said.text)


def _note(sheet: Sheet, url: str) -> None:
    if not url.startswith(("data:", "blob:")):
        sheet.requests.append(url)
