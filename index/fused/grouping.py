"""Rows by cluster: what segments are laid out from, and what is left of them when they merge.

parts of a clause ──▶ places: a cluster and the ends of each slot, one for each alternative ──▶ groups
groups of several segments and deltas ──▶ one
"""

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from index.fused.columns import Columns
from index.fused.conjuncts import KEY, Parts
from index.fused.layout import ClusterKey, RowGroup

__all__ = ["Groups", "Place", "groups_of_places", "merged", "places_of"]

Groups = dict[ClusterKey, RowGroup]
Place = tuple[ClusterKey, tuple[float, ...]]
"""A cluster, and the two ends of each of its slots, one after the other."""


def places_of(parts: Parts, columns: Columns) -> tuple[Place, ...]:
    """Where a clause stands in segments; numbers its columns and keys. Costs some µs an alternative."""
    asked = bool(parts.rest)
    places = []
    for alternative in parts.alternatives:
        placed = []
        for how, column, low, high in alternative:
            number = columns.number(column, how)
            if how == KEY:
                code = float(columns.key(number, low))
                placed.append(((how, number), code, code))
            else:
                placed.append(((how, number), float(cast(float, low)), float(cast(float, high))))
        placed.sort()
        slots = tuple(slot for slot, _, _ in placed)
        ends = tuple(end for _, low_end, high_end in placed for end in (low_end, high_end))
        places.append(((parts.required, parts.forbidden, slots, asked), ends))
    return tuple(places)


def groups_of_places(stored: Iterable[tuple[int, Sequence[Place]]]) -> Groups:
    """New rows by cluster. Costs a µs a row."""
    growing: dict[ClusterKey, tuple[list[int], list[float]]] = {}
    for row, places in stored:
        for key, placed in places:
            rows, ends = growing.setdefault(key, ([], []))
            rows.append(row)
            ends += placed
    return {
        key: RowGroup(
            np.array(rows, dtype=np.int32), np.array(ends, dtype=np.float64).reshape(len(rows), len(key[2]), 2)
        )
        for key, (rows, ends) in growing.items()
    }


def merged(parts: Sequence[Groups]) -> Groups:
    """The rows of several groups in one."""
    by_key: dict[ClusterKey, list[RowGroup]] = {}
    for groups in parts:
        for key, group in groups.items():
            by_key.setdefault(key, []).append(group)
    return {
        key: found[0]
        if len(found) == 1
        else RowGroup(np.concatenate([each.rows for each in found]), np.concatenate([each.ends for each in found]))
        for key, found in by_key.items()
    }
