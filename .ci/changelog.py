"""The section of CHANGELOG.md of one version, for the notes of its release: python .ci/changelog.py VERSION.

Exits with a word where the package has another version, or the changelog no finished section of this one.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[1]


def section(version: str, text: str) -> str:
    """What stands below the version's heading.

    Raises:
        ValueError: there is no such heading, it says unreleased, or nothing stands there.
    """
    for title, body in re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", text, re.MULTILINE):
        if title.split()[0] == version:
            if "unreleased" in title:
                raise ValueError(f"CHANGELOG.md calls {version} unreleased; write its date there")
            if not body.strip():
                raise ValueError(f"CHANGELOG.md says nothing of {version}")
            return body.strip() + "\n"
    raise ValueError(f"CHANGELOG.md has no section {version}")


def main() -> None:
    """Print it, or say what does not agree."""
    version = sys.argv[1]
    found = re.search(r'__version__ = "(.+)"', (ROOT / "pbad_jax" / "version.py").read_text())
    if not found or found[1] != version:
        sys.exit(f"the tag says {version}, pbad_jax/version.py {found[1] if found else 'nothing'}")
    try:
        print(section(version, (ROOT / "CHANGELOG.md").read_text()), end="")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
