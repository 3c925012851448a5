"""Hook of mkdocs: copies files of the repository that pages link to into the site.

Pages link to sources, configurations and diagrams by relative paths, as GitHub and an editor resolve them
(`../diagrams/legs.svg`). Such a file lies outside of `docs/`: it becomes `repository/diagrams/legs.svg` in the site.
Text files get the suffix `.txt`, so that a browser shows them.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

_LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)(?:#[^)\s]*)?\)")  # an anchor in such a file is left out


def _outside(page: str, link: str, docs: Path) -> Path | None:
    """The file of the repository that a link of a page leads to; None if that is a page."""
    target = (docs / PurePosixPath(page).parent / link).resolve()
    return target if target.is_file() and not target.is_relative_to(docs.resolve()) else None


def _place(target: Path, docs: Path) -> str:
    path = target.relative_to(docs.resolve().parent).as_posix()
    return f"repository/{path}" if target.suffix == ".svg" else f"repository/{path}.txt"


def on_files(files: Files, config: Any) -> Files:
    """Adds the files that some page links to."""
    docs = Path(config.docs_dir)
    for page in list(files.documentation_pages()):
        for link in _LINK.findall((docs / page.src_uri).read_text(encoding="utf-8")):
            target = _outside(page.src_uri, link, docs)
            if target is not None and files.get_file_from_path(_place(target, docs)) is None:
                files.append(File.generated(config, _place(target, docs), abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Points the links of a page to the copies."""
    docs, up = Path(config.docs_dir), "../" * page.file.src_uri.count("/")

    def pointed(link: re.Match[str]) -> str:
        target = _outside(page.file.src_uri, link[1], docs)
        return link[0] if target is None else f"]({up}{_place(target, docs)})"

    return _LINK.sub(pointed, markdown)
