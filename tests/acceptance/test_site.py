"""The docs as a site: every page is built without a warning, and nothing is loaded from another address."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="make test installs MkDocs")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    built = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return place


def test_every_page_is_on_the_site(repository: Path, site: Path) -> None:
    pages = {path.with_suffix(".html").name for path in (repository / "docs").glob("*.md")} - {"README.html"}
    assert pages | {"index.html"} <= {path.name for path in site.glob("*.html")}


def test_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """Scripts, styles, fonts and pictures are its own; links that a reader follows may lead elsewhere."""
    loaded = re.compile(r'<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)="(https?:)?//[^"]+"')
    found = [(page.name, each[0]) for page in site.rglob("*.html") for each in loaded.finditer(page.read_text("utf-8"))]
    assert [each for each in found if 'rel="canonical"' not in each[1]] == []
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"url\(\s*[\"']?https?:[^)]*\)", styles) == []
