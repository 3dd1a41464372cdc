"""Reads the files of infra/: by tree-sitter, since Microsoft's compiler is not at hand. Only what the tests ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser

INFRA = Path(__file__).resolve().parents[2] / "infra"
MAIN = INFRA / "main.bicep"
FILES = sorted(INFRA.rglob("*.bicep"))

DECLARATIONS = {
    "parameter_declaration": "param", "variable_declaration": "var", "resource_declaration": "resource",
    "module_declaration": "module", "output_declaration": "output",
}  # fmt: skip
_PARSER = Parser(Language(tree_sitter_bicep.language()))


@dataclass(frozen=True)
class Declaration:
    """A param, var, resource, module or output. `type` of a resource is `Provider/type@version`, of a module its path."""

    kind: str
    name: str
    node: Node
    decorators: tuple[str, ...]

    @property
    def type(self) -> str:
        """The text between the first quotes after the name, for a resource or a module."""
        return _said(next(child for child in self.node.children if child.type == "string"))

    @property
    def is_existing(self) -> bool:
        """Whether a resource is only referred to."""
        return any(child.type == "existing" for child in self.node.children)

    @property
    def value(self) -> str | None:
        """The text after the equals sign, a plain string without its quotes; None without one."""
        nodes = self.node.children
        equals = next((index for index, child in enumerate(nodes) if child.type == "="), None)
        return None if equals is None else text(nodes[equals + 1])

    def at(self, *path: str) -> str:
        """The text of a property, by the names that lead to it through the first object; empty when it is not there."""
        node = self._find(path)
        return text(node) if node else ""

    def names(self, *path: str) -> list[str]:
        """The names of that property's own properties; without a path, of the first object."""
        node = self._find(path)
        return [name for name, _ in _properties(node)]

    def _find(self, path: tuple[str, ...]) -> Node | None:
        node = next((found for found in walk(self.node) if found.type == "object"), None)
        for name in path:
            node = dict(_properties(node)).get(name)
        return node


@dataclass(frozen=True)
class BicepFile:
    """One file, parsed."""

    path: Path

    @cached_property
    def source(self) -> str:
        """Its text."""
        return self.path.read_text("utf-8")

    @cached_property
    def root(self) -> Node:
        """The root of its tree."""
        return _PARSER.parse(self.source.encode()).root_node

    @cached_property
    def declarations(self) -> list[Declaration]:
        """All of them, in the order of the file."""
        found, decorators = [], tuple[str, ...]()
        for node in self.root.children:
            if node.type == "decorators":
                decorators = tuple(text(child) for child in node.children)
            elif kind := DECLARATIONS.get(node.type):
                name = next(child for child in node.children if child.type == "identifier")
                found.append(Declaration(kind, text(name), node, decorators))
                decorators = ()
        return found

    def of(self, kind: str) -> dict[str, Declaration]:
        """Those of one kind, by name."""
        return {one.name: one for one in self.declarations if one.kind == kind}

    def broken(self) -> list[str]:
        """Where the parser did not understand, as line and text."""
        wrong = [node for node in walk(self.root) if node.is_error or node.is_missing]
        return [f"{self.path.name}:{node.start_point.row + 1}: {text(node)[:60]}" for node in wrong]

    def used(self) -> set[str]:
        """Names that are read somewhere: not those of properties, nor where they are declared."""
        found = set()
        for node in walk(self.root):
            if node.type not in ("identifier", "compatible_identifier"):
                continue
            parent = node.parent
            declares = parent is not None and parent.type in DECLARATIONS and _is_first(parent, node)
            is_key = parent is not None and parent.type == "object_property" and parent.children[0] == node
            if not declares and not is_key:
                found.add(text(node))
        return found


def read(path: Path) -> BicepFile:
    """One file."""
    return BicepFile(path)


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    yield node
    for child in node.children:
        yield from walk(child)


def text(node: Node) -> str:
    """What stands there, without quotes around a plain string."""
    said = (node.text or b"").decode()
    plain = node.type == "string" and not any(child.type == "interpolation" for child in node.children)
    return _said(node) if plain else said


def _said(node: Node) -> str:
    return (node.text or b"").decode().strip("'")


def _properties(node: Node | None) -> Iterator[tuple[str, Node]]:
    for item in node.children if node else ():
        if item.type == "object_property":
            yield text(item.children[0]), item.children[-1]


def _is_first(parent: Node, node: Node) -> bool:
    return next(child for child in parent.children if child.type == "identifier") == node
