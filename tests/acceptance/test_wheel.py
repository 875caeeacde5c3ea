"""The wheel, and the checkout, in an environment of its own, inside a project with its own `server/`, `index.py` and
`semantic.py`.

Library, client, command line, child processes and a Spark job run there, and our packages are importable as `kindcast`
alone.
"""

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from kindcast.semantic.operators.declaration import load_plugins

LIBRARY = """
import json
from importlib import import_module
import kindcast
from kindcast import AsyncClient, Client, Event, Matcher, Vocabulary, operator
from kindcast.semantic.ontology.isolation import run_isolated
import bare, plugin
assert bare.NAMES == []
assert json.loads(run_isolated("bare:names", b"")) == []
for name in ("index.fused", "semantic.matcher", "server.app", "spark_jobs"):
    try:
        import_module(name)
    except ModuleNotFoundError:
        continue
    raise AssertionError(f"{name} is importable")
matcher = Matcher(Vocabulary.from_files("shop.ttl"), operators=[plugin.here, plugin.apart])
matcher.add("s", "target isa Computer and here() and apart()")
print(json.dumps([kindcast.__file__, [match.subscription for match in matcher.match({"target": "laptop"})]]))
"""
BARE = '''"""The bare names under which the packages of kindcast can be imported here."""
import importlib, json
NAMES = []
for name in ("index", "semantic", "server", "spark_jobs"):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    if getattr(module, "OURS", True):  # those of the project say that they are not
        NAMES.append(name)

def names(payload, progress):
    return json.dumps(NAMES).encode()
'''
PLUGIN = """
import bare
from kindcast import operator

@operator("here")
def here(event):
    return bare.NAMES == []

@operator("apart", isolated=True, timeout=60)
def apart(event):
    return bare.NAMES == []

def everything():
    return [here, apart]
"""
SHOP = """@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix : <http://example.org/> .
:Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop" .
"""


@dataclass(frozen=True)
class Run:
    """Runs commands of an environment in the project. Kernels run as Python: compiling them again would take a minute,
    and `test_kernel_compilation` does it."""

    python: Path
    project: Path
    editable: bool

    def __call__(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        return subprocess.run(
            [str(self.python.with_name(program)), *arguments],
            cwd=self.project,
            env=environment | {"PYTHONPATH": str(self.project), "NUMBA_DISABLE_JIT": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody's project."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "server").mkdir()
    for name in ("server/__init__.py", "index.py", "semantic.py"):
        (folder / name).write_text("OURS = False\n", encoding="utf-8")
    (folder / "bare.py").write_text(BARE, encoding="utf-8")
    (folder / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    info = folder / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[kindcast.operators]\nall = plugin:everything\n", encoding="utf-8")
    (folder / "shop.ttl").write_text(SHOP, encoding="utf-8")
    (folder / "events.ndjson").write_text('{"target": "laptop"}\n{"target": "sofa"}\n', encoding="utf-8")
    line = json.dumps({"id": "s", "expression": "target isa Computer and here() and apart()"})
    (folder / "asked.ndjson").write_text(line + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=["wheel", "editable"])
def run(
    request: pytest.FixtureRequest, repository: Path, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """Runs a command of a new environment in the project: the wheel or the checkout, and the libraries of this one."""
    place = tmp_path_factory.mktemp("environment")
    build = f"from hatchling.build import build_{request.param} as build; build({str(place)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=repository, check=True, capture_output=True)
    (wheel,) = place.glob("*.whl")
    venv.create(place / "venv", with_pip=False, symlinks=True)
    (site,) = (place / "venv" / "lib").glob("python*/site-packages")
    python = place / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    # The libraries come last, and an editable installation among them stays asleep: its .pth is not read from here.
    libraries = [each for each in sys.path if each.endswith(("site-packages", "dist-packages"))]
    (site / "libraries.pth").write_text("\n".join(libraries) + "\n", encoding="utf-8")

    return Run(python, project, editable=request.param == "editable")


@pytest.mark.slow
def test_library_and_its_children_leave_the_names_of_the_project_alone(run: Run, repository: Path) -> None:
    """The process that reads documents and that of an operator as well."""
    done = run("python", "-W", "ignore", "-c", LIBRARY)
    assert done.returncode == 0, done.stderr[-3_000:]
    file, found = json.loads(done.stdout)
    assert found == ["s"]
    assert Path(file).is_relative_to(repository) == run.editable


@pytest.mark.slow
def test_command_line_runs_in_the_project(run: Run) -> None:
    """Offline, with the ontology read in a child; and the demo, with a server of its own."""
    explained = run("kindcast", "ontology", "check", "shop.ttl")
    assert explained.returncode == 0, explained.stderr[-3_000:]
    demo = run("kindcast", "demo", "--pace", "0")
    assert demo.returncode == 0, demo.stderr[-3_000:]


@pytest.mark.slow
def test_spark_job_runs_in_the_project(run: Run, project: Path) -> None:
    """Workers open the snapshot by `kindcast` alone, and ask operators that look for other names."""
    places = [
        "--archive",
        "events.ndjson",
        "--output",
        "out",
        "--ontology",
        "shop.ttl",
        "--subscriptions",
        "asked.ndjson",
    ]
    done = run("kindcast", "spark", "match", *places, "--master", "local[1]", "--json")
    assert done.returncode == 0, done.stderr[-3_000:]
    told = json.loads(done.stdout)
    assert (told["events"], told["matches"]) == (2, 1)


def test_plugin_that_imports_a_bare_name_is_told_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written for a version whose packages had no roof."""
    (tmp_path / "written_before.py").write_text("from semantic import operator\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "semantic", None)  # as after an installation, where there is none
    point = EntryPoint("before", "written_before:all", "kindcast.operators")
    (broken,) = load_plugins([point]).broken
    assert "import kindcast.semantic instead" in broken.reason


@pytest.mark.slow
def test_checkout_that_is_installed_brings_one_name(repository: Path, tmp_path: Path) -> None:
    """Outside the checkout the editable installation gives `kindcast`, and nothing that lies beside it."""
    names = ("index", "semantic", "server", "spark_jobs", "tests")
    code = f"import kindcast, importlib.util as u; print([name for name in {names!r} if u.find_spec(name)])"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    if "No module named" in done.stderr:
        pytest.skip("the checkout is not installed here")
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.slow
def test_sdist_has_what_the_wheel_has(repository: Path, tmp_path: Path) -> None:
    """The packages are links beside `kindcast/__init__.py`: each is followed, whatever its name."""
    for target in ("sdist", "wheel"):
        build = f"from hatchling.build import build_{target} as build; build({str(tmp_path)!r})"
        subprocess.run([sys.executable, "-c", build], cwd=repository, check=True, capture_output=True)
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive_of_wheel:
        installed = {name for name in archive_of_wheel.namelist() if name.startswith("kindcast/")}
    assert "kindcast/index/jit.py" in installed
    assert installed - packed == set()


@pytest.mark.slow
def test_public_face_is_typed_for_those_outside(run: Run, repository: Path) -> None:
    """mypy, from outside and strict, accepts what a user writes, and refuses what is wrong."""
    if run.editable:
        pytest.skip("mypy does not follow the hook of an editable installation")
    sample = (repository / "tests" / "harness" / "user_sample.py").read_text(encoding="utf-8")
    wrong = "from kindcast import Matcher, Vocabulary\nMatcher(Vocabulary.from_files('shop.ttl')).add(1, 2)\n"
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable", str(run.python)]
    environment = {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
    for text, status in ((sample, 0), (wrong, 1)):
        (run.project / "typed.py").write_text(text, encoding="utf-8")
        done = subprocess.run(
            [*mypy, "typed.py"], cwd=run.project, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
