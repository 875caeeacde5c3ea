"""`python -m tests.benchmarks.harness.child EXPERIMENT ARGUMENTS`: one point, as a line of JSON."""

import json
import resource
import sys

from tests.benchmarks.harness.catalogue import experiment
from tests.harness.server_process import fresh_servers

__all__: list[str] = []


def main() -> None:
    """Arguments are a JSON object. The highest memory of the process comes with the answer."""
    name, arguments = sys.argv[1:]
    with fresh_servers():
        found = dict(experiment(name).measure(**json.loads(arguments)))
    found.setdefault("peak_mib", round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
