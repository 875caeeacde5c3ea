"""IRIs as text: their two ends, and the properties that hold codes. Imports no library, since a vocabulary that was
read before needs none."""

from typing import Final

__all__ = ["NOTATION", "NOTATIONS", "OBO", "local_name", "namespace"]

OBO: Final = "http://purl.obolibrary.org/obo/"

NOTATION: Final = "http://www.w3.org/2004/02/skos/core#notation"
NOTATIONS: Final = (  # properties that hold the code of a concept in a system of codes
    NOTATION,
    "http://www.geneontology.org/formats/oboInOwl#id",
    "http://purl.org/dc/elements/1.1/identifier",
    "http://purl.org/dc/terms/identifier",
    "http://schema.org/identifier",
    "https://schema.org/identifier",
)


def local_name(iri: str) -> str:
    """What follows the last `#` or `/` of `iri` (the last `:` of a URN), ends like `…/thing/` cut off first.

    >>> local_name("https://brickschema.org/schema/Brick#Temperature_Sensor")
    'Temperature_Sensor'
    >>> local_name("http://purl.obolibrary.org/obo/CL_0000084"), local_name("urn:isbn:12")
    ('CL_0000084', '12')
    """
    text = iri.rstrip("/#")
    return text[max(text.rfind("#"), text.rfind("/"), text.rfind(":")) + 1 :]


def namespace(iri: str) -> str:
    """What stands before the local name of `iri`; of an identifier of OBO the prefix belongs to it, for all of its
    ontologies share what is before that.

    >>> namespace("https://brickschema.org/schema/Brick#Temperature_Sensor")
    'https://brickschema.org/schema/Brick#'
    >>> namespace("http://purl.obolibrary.org/obo/CL_0000084")
    'http://purl.obolibrary.org/obo/CL_'
    """
    local = local_name(iri)
    if iri.startswith(OBO):
        local = local.rpartition("_")[2]
    return iri.rstrip("/#").removesuffix(local)
