"""SKOS vocabularies: which concept becomes which label, and that nothing outside the file is
touched.
"""

from __future__ import annotations

import json
import logging
import socket
import sys

import pytest
import rdflib
from hypothesis import given, settings
from hypothesis import strategies as st
from test_label_files import vocabularies
from test_tables import made, problems_of

from longtail.data.label_files import read_labels, write_labels
from longtail.data.labels import Label, Labels
from longtail.data.skos import read_skos, skos_broader
from longtail.errors import DataError, MissingExtra

TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix e: <http://e.org/> .
e:scheme a skos:ConceptScheme ; skos:prefLabel "not a concept" .
e:wind a skos:Concept ;
    skos:prefLabel "wind power"@en, "tuulivoima"@fi, "Windenergie"@de ;
    skos:altLabel "wind energy"@en, "tuulienergia"@fi ;
    skos:broader e:energy ;
    skos:scopeNote "not turbines"@en ; skos:definition "Energie des Windes"@de, "energy from wind"@en .
e:energy a skos:Concept ; skos:prefLabel "energy", "energia"@fi ; skos:scopeNote "a note" ; skos:narrower e:solar .
e:solar a skos:Concept ; skos:prefLabel "solar power"@en-GB, "Sonnenenergie"@de .
e:old a skos:Concept ; skos:prefLabel "old"@en ; owl:deprecated true ; skos:broader e:energy .
e:bare a skos:Concept ; rdfs:label "only a label" .
e:odd a skos:Concept ; skos:prefLabel 5 ; skos:altLabel e:wind ;
    skos:definition "30.2."^^<http://www.w3.org/2001/XMLSchema#date> .
[] a skos:Concept ; skos:prefLabel "nameless" .
<#relative> a skos:Concept .
"""
OTHERS = ("wind energy", "tuulienergia", "Windenergie", "tuulivoima")
WIND = Label("http://e.org/wind", "wind power", "energy from wind", OTHERS, "http://e.org/wind")
ENERGY = Label("http://e.org/energy", "energy", "a note", ("energia",), "http://e.org/energy")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        pytest.fail("tried to open a connection")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def by_id(labels):
    return {label.id: label for label in labels}


@pytest.fixture
def turtle(tmp_path):
    return made(tmp_path, TURTLE, "x.ttl")


def test_concepts_become_labels(turtle):
    labels = read_labels(turtle)
    assert list(labels.ids) == [*sorted(labels.ids[:5]), "#relative"]
    result = by_id(labels)
    assert result["http://e.org/wind"] == WIND
    assert result["http://e.org/energy"] == ENERGY
    assert result["http://e.org/solar"].name == "solar power"
    assert result["http://e.org/bare"].name == "only a label"
    assert (result["http://e.org/odd"].name, result["http://e.org/odd"].text) == ("5", "30.2.")
    assert result["#relative"] == Label("#relative", uri="#relative")


def test_the_language_can_be_chosen(turtle):
    result = by_id(read_skos(turtle, language="fi"))
    assert result["http://e.org/wind"].name == "tuulivoima"
    assert result["http://e.org/wind"].aliases[:2] == ("tuulienergia", "wind energy")
    assert result["http://e.org/energy"].name == "energia"
    assert result["http://e.org/solar"].name == "Sonnenenergie"


def test_broader_pairs(turtle):
    energy = "http://e.org/energy"
    assert skos_broader(turtle) == [("http://e.org/solar", energy), ("http://e.org/wind", energy)]


@pytest.mark.parametrize(
    ("suffix", "syntax"), [("rdf", "xml"), ("nt", "nt"), ("jsonld", "json-ld"), ("n3", "n3")]
)
def test_every_syntax_says_the_same(tmp_path, turtle, suffix, syntax):
    graph = rdflib.Graph().parse(turtle, format="turtle", publicID="http://relative.invalid/")
    other = made(tmp_path, graph.serialize(format=syntax), f"y.{suffix}")
    assert read_labels(other) == read_labels(turtle)


def test_syntax_is_told_by_content(tmp_path, turtle):
    graph = rdflib.Graph().parse(turtle, format="turtle", publicID="http://relative.invalid/")
    for syntax in ("turtle", "xml"):
        assert read_labels(
            made(tmp_path, graph.serialize(format=syntax), "vocabulary")
        ) == read_labels(turtle)


def test_xml_may_have_its_own_encoding_and_entities(tmp_path):
    content = """<?xml version="1.0" encoding="ISO-8859-1"?>
<!DOCTYPE rdf:RDF [ <!ENTITY skos "http://www.w3.org/2004/02/skos/core#" > <!ENTITY a "&#233;t&#233;"> ]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<rdf:Description rdf:about="http://e.org/1"><rdf:type rdf:resource="&skos;Concept"/>
<skos:prefLabel>größe &a;</skos:prefLabel></rdf:Description></rdf:RDF>"""
    (label,) = read_labels(made(tmp_path, content.encode("latin-1"), "x.rdf"))
    assert label.name == "größe été"


def rdf_with(doctype, name):
    return f"""<?xml version="1.0"?><!DOCTYPE rdf:RDF {doctype}>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<skos:Concept rdf:about="http://e.org/1"><skos:prefLabel>{name}</skos:prefLabel></skos:Concept></rdf:RDF>"""


LAUGHS = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(9))


@pytest.mark.parametrize(
    "doctype",
    [
        f'[ <!ENTITY a0 "ha"> {LAUGHS} ]',
        '[ <!ENTITY a9 SYSTEM "file:///etc/passwd"> ]',
        '[ <!ENTITY a9 PUBLIC "x" "http://127.0.0.1/x"> ]',
        '[ <!ENTITY % p SYSTEM "http://127.0.0.1/x"> %p; ]',
        '[ <!ENTITY a0 "ha"> <!ENTITY a9 "> &a0;"> ]',
        "[ <!ENTITY a0 'ha'> <!ENTITY a9 '&#38;a0;'> ]",
        '[ <!ENTITY a0 "ha"> <!ENTITY a9 "&#x026;a0;"> ]',
    ],
)
def test_xml_entities_that_point_elsewhere_are_refused(tmp_path, doctype):
    with pytest.raises(DataError, match=r"the XML entity .<!ENTITY"):
        read_labels(made(tmp_path, rdf_with(doctype, "&a9;"), "x.rdf"))


def test_a_document_type_elsewhere_is_not_fetched(tmp_path):
    outside = rdf_with('SYSTEM "http://127.0.0.1/x.dtd"', "plain &a9;")
    assert [label.name for label in read_labels(made(tmp_path, outside, "x.rdf"))] == ["plain "]


def test_utf_16_is_refused_since_entities_could_hide_in_it(tmp_path):
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        with pytest.raises(DataError, match="UTF-16 text"):
            read_labels(made(tmp_path, rdf_with("[]", "x").encode(encoding), "x.rdf"))


SKOS_CONTEXT = {"skos": "http://www.w3.org/2004/02/skos/core#"}


@pytest.mark.parametrize(
    "document",
    [
        {"@context": "http://127.0.0.1/x"},
        {"@context": [SKOS_CONTEXT, ["context.jsonld"]]},
        {"@context": {**SKOS_CONTEXT, "@import": "http://127.0.0.1/x"}},
        {"@context": {"term": {"@id": "skos:x", "@context": "http://127.0.0.1/x"}}},
        {
            "@context": SKOS_CONTEXT,
            "skos:broader": [{"@id": "y", "@context": "http://127.0.0.1/x"}],
        },
    ],
)
def test_remote_contexts_are_refused(tmp_path, document):
    content = json.dumps({**document, "@id": "http://e.org/1", "@type": "skos:Concept"})
    with pytest.raises(DataError, match="the remote context"):
        read_labels(made(tmp_path, content, "x.jsonld"))


@pytest.mark.parametrize(
    ("name", "content", "line", "found"),
    [
        ("x.ttl", TURTLE + "e:x a", 0, "malformed turtle ('string index out of range')"),
        ("x.ttl", "\n\n<a> <b> c", 3, "malformed turtle (objectList expected)"),
        ("x.rdf", "<rdf>\n</x>", 2, "malformed xml"),
        ("x.nt", "<a> <b>\n", 0, "malformed nt"),
        ("x.jsonld", '{"@id":\n', 2, "malformed json-ld"),
        ("x.jsonld", "[" * 100_000, 0, "malformed json-ld"),
        ("x.jsonld", b'{"a": "\xff"}', 0, "malformed json-ld"),
        ("x.ttl", "", 0, "no skos:Concept with a URI"),
        ("x.jsonld", '{"@id": "urn:a", "@type": "http://www.w3.org/2004/02/skos/core#Concept", '
         '"http://www.w3.org/2004/02/skos/core#prefLabel": "\\ud800"}', 0, "half of a surrogate pair"),
    ],
)  # fmt: skip
def test_bad_vocabularies_are_refused(tmp_path, name, content, line, found):
    with pytest.raises(DataError) as caught:
        read_labels(made(tmp_path, content, name))
    assert problems_of(caught)[0][0] == line
    assert problems_of(caught)[0][1].startswith(found)
    assert "\n" not in str(caught.value)


def test_rdflib_says_nothing_of_its_own(tmp_path, turtle, caplog):
    more = (
        '<http://e.org/a b> a skos:Concept ; skos:x "x"^^<http://www.w3.org/2001/XMLSchema#int> .'
    )
    odd = made(tmp_path, TURTLE + more, "y.ttl")
    with caplog.at_level(logging.DEBUG):
        assert len(read_labels(odd)) == len(read_labels(turtle)) + 1
    assert not [record for record in caplog.records if record.name.startswith("rdflib")]
    assert logging.getLogger("rdflib").level == logging.NOTSET


def test_the_package_may_be_missing(turtle, monkeypatch):
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(MissingExtra, match=r"longtail\[skos\]"):
        read_labels(turtle)


# --- writing
# -----------------------------------------------------------------------------------------------------


def held(label):
    """A label as Turtle holds it, with its aliases in the order they are read in."""
    aliases = sorted(
        {alias for alias in label.aliases if alias and (label.name == "" or alias != label.name)}
    )
    return label.name, label.text, tuple(aliases)


@given(vocabularies, st.booleans())
@settings(deadline=None, max_examples=100)
def test_what_is_written_is_read_back(tmp_path_factory, labels, with_uris):
    uris = [f"http://e.org/{number}" if with_uris else "" for number in range(len(labels))]
    given = [
        Label(x.id, x.name, x.text, x.aliases, uri) for x, uri in zip(labels, uris, strict=True)
    ]
    file = tmp_path_factory.getbasetemp() / "x.ttl"
    write_labels(Labels.of(given), file)
    expected = {label.id: held(label) for label in given}
    result = read_labels(file)
    assert {label.id: (label.name, label.text, label.aliases) for label in result} == expected
    assert all(
        label.uri in (uris[[one.id for one in given].index(label.id)], label.id) for label in result
    )


def test_written_turtle(tmp_path):
    full = Label("http://e.org/1", 'a "b"\n', "text", ("x",), "http://e.org/1")
    labels = [full, Label("wind power"), Label("3", uri="urn:x")]
    write_labels(Labels.of(labels), tmp_path / "x.ttl")
    assert (tmp_path / "x.ttl").read_text().split("\n\n") == [
        "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .",
        '<http://e.org/1> a skos:Concept ;\n    skos:prefLabel "a \\"b\\"\\n" ;\n    skos:altLabel "x" ;\n'
        '    skos:definition "text" .',
        "<urn:longtail:wind%20power> a skos:Concept .",
        "<urn:longtail:3> a skos:Concept ;\n    skos:exactMatch <urn:x> .\n",
    ]
    assert len(rdflib.Graph().parse(tmp_path / "x.ttl")) == 7


def test_ids_that_look_like_what_the_writer_makes_are_kept(tmp_path):
    ids = ["http://relative.invalid/x", "urn:longtail:a", "urn:longtail:%61"]
    write_labels(Labels.of(ids), tmp_path / "x.ttl")
    assert sorted(read_labels(tmp_path / "x.ttl").ids) == sorted(ids)
    foreign = "<urn:longtail:%61> a <http://www.w3.org/2004/02/skos/core#Concept> ."
    assert list(read_labels(made(tmp_path, foreign, "y.ttl")).ids) == ["urn:longtail:%61"]


def test_labels_that_share_a_uri_are_not_merged(tmp_path):
    labels = [Label("1", uri="urn:x"), Label("2", uri="urn:x")]
    write_labels(Labels.of(labels), tmp_path / "x.ttl")
    assert list(read_labels(tmp_path / "x.ttl")) == labels
