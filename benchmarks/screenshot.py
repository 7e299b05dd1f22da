"""Picture of a study's page, as the README shows it.

    python benchmarks/screenshot.py runs/four docs/report.png

Needs a Chromium (Debian: ``apt-get install chromium``).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTH = 1180


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="run folder with a report.html")
    parser.add_argument("picture", type=Path, help="PNG file to write")
    parser.add_argument("--section", default="side", help="id of the section (%(default)s)")
    options = parser.parse_args()
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser_path is None:
        sys.exit("No Chromium was found; apt-get install chromium.")
    with sync_playwright() as playwright:
        # Containers rarely let Chromium make a sandbox of its own; the page is ours.
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, device_scale_factor=1.5)
        page.goto((options.run / "report.html").resolve().as_uri())
        page.wait_for_selector("html[data-drawn]")
        page.locator(f"section#{options.section}").screenshot(path=options.picture)
        browser.close()


if __name__ == "__main__":
    main()
