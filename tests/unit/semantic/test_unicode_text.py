"""The normal forms of Unicode: those of the standard library, also for texts that it takes many minutes for."""

import random
import sys
import unicodedata
from collections.abc import Callable

import pytest

from kindcast import Matcher, Vocabulary
from kindcast.semantic.unicode_text import END_OF_MARKS, RUN, SHORT, nfc, nfkc

FORMS = pytest.mark.parametrize(("form", "normal"), [("NFC", nfc), ("NFKC", nfkc)])
MARKS = [each for each in map(chr, range(END_OF_MARKS)) if unicodedata.combining(each)]
ODD = "a🎉é각ế가ｶﾞﾟﹰ\u0344\u0f73\u0f75\u0f81\u0340\u034f\u0374¨ ﱞ\U0001d15e"
"""Letters, and marks that are decomposed into several marks, into a blank and a mark, or into marks of other forms."""


@FORMS
def test_normal_forms_are_those_of_the_standard_library(form: str, normal: Callable[[str], str]) -> None:
    """Whatever marks stand in a row, of whatever classes, with letters between them or none."""
    rolls = random.Random(7)
    for _ in range(300):
        kinds = [*rolls.sample(MARKS, rolls.randint(1, 6)), *rolls.sample(ODD, rolls.randint(0, 3))]
        text = "".join(
            rolls.choice(ODD) + "".join(rolls.choices(kinds, k=rolls.choice((1, RUN - 1, RUN, 3 * RUN, 2 * SHORT))))
            for _ in range(rolls.randint(1, 4))
        )
        expected = unicodedata.normalize(form, text)  # type: ignore[arg-type]
        assert normal(text) == expected, ascii(text)


def test_characters_beyond_the_searched_ones_are_no_marks() -> None:
    """The next version of Unicode may have more: then `END_OF_MARKS` moves."""
    beyond = map(chr, range(END_OF_MARKS, sys.maxunicode + 1))
    assert not any(unicodedata.combining(unicodedata.normalize("NFKD", each)[0]) for each in beyond)


def test_event_with_very_many_marks_is_matched() -> None:
    """The standard library sorts them by insertion, which takes many minutes, and nothing else can run meanwhile."""
    matcher = Matcher(Vocabulary.from_files("shop.ttl"))
    matcher.add("text", 'note contains "Á" nocase')
    matcher.add("concept", "target isa Computer")
    text = "a" + "\u0301" * 100_000 + "\u0316" * 100_000
    name = "a" + "\u0301" * 4_000 + "\u0316" * 4_000  # names are bounded
    assert [match.subscription for match in matcher.match({"note": text, "target": text, name: 1})] == ["text"]
