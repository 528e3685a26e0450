"""A real browser on the page: Debian's chromium, driven by selenium."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import httpx
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
PATIENCE = 20  # seconds; how long a page may take on a busy machine


@contextmanager
def browser() -> Iterator[webdriver.Chrome]:
    """A headless chromium that logs its console and its requests."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in (
        "headless",
        "no-sandbox",
        "disable-gpu",
        "disable-dev-shm-usage",
        "window-size=1280,900",
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


class PageBrowser:
    """The page of a service in a browser.

    Args:
        driver: The browser.
        url: The service's address.
    """

    def __init__(self, driver: webdriver.Chrome, url: str):
        self.driver, self.url = driver, url
        self.wait = WebDriverWait(driver, PATIENCE, 0.05, ignored_exceptions=[StaleElementReferenceException])

    def open(self, view: str, **values: Any) -> None:
        """Load the page at a view."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/#{view}?{urlencode(values, doseq=True)}")
        self.settle(view)

    def settle(self, view: str) -> None:
        """Wait until no request is open."""
        busy = "#made[aria-busy=false]" if view == "new" else "#results[aria-busy=false]"
        self.until(lambda: self.all(f"#view-{view}:not([hidden]) {busy}"))

    def until(self, holds: Callable[[], Any]) -> Any:
        """Wait until a condition holds; returns its value."""
        return self.wait.until(lambda _: holds())

    def one(self, selector: str) -> WebElement:
        """The element, once it exists."""
        return self.until(
            lambda: self.driver.find_element(By.CSS_SELECTOR, selector) if self.all(selector) else None
        )

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        """Click the element, in the middle of the screen, where no header covers it."""
        part = self.one(selector)
        self.driver.execute_script("arguments[0].scrollIntoView({ block: 'center' })", part)
        part.click()

    def texts(self, selector: str) -> list[str]:
        """The texts of all such elements at one moment."""
        script = "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent.trim())"
        return self.driver.execute_script(script, selector)

    def write(self, text: str) -> None:
        """Type a new item's text in place of the old, and wait for the preview."""
        field = self.one("#item-text")
        self.driver.execute_script("arguments[0].select()", field)
        field.send_keys(text)
        self.until(lambda: json.dumps(text, ensure_ascii=False) in self.one("#as-python").text)
        self.settle("new")

    def seek(self, query: str) -> None:
        """Search for a query."""
        field = self.one("#query")
        self.driver.execute_script("arguments[0].select()", field)
        field.send_keys(query)
        self.until(lambda: urlencode({"q": query}) in self.driver.current_url)
        self.settle("search")

    def press(self, *keys: str) -> None:
        """Press keys wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    @property
    def focused(self) -> WebElement:
        return self.driver.switch_to.active_element

    def resize(self, width: int, height: int = 900) -> None:
        """Set the size of the screen, which can be narrower than a headless window."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, scheme: str) -> None:
        """Set the system's theme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def asked(self) -> list[str]:
        """The addresses requested since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent]

    def console_errors(self) -> list[str]:
        """Errors in the browser's console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def get(self, path: str, **parameters: Any) -> Any:
        """Read from the service directly."""
        with httpx.Client(base_url=self.url, trust_env=False) as http:
            return http.get(path, params=parameters).raise_for_status().json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send a request to the service directly."""
        with httpx.Client(base_url=self.url, trust_env=False) as http:
            answer = http.post(path, json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

    def add(self, name: str, text: str, tags: Sequence[str] = (), **fields: Any) -> None:
        """Add an item directly."""
        self.post("/v1/items", {"items": [{"id": name, "text": text, "tags": [*tags], "fields": fields}]})
