"""Literals that a reasoner reads: it refuses a whole document for one date that is none, which is not our way.

Forms are those of XML Schema part 2, white space around them left out; where that allows more than a pattern here
(years before Christ, IRIs of other scripts), the literal counts as one that is not read.
"""

import re
from datetime import datetime
from typing import Final

from rdflib.namespace import RDF, XSD

__all__ = ["lexical_form"]

_PATTERNS: Final = {
    **dict.fromkeys(
        (
            *(XSD.integer, XSD.long, XSD.int, XSD.short, XSD.byte, XSD.nonNegativeInteger, XSD.positiveInteger),
            *(XSD.nonPositiveInteger, XSD.negativeInteger, XSD.unsignedLong, XSD.unsignedInt, XSD.unsignedShort),
            XSD.unsignedByte,
        ),
        r"[+-]?[0-9]+",
    ),
    XSD.decimal: r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)",
    **dict.fromkeys((XSD.double, XSD.float), r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?INF|NaN"),
    XSD.boolean: r"true|false|1|0",
    XSD.dateTime: r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})?",
    XSD.dateTimeStamp: r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})",
    XSD.anyURI: r"[A-Za-z0-9:/?#@!$&'()*+,;=._~-]*",
    XSD.hexBinary: r"([0-9A-Fa-f]{2})*",
    XSD.base64Binary: r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
    **dict.fromkeys((XSD.Name, XSD.NCName, XSD.NMTOKEN), r"[A-Za-z_][A-Za-z0-9_.-]*"),
    XSD.language: r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*",
    RDF.XMLLiteral: r"(?!)",
}
_FORMS: Final = {str(datatype): re.compile(pattern) for datatype, pattern in _PATTERNS.items()}
_DATES: Final = frozenset({str(XSD.dateTime), str(XSD.dateTimeStamp)})


def lexical_form(text: str, datatype: str) -> str | None:
    """`text` as a reasoner reads it under `datatype`; None where it does not. Datatypes without a pattern take all.

    >>> integer = str(XSD.integer)
    >>> lexical_form(" 5 ", integer), lexical_form("5.5", integer), lexical_form(" 5 ", str(XSD.string))
    ('5', None, ' 5 ')
    """
    form = _FORMS.get(datatype)
    if form is None:
        return text
    text = text.strip(" \t\r\n")
    if form.fullmatch(text) is None:
        return None
    return text if datatype not in _DATES or _is_in_the_calendar(text) else None


def _is_in_the_calendar(text: str) -> bool:
    try:
        datetime.fromisoformat(re.sub(r"\.[0-9]+", "", text))
    except ValueError:
        return False
    return True
