"""Takes the picture of the live page that the guide shows.

sweeper run sweeps/digits.yaml --out sweeps-out
python benchmarks/live_screenshot.py sweeps-out docs/images/live.png
"""

import argparse
from pathlib import Path

from live_page import CHROMIUM, DRAWN, serving
from PIL import Image
from playwright.sync_api import sync_playwright

from sweeper.service.catalog import Catalog

SIZE = {"width": 1280, "height": 1090}


def main() -> None:
    """Write the picture of the newest sweep, with few colours so that it stays small."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of sweeps")
    parser.add_argument("path", type=Path, help="the picture")
    parser.add_argument("--query", default="max-epsilon=3", help="what the address says beside the sweep")
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    name = Catalog(options.out).names()[0]
    with serving(options.out) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(**CHROMIUM)
        page = browser.new_page(viewport=SIZE, color_scheme="dark" if options.dark else "light")
        page.goto(f"{address}/?sweep={name}&{options.query}")
        page.wait_for_function(DRAWN, timeout=120_000)
        page.wait_for_selector("#part-picked h3", timeout=120_000)
        page.screenshot(path=options.path)
        browser.close()
    with Image.open(options.path) as picture:
        picture.convert("RGB").quantize(256).save(options.path, optimize=True)
    print(f"{options.path}: {options.path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
