"""`make release-check`: what is released, built and tried as those who install it have it.

    sdist, wheel ─▶ each in an environment of its own, without the repository: `pip install FILE`
                 ─▶ demo (a first match), the sample of a user (types, library, client) ─▶ with extras: a Spark job

Needs a registry for pip. Ends with status 1 at the first step that fails, and prints how long each took.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
SAMPLE = REPOSITORY / "tests" / "harness" / "user_sample.py"
FIRST_MATCH_SECONDS = 120.0
"""From `pip install` of the wheel to the end of the demonstration."""
EXTRAS = ("operators", "postgres", "connect", "spark")
MODULES = {"operators": "shapely", "postgres": "psycopg", "connect": "paho.mqtt", "spark": "pyspark"}
"""A module that each extra brings."""
WRONG = "from kindcast import Matcher, Vocabulary\nMatcher(Vocabulary.from_files('shop.ttl')).add(1, 2)\n"
"""mypy must refuse it: else it sees no types of ours."""


class StepFailed(Exception):
    """A step of the check; the message ends with what it printed."""


def build(target: str, folder: Path) -> Path:
    """The file that hatchling makes of the repository: an `sdist` or a `wheel`."""
    program = f"from hatchling.build import build_{target} as build; print(build({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return folder / done.stdout.splitlines()[-1]


class Installed:
    """An environment of its own in `folder`, and an empty folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "venv" / "bin"
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        venv.create(folder / "venv", with_pip=True)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KINDCAST_", "PYSPARK"))
        }
        self.environment: Mapping[str, str] = {**kept, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}

    def run(self, program: str, *arguments: str) -> str:
        """What `program` of the environment prints. Raises `StepFailed`."""
        done = subprocess.run(
            [str(self.bin / program), *arguments],
            cwd=self.work,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise StepFailed(f"{program} {' '.join(arguments)[:200]}\n{done.stdout[-2_000:]}{done.stderr[-4_000:]}")
        return done.stdout

    def install(self, what: str) -> None:
        """Install a file, with extras in brackets. The cache of pip is that of the user."""
        cache = subprocess.run(
            [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False
        )
        options = ["--cache-dir", cache.stdout.strip()] if cache.returncode == 0 else []
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options, what)

    @contextmanager
    def server(self) -> Iterator[str]:
        """The address of a server."""
        command = [str(self.bin / "kindcast"), "serve", "--port", "0", "--data", "data", "--json"]
        with subprocess.Popen(
            command, cwd=self.work, env=self.environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            try:
                yield str(json.loads(process.stdout.readline())["listening"])
            finally:
                process.terminate()


@contextmanager
def step(name: str) -> Iterator[None]:
    """Prints `name`, and the seconds that it took."""
    began = time.monotonic()
    yield
    sys.stdout.write(f"{time.monotonic() - began:7.1f} s  {name}\n")
    sys.stdout.flush()


def check_types(installed: Installed) -> None:
    """mypy, from outside, on what a user writes. Raises `StepFailed`."""
    sample, wrong = installed.work / "sample.py", installed.work / "wrong.py"
    shutil.copy(SAMPLE, sample)
    wrong.write_text(WRONG, encoding="utf-8")
    mypy = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--python-executable",
        str(installed.bin / "python"),
    ]
    outside = {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
    for file, status in ((sample, 0), (wrong, 1)):
        done = subprocess.run(
            [*mypy, file.name], cwd=installed.work, env=outside, capture_output=True, text=True, check=False
        )
        if done.returncode != status:
            raise StepFailed(f"mypy {file.name}: {done.stdout[-2_000:]}{done.stderr[-2_000:]}")


def check_spark(installed: Installed) -> None:
    """One job over an archive of two events. Raises `StepFailed`."""
    (installed.work / "events.ndjson").write_text('{"target": "laptop"}\n{"target": "sofa"}\n', encoding="utf-8")
    asked = json.dumps({"id": "s", "expression": "target isa Computer"})
    (installed.work / "asked.ndjson").write_text(asked + "\n", encoding="utf-8")
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
    told = json.loads(installed.run("kindcast", "spark", "match", *places, "--master", "local[1]", "--json"))
    if (told["events"], told["matches"]) != (2, 1):
        raise StepFailed(f"the Spark job says {told}")


def check(target: str, folder: Path) -> None:
    """All steps for one file. Raises `StepFailed`."""
    file = build(target, folder)
    installed = Installed(folder)
    began = time.monotonic()
    with step(f"{file.name}: pip install"):
        installed.install(str(file))
    with step(f"{file.name}: kindcast demo"):
        installed.run("kindcast", "demo")
    if target == "wheel" and time.monotonic() - began > FIRST_MATCH_SECONDS:
        raise StepFailed(f"a first match took {time.monotonic() - began:.0f} s")
    with step(f"{file.name}: types of a user's sample"):
        check_types(installed)
    with step(f"{file.name}: library and client"), installed.server() as address:
        installed.run("python", "sample.py", address)
    with step(f"{file.name}: extras {', '.join(EXTRAS)}"):
        installed.install(f"{file}[{','.join(EXTRAS)}]")
        installed.run("python", "-c", "import " + ", ".join(MODULES[each] for each in EXTRAS))
    with step(f"{file.name}: Spark job"):
        check_spark(installed)


def main() -> int:
    """Checks the wheel, then the sdist; or what is named."""
    for target in sys.argv[1:] or ("wheel", "sdist"):
        with tempfile.TemporaryDirectory(prefix="kindcast-release-") as folder:
            try:
                check(target, Path(folder))
            except StepFailed as error:
                sys.stderr.write(f"{target}: {error}\n")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
