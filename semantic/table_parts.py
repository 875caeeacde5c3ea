"""A table, part by part: what the engine finds in some of its rows becomes slots while it searches the next.

Table ─batch─▶ engine.match_columns (several threads) ─▶ RowTable ─▶ TablePart (the caller's thread)
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from index.engine import ColumnEngine, RowTable
from semantic.results import TablePart
from semantic.table import Table

__all__ = ["parts_by_column"]


def parts_by_column(
    engine: ColumnEngine, table: Table, part: Callable[[RowTable, Table, int], TablePart], *, size: int, threads: int
) -> Iterator[TablePart]:
    """The matches of `table`, in parts of at most `size` events, which `part` makes of what is found from a first event
    on. Only this thread reads the table; others search the index meanwhile."""
    step = min(size, -(-len(table) // max(threads, 1))) or 1
    spans = [(start, min(start + step, len(table))) for start in range(0, len(table), step)]
    if threads <= 1:
        for span in spans:
            yield part(engine.match_columns(table.batch(*span)), table, span[0])
        return
    waiting: deque[tuple[Future[RowTable], int]] = deque()
    with ThreadPoolExecutor(threads, "kindcast-match") as pool:
        for span in spans:
            waiting.append((pool.submit(engine.match_columns, table.batch(*span)), span[0]))
            # One part is read ahead, no more: who reads holds the interpreter, and the searches that end meanwhile
            # wait for it before they can begin the next.
            if len(waiting) > threads:
                found, start = waiting.popleft()
                yield part(found.result(), table, start)
                del found
        for found, start in waiting:
            yield part(found.result(), table, start)
