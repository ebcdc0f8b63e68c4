"""A headless browser for tests of pages: Debian's Chromium, or another that is installed."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for path in map(shutil.which, NAMES) if path), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium is installed (Debian: apt-get install chromium): the page was checked without a browser only",
)


def browse(url: str, home: Path, *options: str) -> str:
    """Open a page, let five seconds of its own time pass, and return what the browser printed."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={home}", "--hide-scrollbars"]
    command += ["--virtual-time-budget=5000", "--enable-logging=stderr", *options, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Uncaught" not in done.stderr, done.stderr  # an error of the page's script
    return done.stdout


def run_script(script: str, home: Path) -> Any:
    """Run JavaScript that prints JSON: in Node, or else in the browser."""
    node = shutil.which("node")
    if node is not None:
        done = subprocess.run([node, "-e", script], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    if CHROMIUM is None:
        pytest.skip("neither Node nor Chromium is installed: the page's script was not run")
    page = home / "script.html"
    page.write_text(f"<pre id=out></pre><script>console.log = it => out.textContent = it;{script}</script>", "utf-8")
    printed = browse(page.as_uri(), home, "--dump-dom")
    return json.loads(printed.split('id="out">')[1].split("</pre>")[0])
