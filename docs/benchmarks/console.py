"""How soon the console of a real member with a large pool is there, and what that takes in the browser:

    python3 docs/benchmarks/console.py --binary TESSERA --chaos TESSERA-CHAOS [--nodes 10000] [--cards 10]

Nodes are registered with the members over the API by `tessera-chaos watched --hold`; nothing of the pool is made up for the page.
Chromium then opens the overview and the map of the leader, each a few times in a browser of its own, with nothing in its caches. Needs
what `deploy/setup.sh console` installs. Prints the median and the slowest of each.
"""

import argparse
import shutil
import signal
import statistics
import subprocess
import sys

from playwright.sync_api import expect, sync_playwright

BROWSER = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
READY = {"/": "Needs attention", "/map": "cards"}
DRAWN = """requestAnimationFrame(function look() {
    if (document.querySelector("canvas[data-millis]")) window.mapAt = performance.now(); else requestAnimationFrame(look); });"""


def opened(playwright, chromium, page_address, view):
    """Milliseconds to the first paint and until the view is there, and MiB of the page's memory."""
    browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER)
    try:
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.add_init_script(DRAWN)
        page.goto(f"{page_address}console/#{view}")
        expect(page.locator("main")).to_contain_text(READY[view], timeout=60_000)
        there = page.evaluate("performance.now()")
        if view == "/map":
            expect(page.locator("canvas[data-millis]")).to_be_visible(timeout=60_000)
            there = page.evaluate("mapAt")
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        return paint, there, page.evaluate("performance.memory.usedJSHeapSize") / 2**20
    finally:
        browser.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--chaos", required=True)
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--cards", type=int, default=10)
    parser.add_argument("--times", type=int, default=5)
    arguments = parser.parse_args()
    pool = subprocess.Popen(
        [arguments.chaos, "watched", "--hold", "--binary", arguments.binary, "--nodes", str(arguments.nodes), "--cards", str(arguments.cards)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        line = next((line for line in pool.stdout if line.startswith("pages of the leader: ")), None)
        if line is None:
            sys.exit("the pool did not come up")
        address = line.split()[-1]
        with sync_playwright() as playwright:
            for view in READY:
                looks = [opened(playwright, arguments.chromium, address, view) for _ in range(arguments.times)]
                paint, there, memory = (f"{statistics.median(of):.0f} (slowest {max(of):.0f})" for of in zip(*looks, strict=True))
                print(f"{arguments.nodes * arguments.cards} cards, {view}: first paint after {paint} ms, there after {there} ms, {memory} MiB")
    finally:
        pool.send_signal(signal.SIGINT)
        pool.wait()


if __name__ == "__main__":
    main()
