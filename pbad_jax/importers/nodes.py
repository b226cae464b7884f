"""Reading untrusted XML: without entities, within limits.

Nothing here knows what a robot is. Every error is a ModelFileError that says where (file:line), what, which
rule, and what to do.
"""

import dataclasses
import difflib
import math
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from pbad_jax.errors import ModelFileError

MAX_BYTES = 64 * 2**20  # all files of one model together, and any one mesh
MAX_ELEMENTS = 100_000
MAX_FILES = 1000  # the model and its includes
MAX_DEPTH = 256
MAX_BODIES = 10_000
MAX_ATTRIBUTE = 1_000_000  # characters
MAX_NUMBER = 64  # characters
MAX_RESERVED = 20_000_000  # numbers that a model sets aside without writing them out
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_XINCLUDE = "http://www.w3.org/2001/XInclude"


@dataclasses.dataclass
class Node:
    """One XML element, and where it was written."""

    tag: str
    attrib: dict[str, str]
    file: str = "<text>"
    line: int = 0
    children: list["Node"] = dataclasses.field(default_factory=list)

    @property
    def where(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"

    def walk(self) -> Iterator["Node"]:
        """This element and all below it, in document order."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def all(self, tag: str) -> list["Node"]:
        """The children with this tag."""
        return [c for c in self.children if c.tag == tag]

    def first(self, tag: str) -> "Node | None":
        """The first child with this tag, or None."""
        return next((c for c in self.children if c.tag == tag), None)

    def number(self, name: str, default: float | None = None) -> float:
        """One attribute as a finite float.

        Raises:
            ModelFileError: absent without a default, or not one number.
        """
        text = self.attrib.get(name)
        if text is None and default is not None:
            return default
        values = [] if text is None else numbers(self, name)
        if len(values) != 1:
            raise ModelFileError(f"{self.where}: <{self.tag}> needs one number {name}=, got {cut(text or 'nothing')}")
        return values[0]

    def vector(self, name: str, size: int, default: Iterable[float]) -> list[float]:
        """One attribute as `size` finite floats; `default` where it is absent.

        Raises:
            ModelFileError: a wrong count, or not numbers.
        """
        if name not in self.attrib:
            return list(default)
        values = numbers(self, name)
        if len(values) != size:
            raise ModelFileError(
                f"{self.where}: {name}={cut(self.attrib[name])!r} of <{self.tag}> has {len(values)} numbers; "
                f"it needs {size}"
            )
        return values


@dataclasses.dataclass
class Budget:
    """What all files of one model may use up together."""

    elements: int = 0
    size: int = 0
    files: int = 0


def cut(text: str, length: int = 40) -> str:
    """The text, shortened for a message."""
    return text if len(text) <= length else text[:length] + "..."


def nearest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"`, or what is known, or nothing."""
    known = sorted({k for k in known if k and k != word})
    close = difflib.get_close_matches(word[:200], known[:5000], n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(known[:8])}{', ...' if len(known) > 8 else ''}" if known else ""


def numbers(node: Node, name: str) -> list[float]:
    """The finite decimal numbers of one attribute, separated by blanks.

    Raises:
        ModelFileError: for anything else (nan, inf, 0x10, 1,5, overflow), with the text cut to 40 characters.
    """
    text = node.attrib[name]
    values = []
    for token in text.split():
        good = len(token) <= MAX_NUMBER and _NUMBER.fullmatch(token)
        value = float(token) if good else math.nan
        if not math.isfinite(value):
            raise ModelFileError(
                f"{node.where}: {name}={cut(text)!r} of <{node.tag}>: {cut(token)!r} is not a finite decimal number. "
                "Write numbers like 1.5 or 2e-3, separated by blanks."
            )
        values.append(value)
    return values


def read_bytes(path: Path, budget: Budget) -> bytes:
    """The content of a regular file.

    Raises:
        FileNotFoundError: no such file.
        ModelFileError: a folder, a device, unreadable, or too large.
    """
    try:
        # a device or a pipe could be read for ever, so only regular files are
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            kind = "a folder" if stat.S_ISDIR(info.st_mode) else "not a regular file"
            raise ModelFileError(f"{path} is {kind}; give the path of an MJCF or URDF file")

        # the files of one model share the limits, however they include one another
        budget.files += 1
        if budget.files > MAX_FILES:
            raise ModelFileError(f"{path}: the model includes more than {MAX_FILES} files; that is the limit")
        budget.size += info.st_size
        if budget.size > MAX_BYTES:
            raise ModelFileError(f"{path}: more than {MAX_BYTES >> 20} MB of XML; that is the limit for one model")
        return path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"no model file at {cut(str(path), 200)!r}") from None
    except (OSError, ValueError) as e:
        if isinstance(e, ModelFileError):
            raise
        raise ModelFileError(f"{cut(str(path), 200)!r} cannot be read: {getattr(e, 'strerror', None) or e}") from None


def parse(data: bytes | str, file: str, budget: Budget) -> Node:
    """The root of an XML document; no DTD, no entities, nothing fetched, and within the limits above.

    Args:
        data: bytes in whatever encoding the document declares, or text.
        file: its name, for messages.
        budget: counts elements over all files of a model.

    Raises:
        ModelFileError: with file:line.
    """
    # text is already decoded, whatever encoding it declares
    encoding = None
    if isinstance(data, str):
        encoding = "utf-8"
        data = data.encode("utf-8", "replace")
    if len(data) > MAX_BYTES:
        raise ModelFileError(f"{file}: more than {MAX_BYTES >> 20} MB of XML; that is the limit for one model")
    if not data.strip():
        raise ModelFileError(f"{file}:1: the file is empty; it needs a <mujoco> or <robot> element")

    # the bare parser, which fetches nothing; document types are refused as they begin
    parser = expat.ParserCreate(encoding)
    builder = _Builder(parser, file, budget)
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.StartDoctypeDeclHandler = builder.refuse_doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as e:
        # a file of another kind shows by its first line
        start = data[:40].decode("utf-8", "replace").split("\n")[0]
        hint = "" if builder.root else f" It begins with {start!r}: is this an MJCF or URDF file?"
        raise ModelFileError(
            f"{file}:{e.lineno}: this is not well-formed XML ({expat.ErrorString(e.code)}).{hint}"
        ) from None
    except (ValueError, LookupError) as e:  # unknown encodings
        if isinstance(e, ModelFileError):
            raise
        raise ModelFileError(f"{file}:1: {e}; save it as UTF-8") from None
    assert builder.root is not None
    return builder.root


class _Builder:
    """Expat's handlers: a tree of Nodes."""

    def __init__(self, parser, file: str, budget: Budget):
        self.parser, self.file, self.budget = parser, file, budget
        self.root: Node | None = None
        self.stack: list[Node] = []

    def start(self, tag: str, attrib: dict[str, str]) -> None:
        """An element begins: a Node within the limits, hung on the element that is open."""
        # limits hold while it is being read: a document cannot grow first and be refused later
        node = Node(tag, attrib, self.file, self.parser.CurrentLineNumber)
        self.budget.elements += 1
        if self.budget.elements > MAX_ELEMENTS:
            raise ModelFileError(f"{node.where}: more than {MAX_ELEMENTS} elements; that is the limit for one model")
        if len(self.stack) >= MAX_DEPTH:
            raise ModelFileError(f"{node.where}: elements are nested more than {MAX_DEPTH} deep; that is the limit")
        for name, value in attrib.items():
            if len(value) > MAX_ATTRIBUTE:
                raise ModelFileError(
                    f"{node.where}: {cut(name)}={cut(value)!r} has {len(value)} characters; the limit "
                    f"is {MAX_ATTRIBUTE}"
                )

        # MJCF's own <include> is followed elsewhere, within given folders
        if tag.endswith(":include") or _XINCLUDE in attrib.values():
            raise ModelFileError(
                f"{node.where}: <{cut(tag)}>: XInclude is refused; put the text in place, or use MJCF's <include>"
            )

        # the tree, and the path down to what is open
        if self.stack:
            self.stack[-1].children.append(node)
        else:
            self.root = node
        self.stack.append(node)

    def end(self, tag: str) -> None:
        self.stack.pop()

    def refuse_doctype(self, name, system_id, public_id, has_internal_subset) -> None:
        raise ModelFileError(
            f"{self.file}:{self.parser.CurrentLineNumber}: <!DOCTYPE {cut(name)}>: document types and entities are "
            "refused. Remove the declaration and write entities out."
        )


def serialise(root: Node) -> tuple[str, list[Node]]:
    """XML text with one start tag a line, and the element of each line: line k of the text is nodes[k-1]."""
    parts: list[str] = []
    nodes: list[Node] = []

    def write(node: Node) -> None:
        nodes.append(node)
        attributes = "".join(f" {k}={_quoted(v)}" for k, v in node.attrib.items())
        parts.append(f"{chr(10) if len(nodes) > 1 else ''}<{node.tag}{attributes}>")
        for child in node.children:
            write(child)
        parts.append(f"</{node.tag}>")

    write(root)
    return "".join(parts), nodes


def _quoted(value: str) -> str:
    return quoteattr(" ".join(value.split("\n")) if "\n" in value else value)
