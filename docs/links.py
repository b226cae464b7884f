"""No link of the built site leads nowhere: python docs/links.py build/site.

Sphinx warns of Markdown links that it cannot resolve; this looks at the pages as they are served, frames, pictures and
fragments included. Addresses of other hosts are not asked for.
"""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """What a page leads to, and the places in it that may be led to."""

    def __init__(self, path: pathlib.Path):
        super().__init__()
        self.links: set[str] = set()
        self.places: set[str] = set()
        self.feed(path.read_text(errors="replace"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Of HTMLParser."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            if name in ("id", "name") and value:
                self.places.add(value)


def broken(site: pathlib.Path) -> list[str]:
    """Every internal link without an end, with its page."""
    paths = (p for p in sorted(site.rglob("*.html")) if "_static/" in p.read_text(errors="replace")[:20000])
    pages = {p.resolve(): Page(p) for p in paths}  # animations are programs, which lead nowhere
    found = []
    for path, page in pages.items():
        for link in sorted(page.links):
            where = urllib.parse.urlsplit(link)
            if where.scheme or where.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(where.path)).resolve() if where.path else path
            target = target / "index.html" if target.is_dir() else target
            lost = not target.exists()
            lost = lost or bool(where.fragment and target in pages and not _there(where.fragment, pages[target]))
            if lost:
                found.append(f"{path.relative_to(site.resolve())}: {link}")
    return found


def _there(fragment: str, page: Page) -> bool:
    return urllib.parse.unquote(fragment) in page.places


def main() -> None:
    """Exit 1 where a link is broken."""
    found = broken(pathlib.Path(sys.argv[1]))
    print("\n".join(found) or "every internal link has an end")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
