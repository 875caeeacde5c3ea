"""Makes pictures of every page: `make console-pictures`, or `python -m tests.console FOLDER`."""

import sys
import tempfile
from pathlib import Path

from tests.console.journeys import JOURNEYS, pictures_in
from tests.harness.browser import running_browser
from tests.harness.server_thread import running_app

FORMS = (("light", 1280, 900), ("dark", 1280, 900), ("light", 400, 800), ("dark", 400, 800))


def main(folder: Path) -> None:
    """Runs all journeys in each form, and writes the pictures of each stop."""
    folder.mkdir(parents=True, exist_ok=True)
    for scheme, width, height in FORMS:
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
                for journey in JOURNEYS:
                    journey(browser, address, shot)
    sys.stdout.write(f"{len(list(folder.glob('*.png')))} pictures in {folder}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/console-pictures"))
