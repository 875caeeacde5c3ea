"""Operators that come with the project: places, texts, tables, calendar windows, pictures."""

from collections.abc import Iterable, Mapping, Sequence

from kindcast.semantic.operators.builtin.geography import Regions, geography
from kindcast.semantic.operators.builtin.pictures import pictures
from kindcast.semantic.operators.builtin.tables import Table, tables
from kindcast.semantic.operators.builtin.texts import texts
from kindcast.semantic.operators.builtin.windows import windows
from kindcast.semantic.operators.declaration import Operator

__all__ = ["Regions", "Table", "builtin_operators"]


def builtin_operators(
    *,
    regions: Regions | None = None,
    tables_known: Iterable[Table] = (),
    windows_known: Mapping[str, Sequence[str]] | None = None,
) -> list[Operator]:
    """All built-in operators, over this data. Raises `InvalidDeclaration` for windows that cannot be read.

    >>> " ".join(each.name for each in builtin_operators())
    'inRegion distanceFrom anyMatches similar inTable lookUp inWindow brightness colourShare spots'
    """
    return [*geography(regions), *texts(), *tables(tables_known), *windows(windows_known), *pictures()]
