"""What the served model learns: a few plain labels, and the hostile strings of the corpus as labels
and texts.
"""

from __future__ import annotations

from pathlib import Path

CORPUS = (Path(__file__).parent / "xss.txt").read_text("utf-8").splitlines()
PLAIN = {
    "wind": ("Wind power", "turbine offshore rotor blade"),
    "wine": ("Wine", "grape vineyard cellar vintage"),
    "bees": ("Bees and their keeping", "hive honey nectar beekeeper"),
    "rail": ("Railways", "locomotive track signal timetable"),
    "long": ("Ü" * 150, "endless unbroken syllable rope"),
}
FILLER = ("study", "history", "report", "method", "guide")


def mark_of(number: int) -> str:
    """Return the word that stands for the hostile label of this number."""
    return f"zeta{number:02d}"


def id_of(number: int) -> str:
    """Return the id of the hostile label of this number."""
    return f"id {CORPUS[number]}"


def labels():
    """Yield the rows of the label file: a hostile string as id, name, text, alias and address."""
    for member, (name, _) in PLAIN.items():
        yield {"id": member, "name": name}
    for number, hostile in enumerate(CORPUS):
        label = {"id": id_of(number), "name": hostile, "text": f"about {hostile}"}
        yield label | {"aliases": [f"{mark_of(number)} {hostile}"], "uri": hostile}


def documents():
    """Yield the rows of the training file: five documents a label, one of them a neighbour's too."""
    for at, filler in enumerate(FILLER):
        for member, (_, words) in PLAIN.items():
            labels = [member, "bees"] if member == "wine" and at == 0 else [member]
            yield {
                "id": f"{member}-{at}",
                "text": f"A {filler} of {words}, {words.split()[at % 4]}.",
                "labels": labels,
            }
        for number, hostile in enumerate(CORPUS):
            labels = [id_of(number), id_of((number + 1) % len(CORPUS))][: 2 if at == 0 else 1]
            text = f"A {filler} of {mark_of(number)} {hostile}"
            yield {"id": f"{at} {hostile}", "text": text, "labels": labels}
