"""A table, part by part: what the engine finds in some of its rows becomes slots while it searches the next.

Table ─batch─▶ engine.match_columns (both in several threads) ─▶ RowTable ─▶ TablePart (the caller's thread)
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from index.engine import ColumnEngine, Engine, RowTable
from semantic.results import TablePart
from semantic.table import Table

__all__ = ["parts_of"]


def parts_of(
    engine: Engine, table: Table, part: Callable[[RowTable, Table, int], TablePart], *, size: int, threads: int
) -> Iterator[TablePart]:
    """The matches of `table`, in parts of at most `size` events, which `part` makes in this thread of what is found
    from a first event on. With several threads each reads some rows, in turn, and then searches the index for them
    while another reads."""
    step = min(size, -(-len(table) // max(threads, 1))) or 1
    spans = [(start, min(start + step, len(table))) for start in range(0, len(table), step)]

    def search(span: tuple[int, int]) -> RowTable:
        batch = table.batch(*span)
        return engine.match_columns(batch) if isinstance(engine, ColumnEngine) else engine.match_batch(batch.lowered())

    if threads <= 1 or not isinstance(engine, ColumnEngine):
        for span in spans:
            yield part(search(span), table, span[0])
        return
    waiting: deque[tuple[Future[RowTable], int]] = deque()
    with ThreadPoolExecutor(threads, "kindcast-match") as pool:
        for span in spans:
            waiting.append((pool.submit(search, span), span[0]))
            if len(waiting) > 2 * threads:  # results wait for this thread: not too many
                found, start = waiting.popleft()
                yield part(found.result(), table, start)
                del found
        for found, start in waiting:
            yield part(found.result(), table, start)
