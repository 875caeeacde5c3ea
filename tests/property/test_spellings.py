"""Other spellings of labels and short forms: what they mean is what the oracle says (rule 12)."""

from hypothesis import given
from hypothesis import strategies as st

from tests.oracle import World
from tests.strategies import CLASSES, vocabulary_of

_WORDS = ("hard", "disk", "Disks", "c0", "C1", "box", "boxes", "city", "cities", "7", "a7", "ss", "é")
_JOINTS = (" ", "-", "_", "", "  ", ":")


@st.composite
def texts(draw: st.DrawFn) -> str:
    """One to four words, joined anyhow."""
    words = draw(st.lists(st.sampled_from(_WORDS), min_size=1, max_size=4))
    return "".join(word + draw(st.sampled_from(_JOINTS)) for word in words).strip()


@given(
    labels=st.lists(
        st.tuples(st.sampled_from(CLASSES), texts(), st.none(), st.sampled_from(["preferred", "synonym", "hidden"])),
        max_size=6,
        unique_by=lambda label: label[:2],
    ),
    asked=st.lists(texts(), min_size=4, max_size=12),
    spelt=st.booleans(),
)
def test_spellings_mean_what_the_oracle_says(
    labels: list[tuple[str, str, None, str]], asked: list[str], spelt: bool
) -> None:
    """With the declaration and without; labels themselves are asked too."""
    world = World(names=CLASSES, labels=tuple(each for each in labels if each[1]), spelt=spelt)
    vocabulary = vocabulary_of(world)
    for text in (*asked, *(label for _, label, _, _ in labels)):
        found = {vocabulary.iri(each) for each in vocabulary.resolve(text).candidates}
        assert found == world.meant(text), text
