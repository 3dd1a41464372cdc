"""Cut a document into sections at its headings, and sections into chunks on sentence bounds. Pure: text in, chunks out."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

# Both load where they are first used: every process imports this module, and few of them cut a document.
if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from semantic_text_splitter import TextSplitter

CHUNK_CHARACTERS = 1200  # about 300 tokens of Dutch or English
HEADING_CHARACTERS = 400  # a question as a heading may be long; what is longer is text
# The splitter's time grows with the square of the text that it is given when that has no bounds in it.
SLAB_CHARACTERS = 20_000
PATH_SEPARATOR = " › "

_FRONT_MATTER = re.compile(r"---[ \t]*\n(?>(?:[\w-]+:|[ \t#-]).*\n)+?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_COMMENT = re.compile(r"\s*<!--(?:(?!-->).)*-->\s*", re.DOTALL)
_HEADING_ATTRIBUTES = re.compile(r"\s*\{[#.][^{}]*\}\s*\Z")


@dataclass(frozen=True, slots=True)
class Section:
    """The text between two headings; `heading_path` goes from the outermost heading to the one right above the text."""

    heading_path: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one section, at most CHUNK_CHARACTERS long; `ordinal` counts from 0 through the document."""

    ordinal: int
    heading_path: tuple[str, ...]
    text: str


def chunk_document(text: str, source_name: str) -> list[Chunk]:
    """Cut a document; it is Markdown unless its file's name ends in .txt. A heading without text gives no chunk."""
    sections = split_sections(text) if is_markdown(source_name) else [Section((), text)]
    pieces = ((section.heading_path, piece) for section in sections for piece in _pieces(section.text))
    return [Chunk(ordinal, path, piece) for ordinal, (path, piece) in enumerate(pieces)]


def embedded_text(chunk: Chunk) -> str:
    """What is embedded and indexed of a chunk: its heading path on the first line, then its text."""
    path = PATH_SEPARATOR.join(chunk.heading_path)
    return f"{path}\n{chunk.text}" if path else chunk.text


def document_title(text: str, source_name: str) -> str:
    """The first heading of the first level, or else the file's name in words."""
    if is_markdown(source_name):
        title = next((heading.text for heading in _outline(text)[1] if heading.level == 1 and heading.text), None)
        if title:
            return title
    stem = PurePosixPath(source_name.replace("\\", "/")).stem
    words = " ".join(re.split(r"[\s_-]+", stem)).strip() or source_name.strip() or "?"
    return (words[:1].upper() + words[1:])[:HEADING_CHARACTERS]


def is_markdown(source_name: str) -> bool:
    """Whether `#` lines in a file of this name are headings."""
    return not source_name.lower().endswith(".txt")


def split_sections(text: str) -> list[Section]:
    """Cut Markdown at its headings.

    Front matter stays text, and so do `#` inside fenced code and headings that are too long for one. Comments that stand by
    themselves are left out: no reader of the document sees them, so no answer may quote them.
    """
    lines, headings = _outline(text)
    starts = [0, *(heading.end for heading in headings)]
    ends = [*(heading.begin for heading in headings), len(lines)]
    paths = [(), *_paths(headings)]
    bodies = ("\n".join(lines[start:end]) for start, end in zip(starts, ends, strict=True))
    return [Section(path, body) for path, body in zip(paths, bodies, strict=True) if body.strip()]


@dataclass(frozen=True, slots=True)
class _Heading:
    """A heading on the lines `begin` to `end` (exclusive); its text is plain and may be empty."""

    level: int
    text: str
    begin: int
    end: int


def _outline(text: str) -> tuple[list[str], list[_Heading]]:
    """The lines, with comments blanked, and the headings among them."""
    # Not splitlines(): the parser counts only these as ends of a line.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    front = _FRONT_MATTER.match(text)
    skipped = front.end() if front else 0
    offset = text.count("\n", 0, skipped)
    headings = []
    for token, following in itertools.pairwise([*_blocks().parse(text[skipped:]), None]):
        # A heading inside a list or a quotation is part of that list's text.
        if token is None or token.level or not token.map:
            continue
        begin, end = token.map[0] + offset, token.map[1] + offset
        if token.type == "heading_open" and following and _is_heading(following.content):
            headings.append(_Heading(int(token.tag[1:]), _plain(following.content), begin, end))
        elif token.type == "html_block" and _COMMENT.fullmatch(token.content):
            lines[begin:end] = [""] * (end - begin)
    return lines, headings


def _is_heading(content: str) -> bool:
    """A paragraph right above a `---` is a heading to Markdown; if it is long, its author meant a line between two parts."""
    return "\n" not in content and len(content) <= HEADING_CHARACTERS


@functools.cache
def _blocks() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Only the blocks are needed; references would be taken out of the text, and inline parsing is most of the time.
    return MarkdownIt("commonmark").disable(["inline", "reference"])


@functools.cache
def _inline() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")


def _plain(source: str) -> str:
    """A heading's words, without emphasis, links, code marks and a trailing `{#anchor}`."""
    source = _HEADING_ATTRIBUTES.sub("", source)
    children = _inline().parseInline(source)[0].children or []
    words = "".join("" if token.type == "html_inline" else token.content for token in children)
    return " ".join(words.split())


def _paths(headings: list[_Heading]) -> Iterator[tuple[str, ...]]:
    """For each heading the path that ends with it."""
    open_headings: list[_Heading] = []
    for heading in headings:
        while open_headings and open_headings[-1].level >= heading.level:
            open_headings.pop()
        open_headings.append(heading)
        yield tuple(above.text for above in open_headings if above.text)


@functools.cache
def _splitter() -> TextSplitter:
    from semantic_text_splitter import TextSplitter

    return TextSplitter(CHUNK_CHARACTERS)


def _pieces(text: str) -> Iterator[str]:
    for slab in _slabs(text):
        yield from (piece for piece in _splitter().chunks(slab) if piece.strip())


def _slabs(text: str) -> Iterator[str]:
    """Cut a very long section at a paragraph, a line or a space, or anywhere when it has none of them."""
    start = 0
    while len(text) - start > SLAB_CHARACTERS:
        limit = start + SLAB_CHARACTERS
        bounds = (text.rfind(bound, start + SLAB_CHARACTERS // 2, limit) for bound in ("\n\n", "\n", ". ", " "))
        # The cut comes after the bound's last character, so that a full stop stays with its sentence.
        end = next((bound + 1 for bound in bounds if bound >= 0), limit)
        yield text[start:end]
        start = end
    yield text[start:]
