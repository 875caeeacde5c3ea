"""How jobs write Parquet: texts that repeat as dictionaries, and only those statistics that help who reads.

The ids of subscriptions are a dictionary that is written once for each row group, so row groups are large. The least
and the largest of them say nothing, and finding them would take as long as all the rest of writing.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["parquet_writer", "weight"]

DICTIONARY_BYTES = 64 << 20
"""Of the ids in one row group; beyond, Parquet would write each id out."""


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of rows of this schema."""
    told = [field.name for field in schema if not pa.types.is_dictionary(field.type) and field.type.num_fields == 0]
    return pq.ParquetWriter(
        path, schema, compression="zstd", dictionary_pagesize_limit=DICTIONARY_BYTES, write_statistics=told or False
    )


def weight(table: pa.Table) -> int:
    """The bytes of a table, without those of dictionaries, which many tables share."""
    return sum(_bytes(chunk) for column in table.columns for chunk in column.chunks)


def _bytes(array: Any) -> int:
    if pa.types.is_dictionary(array.type):
        return int(array.indices.nbytes)
    if pa.types.is_list(array.type):
        return 4 * len(array) + _bytes(array.flatten())
    return int(array.nbytes)
