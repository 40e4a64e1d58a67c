"""SKOS vocabularies as labels: one a skos:Concept, read with rdflib, written as Turtle without it.

Nothing outside the file is ever fetched: JSON-LD with a remote context and XML with entities that
point elsewhere are refused before rdflib sees them."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from longtail.data.labels import Label, Labels
from longtail.data.lines import chunks, uncompressed
from longtail.data.output import open_output
from longtail.data.problems import Problems, quoted
from longtail.errors import DataError, MissingExtra

__all__ = ["SKOS_SUFFIXES", "read_skos", "skos_broader", "write_skos"]

SKOS_SUFFIXES = {
    ".rdf": "xml",
    ".xml": "xml",
    ".owl": "xml",
    ".ttl": "turtle",
    ".n3": "turtle",
    ".nt": "nt",
}
SKOS_SUFFIXES |= {".jsonld": "json-ld"}
_SKOS = "http://www.w3.org/2004/02/skos/core#"
_BASE = "http://relative.invalid/"  # stands before relative IRIs while rdflib has them
_MINTED = "urn:longtail:"  # stands before an id that is no IRI
_IRI = re.compile(r'[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|\\^`]+')
# a parameter or external entity, or one whose value refers to another; &#38; would do so when it is
# used
_REFERENCE = rb"&(?!#(?!0*38;|x0*26;)\w+;)"
_POINTING_ENTITY = re.compile(
    rb"<!ENTITY\s+(?:%|\S+\s+(?:SYSTEM|PUBLIC)\s|\S+\s+(?:\"[^\"]*"
    + _REFERENCE
    + rb"|'[^']*"
    + _REFERENCE
    + rb"))"
)
log = logging.getLogger("longtail")


def read_skos(path: Path | str, language: str = "en") -> Labels:
    """Read the concepts that are not deprecated, in the order of their URIs, which are the ids.

    The name is the prefLabel in ``language``, else one without a language, else the first by
    language; aliases are the altLabels and the other prefLabels; the text is the definition, else
    the scopeNote."""
    problems = Problems(path)
    graph = _graph(path, problems)
    concepts = _concepts(graph)
    if not concepts:
        problems.fatal("no skos:Concept with a URI", "at least one that is not deprecated")
    try:
        return Labels.of(_label(graph, concept, language.lower()) for concept in concepts)
    except UnicodeEncodeError:
        problems.fatal("half of a surrogate pair (\\ud800 to \\udfff alone)", "whole characters")
    except ValueError:  # <a> and <urn:longtail:a>
        problems.fatal("two concepts that are one label", "a URI for each that is not relative")


def skos_broader(path: Path | str) -> list[tuple[str, str]]:
    """Return the sorted pairs (label id, id of a broader label) that skos:broader and skos:narrower
    say.
    """
    graph = _graph(path, Problems(path))
    up = graph.subject_objects(_term("broader"))
    down = ((narrow, broad) for broad, narrow in graph.subject_objects(_term("narrower")))
    ids = {concept: _id(concept) for concept in _concepts(graph)}
    return sorted(
        {(ids[a], ids[b]) for pairs in (up, down) for a, b in pairs if a in ids and b in ids}
    )


def _rdflib() -> Any:
    try:
        import rdflib
    except ImportError:
        raise MissingExtra("SKOS", "skos") from None
    return rdflib


def _term(name: str) -> Any:
    return _rdflib().URIRef(_SKOS + name)


def _graph(path: Path | str, problems: Problems) -> Any:
    """Parse a file; any exception of rdflib, which raises many kinds, is a problem of the file."""
    with _quiet():
        graph = _rdflib().Graph()
    data = b"".join(chunks(path, problems)).removeprefix(b"\xef\xbb\xbf")
    syntax = _syntax(path, data)
    # the look for entities needs ASCII
    if b"\0" in data[:4] or data.startswith((b"\xff\xfe", b"\xfe\xff")):
        problems.fatal("UTF-16 text", "UTF-8; convert it with: iconv -f UTF-16 -t UTF-8", 1)
    if syntax == "xml" and (entity := _POINTING_ENTITY.search(data)):
        problems.fatal(f"the XML entity {quoted(entity[0])}", "entities that hold plain text")
    try:
        if syntax == "json-ld":
            for context in _remote_contexts(json.loads(data.decode())):
                problems.fatal(
                    f"the remote context {quoted(context)}", "a context written out in the file"
                )
        with _quiet():
            graph.parse(io.BytesIO(data), format=syntax, publicID=_BASE)
    except DataError:
        raise
    except Exception as error:
        problems.fatal(
            f"malformed {syntax} ({_message(error)})", "RDF with skos:Concepts", _line_of(error)
        )
    return graph


def _syntax(path: Path | str, data: bytes) -> str:
    """Recognise RDF/XML, Turtle, N-Triples and JSON-LD by the name, else by the first bytes."""
    suffix = uncompressed(path).suffix.lower()
    if suffix in SKOS_SUFFIXES:
        return SKOS_SUFFIXES[suffix]
    start = data.lstrip()[:4]
    if start[:1] in (b"{", b"["):
        return "json-ld"
    if start in (b"<?xm", b"<rdf", b"<!DO", b"<!--"):
        return "xml"
    return "turtle"


def _remote_contexts(value: Any) -> Iterator[str]:
    """Yield what a JSON-LD processor would fetch: contexts given by address, and @import."""
    waiting = [(value, False)]
    while waiting:
        value, in_context = waiting.pop()
        if isinstance(value, dict):
            waiting += ((inner, key in ("@context", "@import")) for key, inner in value.items())
        elif isinstance(value, list):
            waiting += ((inner, in_context) for inner in value)
        elif isinstance(value, str) and in_context:
            yield value


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep rdflib's warnings about odd literals and its own deprecations from the user."""
    logger = logging.getLogger("rdflib")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _message(error: Exception) -> str:
    # str() of XML's errors would name the file «<unknown>»
    message = error.getMessage() if hasattr(error, "getMessage") else str(error)
    message = " ".join(message.split()) or type(error).__name__
    syntax = re.search(r"Bad syntax \((.*?)\) at", message)
    if syntax:
        return syntax[1]
    return quoted(message, 120)


def _line_of(error: Exception) -> int:
    """Return the line that the Turtle, XML or JSON parser says; 0 where none does."""
    if hasattr(error, "lines"):
        return int(error.lines) + 1
    if hasattr(error, "getLineNumber"):
        return int(error.getLineNumber() or 0)
    return getattr(error, "lineno", 0) or 0


def _concepts(graph: Any) -> list[Any]:
    rdflib = _rdflib()
    deprecated = {
        s
        for s, o in graph.subject_objects(rdflib.OWL.deprecated)
        if str(o).lower() in ("true", "1")
    }
    concepts = set(graph.subjects(rdflib.RDF.type, _term("Concept"))) - deprecated
    return sorted(concept for concept in concepts if isinstance(concept, rdflib.URIRef))


def _label(graph: Any, concept: Any, language: str) -> Label:
    literal = _rdflib().Literal

    def values(*names: str) -> list[str]:
        """Return the literals of the first property that has any, the best language first."""
        for name in names:
            literals = [o for o in graph.objects(concept, _term(name)) if isinstance(o, literal)]
            literals.sort(key=lambda o: (*_rank(o.language, language), str(o)))
            if literals:
                return list(map(str, literals))
        return []

    preferred = values("prefLabel") or sorted(
        map(str, graph.objects(concept, _rdflib().RDFS.label))
    )
    name = next(iter(preferred), "")
    aliases = dict.fromkeys(
        alias for alias in [*values("altLabel"), *preferred] if alias and alias != name
    )
    text = next(iter(values("definition", "scopeNote")), "")
    label = _id(concept)
    minted = concept.startswith(_MINTED) and label != str(concept)
    if minted:
        uri = min(map(str, graph.objects(concept, _term("exactMatch"))), default="")
    else:
        uri = label
    return Label(label, name, text, tuple(aliases), uri)


def _rank(language: str | None, wanted: str) -> tuple[int, str]:
    tag = (language or "").lower()
    if tag == wanted:
        rank = 0
    elif tag.startswith(f"{wanted}-"):
        rank = 1
    elif not tag:
        rank = 2
    else:
        rank = 3
    return rank, tag


def _id(concept: Any) -> str:
    """Return the label id of a concept: its URI, or the id that :func:`write_skos` encoded."""
    uri = str(concept)
    if uri.startswith(_MINTED):
        label = unquote(uri.removeprefix(_MINTED))
        if _minted(label) == uri:
            return label
    return uri.removeprefix(_BASE)


def _minted(label: str) -> str:
    return _MINTED + quote(label, safe="")


def _subject(label: str) -> str:
    if _IRI.fullmatch(label) and not label.startswith((_MINTED, _BASE)):
        return label
    return _minted(label)


def write_skos(labels: Labels, path: Path | str) -> None:
    """Write the labels as skos:Concepts in Turtle, without language tags; order of labels and
    aliases is not kept.

    The concept's URI is the label's id; an id that is no URI becomes ``urn:longtail:`` and the id
    percent-encoded, and reads back as it was, with the label's ``uri`` as skos:exactMatch."""
    with open_output(path) as out:
        out.write(f"@prefix skos: <{_SKOS}> .\n".encode())
        for label in labels:
            subject = _subject(label.id)
            out.write(b"\n<%s> a skos:Concept" % subject.encode())
            if label.uri != subject and _IRI.fullmatch(label.uri):
                out.write(b" ;\n    skos:exactMatch <%s>" % label.uri.encode())
            for name, strings in _properties(label):
                for string in filter(None, strings):
                    out.write(b" ;\n    skos:%s %s" % (name.encode(), msgspec.json.encode(string)))
            out.write(b" .\n")


def _properties(label: Label) -> Iterable[tuple[str, Iterable[str]]]:
    yield "prefLabel", [label.name]
    yield "altLabel", label.aliases
    yield "definition", [label.text]
