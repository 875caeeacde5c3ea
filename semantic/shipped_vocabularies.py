"""The paths of the vocabularies that are shipped with kindcast.

The files are in the folder `ontologies` of a checkout; `semantic/shipped` is a link to it. In a wheel, `shipped` is a
folder. Only this module knows the location.
"""

from pathlib import Path

__all__ = ["file_or_shipped", "shipped", "shipped_context", "shipped_names"]

FOLDER = Path(__file__).parent / "shipped"


def shipped(name: str) -> Path:
    """Returns the file of the shipped vocabulary `name`, such as `"shop.ttl"` or just `"shop"`.

    Raises FileNotFoundError, which lists the known names, for another name.

    >>> shipped("shop").name
    'shop.ttl'
    """
    wanted = name if name.endswith(".ttl") else f"{name}.ttl"
    names = shipped_names()
    if wanted not in names:
        raise FileNotFoundError(f"no vocabulary {name!r} is shipped with kindcast; known are {', '.join(names)}")
    return FOLDER / wanted


def file_or_shipped(path: str | Path) -> Path:
    """Returns `path`. If there is no such file, and `path` is the bare name of a shipped vocabulary, returns the file
    of that vocabulary.

    >>> file_or_shipped("shop.ttl").name, file_or_shipped("elsewhere/shop.ttl").as_posix()
    ('shop.ttl', 'elsewhere/shop.ttl')
    """
    file = Path(path)
    is_bare = file.parent == Path() and not file.exists()
    return shipped(file.name) if is_bare and file.name in shipped_names() else file


def shipped_names() -> tuple[str, ...]:
    """Returns the file names of the shipped vocabularies, sorted.

    >>> shipped_names()
    ('building.ttl', 'shop.ttl')
    """
    return tuple(sorted(path.name for path in FOLDER.glob("*.ttl")))


def shipped_context(name: str) -> Path:
    """Returns the file of the shipped JSON-LD context `name`, such as `"ngsi-ld-core"`.

    >>> shipped_context("ngsi-ld-core").name
    'ngsi-ld-core.jsonld'
    """
    return FOLDER / "contexts" / f"{name}.jsonld"
