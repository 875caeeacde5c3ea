"""Makes pictures of every page: `make console-pictures`, or `python -m tests.console FOLDER`. With `--docs` those of
docs/console.md alone, small and in one form.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path

from kindcast.server import metrics
from tests.console.journeys import JOURNEYS, pictures_in
from tests.harness.browser import Browser, running_browser
from tests.harness.server_thread import running_app

FORMS = (("light", 1280, 900), ("dark", 1280, 900), ("light", 400, 800), ("dark", 400, 800))


DOCS = {
    "first-match": "first-match",
    "concept": "concept",
    "dry-run": "dry-run",
    "mistake": "editor",
    "live": "why",
    "late-webhook": "late-webhook",
    "health": "health",
}
"""Stops of the journeys → pictures of docs/console.md."""


def main(folder: Path, *, for_docs: bool = False) -> None:
    """Runs all journeys in each form, and writes the pictures of each stop."""
    folder.mkdir(parents=True, exist_ok=True)
    metrics.STEP_SECONDS = 0.5  # so that Health has something to draw within a minute
    for scheme, width, height in FORMS[:1] if for_docs else FORMS:
        with tempfile.TemporaryDirectory() as temporary:
            data = Path(temporary) / "data"
            data.mkdir()
            with (
                running_browser(Path(temporary) / "profile") as browser,
                running_app(data, allow_private_sinks=True) as address,
            ):
                browser.size(width, height)
                browser.colours(scheme)
                shot = pictures_in(browser, folder, f"{scheme}-{width}")
                if for_docs:
                    shot = partial(_picture_for_docs, browser, folder)
                for journey in JOURNEYS:
                    journey(browser, address, shot)
    sys.stdout.write(f"pictures in {folder}\n")


def _picture_for_docs(browser: Browser, folder: Path, name: str) -> None:
    if name in DOCS:
        browser.run("document.getElementById('said').replaceChildren()")
        browser.picture(folder / f"console-{DOCS[name]}.webp", most_height=1_000)


if __name__ == "__main__":
    asked = [each for each in sys.argv[1:] if each != "--docs"]
    main(Path(asked[0] if asked else "build/console-pictures"), for_docs="--docs" in sys.argv)
