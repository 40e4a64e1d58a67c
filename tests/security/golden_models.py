"""The golden model folders of tests/contract, unpacked: a small model of every method."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

__all__ = ["MODELS", "NAMES", "unpack", "unpack_all"]

MODELS = Path(__file__).parent.parent / "contract" / "golden" / "models"
NAMES = sorted(file.stem for file in MODELS.glob("*.zip"))


def unpack(name: str, into: Path) -> Path:
    """Write the folder of one model, and return it."""
    with ZipFile(MODELS / f"{name}.zip") as archive:
        archive.extractall(into / name)
    return into / name


def unpack_all(into: Path) -> Path:
    """Write the folders of all models into one, and return it."""
    for name in NAMES:
        unpack(name, into)
    return into
