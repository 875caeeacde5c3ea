"""OBO files (1.2 and 1.4) as frames: the header, then one frame a stanza, each a list of clauses with their lines.

    [Term]                                             Frame("Term", line 12, "CL:0000084", [
    id: CL:0000084                                ──▶      Clause("name", "T cell", line 14),
    name: T cell                                           Clause("is_a", "CL:0000542 ! lymphocyte", line 15)])
    is_a: CL:0000542 ! lymphocyte

Tolerant: what cannot be read costs its own line and a warning, nothing else. Frames keep values
raw; the functions below read them.
"""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology.oddities import Oddities, shown

__all__ = ["Clause", "Frame", "Value", "frames", "in_utf8", "quoted", "split", "unescaped", "words"]


# The values of OBO clauses: escapes, quoted texts, trailing modifiers and comments.
#
# CL:0000542 {source="x"} ! lymphocyte          reference, modifiers, comment
# "T-cell" EXACT COMMON_NAME [CL:dup]           quoted text, words, cross references
# a text with \n escapes \! and more            unquoted text

_ESCAPES: Final = {"n": "\n", "W": " ", "t": "\t"}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*+"|\\.|(?<!\S)!', re.DOTALL)
_MODIFIERS = re.compile(r'(?:^|\s)\{((?:\s*[\w:.-]+\s*=\s*(?:"(?:[^"\\]|\\.)*+"|[^\s",{}]*)\s*,?)*+)\s*\}$')
_MODIFIER = re.compile(r'([\w:.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*+)"|([^\s",{}]*))')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_QUOTED_TO_THE_LAST = re.compile(r'"(.*)"', re.DOTALL)


class Value(NamedTuple):
    """What a clause says, and the modifiers behind it."""

    text: str
    modifiers: dict[str, str]


class Quoted(NamedTuple):
    """A quoted text, what follows it, and whether the quotes were as they should be."""

    text: str
    rest: str
    clean: bool


def split(value: str) -> Value:
    """`value` without trailing comment and modifiers, still escaped. Linear.

    >>> split('CL:1 {cardinality="2"} ! a cell')
    Value(text='CL:1', modifiers={'cardinality': '2'})
    """
    if "!" in value:
        for piece in _PIECE.finditer(value):
            if piece[0] == "!":
                value = value[: piece.start()]
                break
    value = value.strip()
    if not value.endswith("}"):
        return Value(value, {})
    found = _MODIFIERS.search(value)
    if not found:
        return Value(value, {})
    modifiers = {each[1]: each[2] if each[2] is not None else each[3] for each in _MODIFIER.finditer(found[1])}
    return Value(value[: found.start()].rstrip(), modifiers)


def unescaped(text: str) -> str:
    r"""`text` with its escapes resolved: `\n`, `\t`, `\W` (a blank), any other character for itself.

    >>> unescaped(r"a\:b\Wc")
    'a:b c'
    """
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text) if "\\" in text else text


def quoted(text: str) -> Quoted | None:
    """The quoted text that `text` begins with; a quote within it that should be escaped is forgiven. None where there
    is no pair of quotes.

    >>> quoted('"T-cell" EXACT []')
    Quoted(text='T-cell', rest='EXACT []', clean=True)
    >>> quoted('"the "T" cell" EXACT []').text
    'the "T" cell'
    """
    found = _QUOTED.match(text)
    if found is None:
        return None
    rest = text[found.end() :]
    if not rest or rest[0] in " \t[{":
        return Quoted(unescaped(found[1]), rest.strip(), True)
    references = text.rfind("[")
    inside = text if references < found.end() else text[:references]
    longest = _QUOTED_TO_THE_LAST.match(inside)
    if longest is None:
        return None
    return Quoted(unescaped(longest[1]), text[longest.end() :].strip(), False)


def words(text: str) -> list[str]:
    """The words of a reference, unescaped: an escaped blank does not part them.

    >>> words(r"part_of CL\\:0000084")
    ['part_of', 'CL:0000084']
    """
    return [unescaped(word) for word in text.split()]


# ── frames ────────────────────────────────────────────────────────────────────────────────────────────────────────────

FrameKind = Literal["Header", "Term", "Typedef", "Instance"]

LONGEST: Final = 1 << 24  # characters of a line: texts have some thousands, but `owl-axioms` holds a whole document
CLAUSES: Final = 100_000  # of one stanza, the header included: the largest real ones have some hundreds

_KINDS: Final[dict[str, FrameKind]] = {"term": "Term", "typedef": "Typedef", "instance": "Instance"}
_STANZA = re.compile(r"\[\s*(\w+)\s*\]\s*(?:!.*)?")
_CLAUSE = re.compile(r"([^\s:\\!\"\[\]]+)\s*:(?!//)\s*(.*)", re.DOTALL)
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class Clause(NamedTuple):
    """One line: what it says, its value as written, where it stands (from 1)."""

    tag: str
    value: str
    line: int


@dataclass(slots=True)
class Frame:
    """The header (no id) or a stanza."""

    kind: FrameKind
    line: int
    id: str = ""
    clauses: list[Clause] = field(default_factory=list)


def in_utf8(data: bytes) -> bytes:
    """`data` without byte-order mark; UTF-16 (by its mark) decoded; the line ends of old Macs replaced."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            data = data.decode("utf-16").encode(errors="replace")
        except UnicodeDecodeError as error:
            raise OntologyError(f"the document begins like UTF-16 and is not: {error}", line=1) from error
    data = data.removeprefix(b"\xef\xbb\xbf")
    return data if b"\n" in data else data.replace(b"\r", b"\n")


def frames(data: bytes, odd: Oddities, *, brief: bool = False) -> Iterator[Frame]:
    """The header, then every stanza with an id; if `brief`, terms and instances without their other clauses. Linear;
    one frame is kept at a time.

    Raises OntologyError with the line when there is no stanza at all, and where a line or stanza is too long.
    """
    frame: Frame | None = Frame("Header", 1)
    stray = stanzas = 0  # the first line that is none; stanzas so far
    for line, text in _lines(data, odd):
        found = None
        if text[0] == "[":
            found = _STANZA.fullmatch(text)
        elif brief and frame is not None and frame.id and frame.kind != "Typedef":
            continue
        if found:
            if frame:
                yield from _complete(frame, odd)
            frame = _begun(found[1], line, odd)
            stanzas += frame is not None
        elif frame is not None:
            clause = _CLAUSE.fullmatch(text)
            if clause is None:
                stray = stray or line
                odd.add(line, "no clause", f"no clause of the form tag: value, left out: {shown(text)}")
            else:
                _put(frame, Clause(clause[1].lower(), clause[2], line), odd)
    if not stanzas:
        raise OntologyError("this is no OBO file: it has no [Term], [Typedef] or [Instance] stanza", line=stray or 1)
    if frame:
        yield from _complete(frame, odd)


def _lines(data: bytes, odd: Oddities) -> Iterator[tuple[int, str]]:
    """Every line that says something, continuations joined: (line from 1, text stripped)."""
    held: list[str] = []  # the pieces so far of a line that goes on
    start = length = 0
    controls = _CONTROLS.search(data) is not None  # hardly ever
    for line, raw in enumerate(io.BytesIO(data), 1):  # the hottest lines, with the loop above
        if len(raw) > 4 * LONGEST:
            raise OntologyError(f"the line has more than {LONGEST:,} characters", line=line)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = raw.decode("cp1252", errors="replace")
            odd.add(line, "not UTF-8", "not UTF-8, read as Windows-1252")
        text = text.rstrip("\r\n")
        start, length = (start, length + len(text)) if held else (line, len(text))
        if length > LONGEST:
            raise OntologyError(f"the line has more than {LONGEST:,} characters", line=start)
        if text.endswith("\\") and (len(text) - len(text.rstrip("\\"))) % 2:
            held.append(text[:-1])
            continue
        if held:
            text = "".join((*held, text))
            held = []
        if controls and _CONTROLS.search(text.encode()):
            odd.add(start, "control characters", "left out, for it holds control characters")
            continue
        text = text.strip()
        if text and text[0] != "!":
            yield start, text
    if held:
        odd.add(start, "unfinished line", "left out: the document ends within the line")


def _begun(name: str, line: int, odd: Oddities) -> Frame | None:
    kind = _KINDS.get(name.lower())
    if kind is None:
        odd.add(line, "unknown stanza", f"stanza [{shown(name)[1:-1]}] is not known and is left out")
        return None
    return Frame(kind, line)


def _put(frame: Frame, clause: Clause, odd: Oddities) -> None:
    if clause.tag == "id" and frame.kind != "Header":
        found = words(split(clause.value).text)
        if frame.id or not found:
            odd.add(clause.line, "id", f"{frame.id or 'the stanza'} has an id that is left out: {shown(clause.value)}")
        else:
            frame.id = found[0]
            if len(found) > 1:
                odd.add(clause.line, "words behind", f"left out behind {shown(found[0])}: a name needs ! before it")
        return
    if len(frame.clauses) >= CLAUSES:
        raise OntologyError(f"the stanza has more than {CLAUSES:,} clauses", line=clause.line)
    frame.clauses.append(clause)


def _complete(frame: Frame, odd: Oddities) -> Iterator[Frame]:
    if frame.id or frame.kind == "Header":
        yield frame
    else:
        odd.add(frame.line, "no id", f"this [{frame.kind}] has no id and is left out")
