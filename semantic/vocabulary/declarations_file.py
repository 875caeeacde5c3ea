"""A file of declarations: a JSON object of declarations by kind and name, as `Vocabulary` takes them."""

from typing import Any

from kindcast.semantic.errors import InvalidDeclaration, SemanticError
from kindcast.semantic.vocabulary.declarations import Declarations
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["arguments_of"]

MEMBERS = frozenset(Declarations().arguments())


def arguments_of(found: Any) -> dict[str, Any]:
    """Returns the keyword arguments of `Vocabulary(ontologies, **arguments)` in the value of a file. Only the form is
    checked: `Vocabulary` checks the rest, which may need the ontologies. Raises `InvalidDeclaration`."""
    if not isinstance(found, dict) or found.keys() - MEMBERS:
        raise InvalidDeclaration(f"declarations must be an object of {', '.join(sorted(MEMBERS))}")
    for name, declared in found.items():
        try:
            Vocabulary((), **{name: declared})
        except SemanticError:
            pass  # it may need the ontologies
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidDeclaration(
                f"`{name}` must be an object with a declaration for each name, as the server returns it"
            ) from error
    return found
