"""Screenshots of the page for the README, taken from a running service.

    make demo && metaxc serve demo/model --data demo/data
    python benchmarks/screenshots.py http://127.0.0.1:8765 docs/images "Outbreak by Robin Cook" \\
        "Terminal by Robin Cook"

Writes page-1280.png, page-390.png and search-1280.png. The catalog is not changed. Requires chromium and selenium.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

TIMEOUT = 60
"""Seconds."""

PAGE_IS_IDLE = "return !document.getAnimations().length && !document.querySelector('[aria-busy=true]')"


def chromium() -> webdriver.Chrome:
    """A headless browser with a light theme."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    for argument in ("headless", "no-sandbox", "disable-gpu", "hide-scrollbars", "force-color-profile=srgb"):
        options.add_argument(f"--{argument}")
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def resize(driver: webdriver.Chrome, width: int, height: int, pixel_ratio: int = 1) -> None:
    """Set the screen size in CSS pixels, and the device pixel ratio."""
    size = {"width": width, "height": height, "deviceScaleFactor": pixel_ratio, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def wait_until(driver: webdriver.Chrome, condition: Callable[[], Any]) -> Any:
    """Wait until a condition is true; returns its value."""
    return WebDriverWait(driver, TIMEOUT, 0.1).until(lambda _: condition())


def take_screenshot(
    driver: webdriver.Chrome, url: str, width: int, height: int, pixel_ratio: int, file: Path
) -> None:
    """Open a view, wait until it is idle, and save it."""
    resize(driver, width, height, pixel_ratio)
    driver.get("about:blank")
    driver.get(url)
    wait_until(
        driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".view:not([hidden]) :is(.neighbour, .result)")
    )
    wait_until(driver, lambda: driver.execute_script(PAGE_IS_IDLE))
    driver.save_screenshot(str(file))
    print(f"{file}  {width} x {height}")


def first_result(driver: webdriver.Chrome, url: str) -> WebElement:
    """The first result of a search."""
    driver.get("about:blank")
    driver.get(url)
    return wait_until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".result .result-text"))[0]


def main(url: str, folder: str, text: str = "", query: str = "") -> None:
    """Without a text the page's own example is shown; without a query the text of a novel item is searched for."""
    place, url = Path(folder), url.rstrip("/")
    place.mkdir(parents=True, exist_ok=True)
    driver = chromium()
    try:
        new = f"{url}/#new" + (f"?{urlencode({'text': text})}" if text else "")
        take_screenshot(
            driver, new, 390, 1100, 2, place / "page-390.png"
        )  # first, which warms up the encoder
        take_screenshot(driver, new, 1280, 1280, 1, place / "page-1280.png")
        query = query or first_result(driver, f"{url}/#search?state=novel").text
        chosen = first_result(driver, f"{url}/#search?{urlencode({'q': query, 'state': 'novel'})}")
        address = str(chosen.get_property("href")).replace("state=novel&", "")
        take_screenshot(driver, address, 1280, 900, 1, place / "search-1280.png")
    finally:
        driver.quit()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4, 5):
        sys.exit("usage: python benchmarks/screenshots.py URL FOLDER [TEXT [QUERY]]")
    main(*sys.argv[1:])
