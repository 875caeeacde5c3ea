"""The measured hierarchy is the one that the page tells of."""

from kindcast import Vocabulary
from tests.benchmarks.vocabulary_size import DEPTH, hierarchy


def test_hierarchy_has_the_shape_that_is_told() -> None:
    """So many concepts, two labels each, one in eight with two parents, the depth; the same seed gives the same."""
    vocabulary = Vocabulary.from_bytes(hierarchy(3_000), format="turtle")
    report = vocabulary.report
    assert (len(vocabulary), report["concepts"], report["max_depth"], report["roots"]) == (3_000, 3_000, DEPTH, 1)
    assert 0.10 < report["multi_parent"] / 3_000 < 0.14
    assert report["languages"] == {"de": 3_000, "en": 3_000}
    deepest = vocabulary.concept(f"http://example.org/kinds/C{DEPTH}")
    assert deepest is not None
    assert len(vocabulary.ancestors(deepest)) >= DEPTH
    assert hierarchy(100) == hierarchy(100) != hierarchy(100, seed=2)
