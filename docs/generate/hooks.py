"""What MkDocs calls while it builds the manual: pages and parts of pages that are made of the code, and links.

`<!-- made by NAME -->` in a page is replaced by what the function of that name in `PARTS` returns, as Markdown.
"""

import logging
import re
from pathlib import Path

import api_pages
import command_pages
import contributing
import cross_references
import drawings
import error_messages
import floors
import hook_pages
import tf1_names
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

log = logging.getLogger("mkdocs.hooks.manual")


def my_project():
    """Return the file that the guides import, collapsed. The search leaves it out, because it is on many pages."""
    code = Path(__file__).parents[1].joinpath("howto", "my_project.py").read_text(encoding="utf-8")
    return (
        '<details class="example" data-search-exclude markdown>\n<summary><code>my_project.py</code></summary>\n\n'
        f"```python\n{code}```\n\n</details>"
    )


PARTS = {
    "commands": command_pages.reference,
    "contributing": contributing.page,
    "error-messages": error_messages.listed,
    "hooks": hook_pages.reference,
    "launch-drawing": drawings.launch,
    "loop-drawing": drawings.loop,
    "my-project": my_project,
    "step-drawing": drawings.step,
    "classes-drawing": drawings.classes,
    "table-of-hooks": hook_pages.table,
    "table-of-imports": floors.table_of_imports,
    "table-of-rooms": floors.table_of_rooms,
    "tf1-before-1": tf1_names.before_1,
    "tf1-contrib": tf1_names.contrib,
    "tf1-missing": tf1_names.missing,
}
"""What makes parts of pages, by name."""

MARKER = re.compile(r"^<!-- made by ([\w-]+) -->$", re.MULTILINE)


def on_files(files, config):
    for path, text in api_pages.pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    return MARKER.sub(lambda marker: made(marker[1], page), markdown)


def on_page_content(html, page, config, files):
    html, unknown = cross_references.linked(html)
    for name in sorted(unknown):
        log.warning("%s names `%s`, which is not there", page.file.src_uri, name)
    return html


def made(name, page):
    if name not in PARTS:
        raise PluginError(f"{page.file.src_uri}: nothing makes {name!r}. There are {', '.join(sorted(PARTS))}.")
    return PARTS[name]()
