"""The short end of an IRI."""

__all__ = ["local_name"]


def local_name(iri: str) -> str:
    """What follows the last `#` or `/` of `iri` (the last `:` of a URN), ends like `…/thing/` cut off first.

    >>> local_name("https://brickschema.org/schema/Brick#Temperature_Sensor")
    'Temperature_Sensor'
    >>> local_name("http://purl.obolibrary.org/obo/CL_0000084"), local_name("urn:isbn:12")
    ('CL_0000084', '12')
    """
    text = iri.rstrip("/#")
    return text[max(text.rfind("#"), text.rfind("/"), text.rfind(":")) + 1 :]
