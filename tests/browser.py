"""Debian's Chromium without a window, for the tests of pages and for their pictures: `python -m tests.browser RUNS`."""

import base64
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

from goalgrid.cli.app import app

DESK, TABLET, PHONE = (1280, 900), (768, 1000), (390, 800)
PICTURES = Path(__file__).parent.parent / "docs" / "pictures"


def browser(*, scripts: bool = True) -> webdriver.Chrome:
    """Chromium without a network; where none is installed, the test is skipped."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("no chromium and chromedriver here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    if not scripts:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    started.set_script_timeout(100)  # of axe, on a machine with other work
    reach(started, network=False)
    return started


def reach(driver: webdriver.Chrome, *, network: bool) -> None:
    """Give or take the network."""
    bytes_a_second = -1 if network else 0
    throughput = {"downloadThroughput": bytes_a_second, "uploadThroughput": bytes_a_second}
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": not network, "latency": 0, **throughput})


def visit(driver: webdriver.Chrome, page: Path, size: tuple[int, int] = DESK) -> webdriver.Chrome:
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    load_page(driver, page.as_uri())
    return driver


def load_page(driver: webdriver.Chrome, address: str) -> None:
    """Open a page and wait for the end of its scripts: on a busy machine, get alone returns before."""
    driver.get(address)
    WebDriverWait(driver, 100).until(lambda _: driver.execute_script("return document.readyState == 'complete'"))


def main(runs: str) -> None:
    """Write the README's pictures: the demo's table, the top of its report, and the report's best cell, opened."""
    with tempfile.TemporaryDirectory() as folder:
        driver = browser()
        driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        for verb, size in (("table", (800, 345)), ("report", (1000, 880))):
            page = Path(folder) / f"{verb}.html"
            app([verb, "demo", "--output", str(page), "--runs", runs], standalone_mode=False)
            _shoot(visit(driver, page, size), verb)
        driver.find_element("css selector", "#tables td.best button").click()
        driver.find_element("css selector", ".chart canvas")
        _shoot(driver, "cell")
        driver.quit()


def _shoot(driver: webdriver.Chrome, name: str) -> None:
    (PICTURES / f"{name}.png").write_bytes(base64.b64decode(driver.get_screenshot_as_base64()))


if __name__ == "__main__":
    main(*sys.argv[1:])
