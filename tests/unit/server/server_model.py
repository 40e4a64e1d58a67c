"""Documents for a model of nine labels."""

from __future__ import annotations

import longtail as lt
from longtail.data.labels import Label

LABELS = [
    Label(
        "wind",
        "Wind power",
        "Energy from moving air",
        ("Windkraft", "eolic energy"),
        "https://example.org/wind",
    ),
    Label("sun", "Solar power", "", ("photovoltaics",)),
    Label("sea", "The sea"),
    Label("ship", "Ships"),
    Label("bread", "Bread & butter"),
    Label("cheese"),
    Label("milk", "Milk"),
    Label("dup1", "Twice"),
    Label("dup2", "Twice"),
]
WORDS = {
    "wind": "wind turbine storm blade",
    "sun": "sun panel light roof",
    "sea": "sea wave salt coast",
    "ship": "ship sail harbour crew",
    "bread": "bread flour oven crust",
    "cheese": "cheese rind cellar goat",
    "milk": "milk cow farm cream",
    "dup1": "one thing",
    "dup2": "another thing",
}


def training_documents() -> lt.Dataset:
    """Return documents of one or two labels each, their words in turns."""
    texts = []
    labels = []
    names = list(WORDS)
    for number in range(90):
        own = (
            [names[number % 9], names[(number * 4 + 1) % 9]] if number % 3 else [names[number % 9]]
        )
        words = [word for name in own for word in WORDS[name].split()]
        texts.append(" ".join(words[number % 2 :]) + f" and more of number {number % 7}")
        labels.append(list(dict.fromkeys(own)))
    return lt.Dataset.of(texts, labels, LABELS)
