"""The project itself: lock files, packages of the wheel, README maps."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.__main__ import NAMES as CAMPAIGNS

PACKAGES = ("index", "semantic", "server", "spark_jobs")
LOCKS = tuple(
    f"requirements{which}.lock"
    for which in ("", "-dev", "-spark", "-postgres", "-connect", "-telemetry", "-bench", "-suites", "-hadoop-aws")
)
MAPPED = (
    "deploy",
    "docs",
    "docs/decisions",
    "ontologies",
    "tests",
)  # folders without Python packages that need a map as well


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))


def package_folders(repository: Path) -> list[Path]:
    return sorted(
        marker.parent
        for package in PACKAGES
        for marker in (repository / package).rglob("__init__.py")
        if "__pycache__" not in marker.parts
    )


def mapped_folders(repository: Path) -> list[Path]:
    return [*package_folders(repository), *(repository / folder for folder in MAPPED)]


def locked_names(path: Path) -> set[str]:
    return {
        match[1]
        for match in re.finditer(r"^([a-z0-9][a-z0-9.-]*)(?:\[[a-z,]+\])?==", path.read_text(encoding="utf-8"), re.M)
    }


def requirement_name(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_makefile_knows_every_campaign(repository: Path) -> None:
    """`make campaign NAME` runs what `make campaign` lists."""
    text = (repository / "Makefile").read_text(encoding="utf-8")
    named = re.search(r"^CAMPAIGNS := (.+)$", text, re.M)
    assert named is not None
    assert tuple(named[1].split()) == CAMPAIGNS


@pytest.mark.parametrize("name", LOCKS)
def test_lock_file_as_committed_names_no_registry(repository: Path, name: str) -> None:
    """Where packages come from is the business of the machine that installs them: no URL, no option, no comment."""
    text = (repository / name).read_text(encoding="utf-8")
    assert "://" not in text
    strange = [
        line
        for line in text.splitlines()
        if not re.match(r"[a-z0-9.-]+(\[[a-z0-9,]+\])?==\S+ |    --hash=sha256:[0-9a-f]{64}", line)
    ]
    assert strange == []


@pytest.mark.parametrize("name", LOCKS)
def test_lock_file_pins_packages_with_their_extras(repository: Path, name: str) -> None:
    """Older versions of pip do not apply the pin of a package to what asks for it with an extra: as soon as there is a
    newer version they refuse to install anything."""
    text = (repository / name).read_text(encoding="utf-8")
    assert not re.search(r"^(coverage|psycopg|pyjwt|uvicorn)==", text, re.M)


@pytest.mark.parametrize("name", LOCKS)
def test_lock_file_every_requirement_has_hashes(repository: Path, name: str) -> None:
    """pip refuses a file that another registry serves under the same name and version."""
    entries = re.split(r"\n(?=[a-z0-9])", (repository / name).read_text(encoding="utf-8").strip())
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_lock_files_hold_what_the_project_asks_for(repository: Path, project: dict[str, Any]) -> None:
    """A dependency that was added without `make lock` is noticed here, not on a fresh machine."""
    extras = project["project"]["optional-dependencies"]
    wanted = project["project"]["dependencies"]
    for name, needs in (
        ("requirements.lock", [*wanted, *extras["checkout"]]),
        ("requirements-dev.lock", [*wanted, *extras["dev"], *extras["demo"]]),
        ("requirements-spark.lock", [*wanted, *extras["spark"]]),
        ("requirements-postgres.lock", [*wanted, *extras["postgres"]]),
        ("requirements-connect.lock", [*wanted, *extras["connect"]]),
        ("requirements-telemetry.lock", [*wanted, *extras["telemetry"]]),
        ("requirements-bench.lock", [*wanted, *extras["bench"]]),
    ):
        missing = {requirement_name(each) for each in needs} - locked_names(repository / name)
        assert missing == set(), name


def test_lock_files_agree_on_versions(repository: Path) -> None:
    """The files of the extras install on top of the main one."""
    pins: dict[str, set[str]] = {}
    for name in LOCKS:
        for package, version in re.findall(
            r"^([a-z0-9.-]+)(?:\[[a-z,]+\])?==(\S+)", (repository / name).read_text("utf-8"), re.M
        ):
            pins.setdefault(package, set()).add(version)
    assert {package: versions for package, versions in pins.items() if len(versions) > 1} == {}


@pytest.mark.slow
def test_wheel_holds_one_package_and_the_vocabularies(
    repository: Path, project: dict[str, Any], tmp_path: Path
) -> None:
    """Tests and docs are not shipped; the vocabularies and the type markers are."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=repository, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    version = project["project"]["version"]
    assert {name.split("/")[0] for name in names} == {"kindcast", f"kindcast-{version}.dist-info"}
    assert {"kindcast/py.typed", *(f"kindcast/{package}/py.typed" for package in PACKAGES)} <= set(names)
    assert {name for name in names if name.endswith(".ttl")} == {
        f"kindcast/semantic/shipped/{path.name}" for path in (repository / "ontologies").glob("*.ttl")
    }
    assert {name for name in names if "/static/" in name} == {
        f"kindcast/server/console/static/{path.name}" for path in (repository / "server/console/static").iterdir()
    }
    modules = {
        f"kindcast/{path.relative_to(repository).as_posix()}"
        for each in PACKAGES
        for path in (repository / each).rglob("*.py")
    }
    assert {name for name in names if name.endswith(".py")} == modules | {"kindcast/__init__.py"}


def test_folders_have_a_map(repository: Path) -> None:
    """Somebody new finds every room of the house from the README of the folder."""
    missing = [str(folder.relative_to(repository)) for folder in mapped_folders(repository) if not map_of(folder)]
    assert missing == []


def test_maps_name_every_module_and_no_other(repository: Path) -> None:
    """A map that forgets a module, or tells of one that is gone, sends people astray."""
    everywhere = {path.name for folder in (*PACKAGES, "tests") for path in (repository / folder).rglob("*.py")}
    wrong = []
    for folder in package_folders(repository):
        text = map_of(folder)
        modules = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
        told = set(re.findall(r"\b[a-z_0-9]+\.py\b", text))
        wrong += [f"{folder.relative_to(repository)}: {name} is not told of" for name in sorted(modules - told)]
        wrong += [f"{folder.relative_to(repository)}: {name} does not exist" for name in sorted(told - everywhere)]
    assert wrong == []


def test_architecture_names_modules_that_exist(repository: Path) -> None:
    """The way of an event leads from file to file."""
    text = (repository / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:index|semantic|server|spark_jobs)/[a-z_/]+\.py)`", text))
    assert len(named) > 40
    assert [name for name in sorted(named) if not (repository / name).is_file()] == []


def test_version_has_its_section_in_the_changelog(repository: Path, project: dict[str, Any]) -> None:
    """Whoever installs a version can read what is in it."""
    changelog = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(project['project']['version'])}\]", changelog, re.M)


def map_of(folder: Path) -> str:
    path = folder / "README.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""
