"""The hook of mkdocs: adds pages to the site that are made from the code, or that lie elsewhere in
the repository.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli_reference import cli_reference
from settings_reference import settings_reference

__all__ = ["COPIED", "GENERATED", "on_files", "on_page_markdown", "site_links"]

ROOT = Path(__file__).resolve().parent.parent
GENERATED: dict[str, Callable[[], str]] = {
    "cli.md": cli_reference,
    "settings.md": settings_reference,
}
COPIED = {  # page of the site → file of the repository
    "results.md": "benchmarks/RESULTS.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
_LINK = re.compile(
    r"(?<=\]\()([^)#:]+)(?=[)#])"
)  # no address of the web, no place on the same page


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File

    for page, make in GENERATED.items():
        files.append(File.generated(config, page, content=make()))
    for page, origin in COPIED.items():
        files.append(File.generated(config, page, content=(ROOT / origin).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links to where the site has what they lead to; a page that is a group by itself has no
    list beside it.
    """
    name = page.file.src_uri
    if page.parent is None:
        page.meta.setdefault("hide", ["navigation"])
    return site_links(markdown, COPIED.get(name, f"docs/{name}"))


def site_links(markdown: str, origin: str) -> str:
    """Return the text with links as they must be in the site, of a page that is ``origin`` in the
    repository.
    """
    homes = {file: page for page, file in COPIED.items()}

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link[0]))
        return homes.get(target, target.removeprefix("docs/"))

    return _LINK.sub(moved, markdown)
