"""The subscription language: text and JSON tree to expressions, and back. Knows no vocabulary."""

from collections.abc import Mapping
from typing import Any

from kindcast.semantic.language.literals import attribute_text, is_keyword, nearest_keyword, quoted_string
from kindcast.semantic.language.text import parse_text, plain_words, to_text
from kindcast.semantic.language.tree import parse_tree, to_tree
from kindcast.semantic.model import Expression

__all__ = [
    "attribute_text",
    "is_keyword",
    "nearest_keyword",
    "parse",
    "parse_text",
    "parse_tree",
    "plain_words",
    "quoted_string",
    "to_text",
    "to_tree",
]


def parse(expression: str | Mapping[str, Any]) -> Expression:
    """The expression of a text or a tree. Raises `InvalidSubscription`, each problem with its place."""
    return parse_text(expression) if isinstance(expression, str) else parse_tree(expression)
