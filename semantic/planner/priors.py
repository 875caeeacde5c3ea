"""What an archive taught of operators, as the job `learn` writes it: where a process begins that has asked nobody yet.

priors.json    {"operators": [a record of `Experience.as_records`, …], and what else was learned}
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["MOST_BYTES", "read_priors"]

MOST_BYTES = 256 << 20
"""Of a file: some hundred bytes for each of 200,000 predicates, and room for the rest."""


def read_priors(path: Path) -> list[dict[str, Any]]:
    """The records of operators in a file; for `Experience.from_records` and `Experience.begin_with`. Raises ValueError
    with what is wrong with it, `OSError`."""
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} has more than {MOST_BYTES:,} bytes")
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    records = found.get("operators") if isinstance(found, Mapping) else found
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        raise ValueError(f"{path} holds no list of records under 'operators'")
    return records
