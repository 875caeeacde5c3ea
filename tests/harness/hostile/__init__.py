"""Documents that mean harm, made when they are needed: bombs, depths, chains, doors to the outside, junk.

`CORPUS` holds one entry a trick: its name, and a function from the canary (what must not be reached) to the document
and the syntax it is sent as.
"""

from tests.harness.hostile import compressed, doors, entities, graphs, nesting, tables, texts
from tests.harness.hostile.canary import Canary, canary
from tests.harness.hostile.corpus import CORPUS

__all__ = ["CORPUS", "Canary", "canary", "compressed", "doors", "entities", "graphs", "nesting", "tables", "texts"]
