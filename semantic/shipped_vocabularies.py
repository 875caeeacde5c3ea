"""Where the vocabularies lie that come with kindcast.

In a checkout they are the folder `ontologies` beside the packages; in an installed wheel the build put them inside this
package, as `semantic/shipped`. Everybody asks here, so nobody else needs to know.
"""

from pathlib import Path

__all__ = ["shipped", "shipped_names"]

PACKAGE = Path(__file__).resolve().parent
FOLDERS = (PACKAGE / "shipped", PACKAGE.parent / "ontologies")  # the wheel's place first: a wheel has no second one


def shipped(name: str) -> Path:
    """The file of the shipped vocabulary `name`, such as `"shop.ttl"` or just `"shop"`.

    Raises FileNotFoundError, with the names that there are, for any other.

    >>> shipped("shop").name
    'shop.ttl'
    """
    wanted = name if name.endswith(".ttl") else f"{name}.ttl"
    names = shipped_names()
    if wanted not in names:
        raise FileNotFoundError(f"no vocabulary {name!r} is shipped with kindcast; there are {', '.join(names)}")
    return _folder() / wanted


def shipped_names() -> tuple[str, ...]:
    """The file names of the shipped vocabularies, sorted.

    >>> shipped_names()
    ('building.ttl', 'shop.ttl')
    """
    return tuple(sorted(path.name for path in _folder().glob("*.ttl")))


def _folder() -> Path:
    return next((folder for folder in FOLDERS if folder.is_dir()), FOLDERS[0])
