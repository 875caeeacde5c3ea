"""Junk for the readers of lines and tables: OBO and SSSOM."""

import random

from tests.harness.hostile.canary import Canary
from tests.harness.hostile.corpus import Document, hostile, many, plain


@hostile
def obo_of_junk(canary: Canary) -> Document:
    rng = random.Random(11)
    tags = ("id", "is_a", "relationship", "synonym", "xref", "def", "intersection_of", "property_value", "alt_id", "")
    marks = '[]{}"\\!,:;\t ü\0'
    lines = (
        f"{rng.choice(tags)}: {''.join(rng.choice(marks + 'abc') for _ in range(60))}"
        if rng.random() < 0.8
        else rng.choice(("[Term]", "[Typedef]", "[", "]", "", "!"))
        for _ in range(many(100_000))
    )
    return plain("format-version: 1.2\n\n[Term]\nid: E:1\n" + "\n".join(lines), "obo")


@hostile
def obo_line_of_50_megabytes(canary: Canary) -> Document:
    return plain('format-version: 1.2\n\n[Term]\nid: E:1\nsynonym: "' + "\\\\" * 25_000_000, "obo")


@hostile
def obo_circle_of_is_a(canary: Canary) -> Document:
    terms = "".join(
        f"[Term]\nid: E:{number}\nis_a: E:{(number + 1) % many(50_000)}\n\n" for number in range(many(50_000))
    )
    return plain("format-version: 1.2\n\n" + terms, "obo")


@hostile
def obo_lines_that_go_on(canary: Canary) -> Document:
    return plain("format-version: 1.2\n\n[Term]\nid: E:1\nname: a" + "\\\n" * many(1_500_000), "obo")


@hostile
def sssom_of_junk(canary: Canary) -> Document:
    header = "subject_id\tpredicate_id\tobject_id\tmapping_justification\n"
    rows = "".join(f"E:{number}\t\"\t'\0\t\t\t\t{number}\n" for number in range(50_000))
    return plain("#curie_map:\n#  E: http://e/\n" + header + rows, "sssom")


@hostile
def sssom_with_aliases_in_its_head(canary: Canary) -> Document:
    aliases = "".join(f"#a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 10))
    return plain(f"#a0: &a0 lol\n{aliases}#curie_map: *a9\nsubject_id\tpredicate_id\tobject_id\n", "sssom")


@hostile
def sssom_head_that_makes_objects(canary: Canary) -> Document:
    head = f'#curie_map: !!python/object/apply:os.system ["cat {canary.path}"]\n#import: {canary.http}\n'
    return plain(head + "subject_id\tpredicate_id\tobject_id\n", "sssom")


@hostile
def sssom_of_a_hundred_thousand_columns(canary: Canary) -> Document:
    return plain("subject_id\tpredicate_id\tobject_id" + "\tx" * 300_000 + "\n" + ("\ta" * 300_000 + "\n") * 5, "sssom")
