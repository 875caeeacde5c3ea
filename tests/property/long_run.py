"""A long look at the histories of engines, in slices, for as long as there is time.

    python -m tests.property.long_run 100000        so many examples, in slices with a seed each; says how far it is
    python -m tests.property.long_run 100000 37     the same from seed 37 on

A slice that fails ends the run, with the example that failed.
"""

import sys
import time

from hypothesis import HealthCheck, Phase, seed, settings

from tests.property.test_engine_histories import test_engine_after_a_short_history_finds_what_naive_finds

SLICE = 1_000
"""Examples of one seed: what Hypothesis remembers of them stays small."""
FROM = settings(
    max_examples=SLICE,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


def run(examples: int, first: int) -> None:
    """Slices from seed `first` on until there were so many examples."""
    began = time.monotonic()
    history = FROM(test_engine_after_a_short_history_finds_what_naive_finds)
    for number in range(-(-examples // SLICE)):
        seed(first + number)(history)()
        done, seconds = SLICE * (number + 1), time.monotonic() - began
        sys.stdout.write(f"{done:,} examples, seeds {first} to {first + number}, {seconds:,.0f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
