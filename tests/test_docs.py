"""What the docs name exists: files, functions, tests, links, commands, the packages in the picture, the examples."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from epg.cli import VERBS, _parse
from epg.core.errors import BadInput
from epg.families.registry import is_registered
from epg.zoo import zoo_names

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PLACES = ROOT, ROOT / "src" / "epg"  # what a path may be relative to
PLACEHOLDERS = {
    "FAMILY": "random-pendulum",
    "NAME": "random-pendulum",
    "LOSS": "runs/x",
    "RUN": "runs/x",
    "PATH": "x",
    "N": "8",
}
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED_FILE = re.compile(r"(?<![\w./:-])([\w./-]+\.(?:py|sh|xml|md|jsonl?|svg|png))(?:::(\w+)|: ([A-Za-z_][\w.]*))?")


def inline_code(text: str) -> list[str]:
    """Return what stands between single backticks, outside code blocks."""
    return re.findall(r"(?<!`)`([^`]+)`(?!`)", FENCED.sub("", text))


@cache
def names_in(path: Path) -> set[str]:
    """Return the names that a module defines, and Class.name of what its classes define."""
    found = set()

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                collect(node.body, f"{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found.update(prefix + it.id for it in targets if isinstance(it, ast.Name))

    collect(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return found


def is_ours(name: str) -> bool:
    """Tell whether a name is one of a source file, or of a file in a folder of this repository."""
    folder = name.split("/")[0]
    return name.endswith((".py", ".sh")) or ("/" in name and folder in ("docs", "tools", "tests", "examples", "src"))


def find_file(name: str) -> Path | None:
    """Return the file of this name, from the root or from the package; a bare name may be in any folder."""
    if "/" in name:
        return next((place / name for place in PLACES if (place / name).is_file()), None)
    folders = ("src", "tests", "tools", "examples")
    return next((path for folder in folders for path in (ROOT / folder).rglob(name)), None)


def wrong_files(text: str) -> Iterator[str]:
    """Say which files, tests and functions in inline code do not exist."""
    for code in inline_code(text):
        for name, test, function in NAMED_FILE.findall(code):
            path = find_file(name) if is_ours(name) else ROOT
            if path is None:
                yield f"there is no {name}"
            elif path != ROOT and (test or function) and (test or function) not in names_in(path):
                yield f"{name} has no {test or function}"


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def wrong_links(text: str, page: Path) -> Iterator[str]:
    """Say which relative links and images lead nowhere."""
    for target in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", FENCED.sub("", text)):
        link = "".join(target)
        if re.match(r"\w+:", link):
            continue
        file, _, anchor = link.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists():
            yield f"there is no {link}"
        elif anchor and anchor not in map(
            slug, re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        ):
            yield f"{file or page.name} has no heading #{anchor}"


def commands(text: str) -> Iterator[str]:
    """Yield every command of epg: a line of a code block, or inline code."""
    blocks = [block for _, block in FENCED.findall(text)]
    blocks += re.findall(r"(?:^ {4}.*\n)+", FENCED.sub("", text), re.MULTILINE)
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip().startswith("epg "):
                yield line.strip()
    yield from (code for code in inline_code(text) if code.startswith("epg "))


def refusal(words: list[str]) -> str | None:
    """Return why the command line refuses a command, as far as that can be told without running it."""
    verb, *rest = words
    family = {"evolve": 0, "tasks": 0, "check": 0, "bench": 0, "baseline": 1}.get(verb)
    if (
        family is not None
        and len(rest) > family
        and not (is_registered(rest[family]) or re.search("^-|:", rest[family]))
    ):
        return f"there is no family {rest[family]}"
    if verb in ("learn", "compare", "probe", "render") and not (rest[0] in zoo_names() or re.search("^-|/", rest[0])):
        return f"there is no loss {rest[0]}"
    try:
        _parse(words)
    except BadInput as error:
        return str(error)
    except SystemExit as end:
        return "wrong options" if end.code else None
    return None


def wrong_commands(text: str) -> Iterator[str]:
    """Say which commands are refused; of one that is only named, dots or a shell's syntax, only the verb is checked."""
    for line in commands(text):
        words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line, comments=True)[1:]]
        if words[0] in ("COMMAND", "--help", "--version"):
            continue
        only_named = len(words) == 1 or (words[0] == "baseline" and len(words) == 2)
        in_part = any(mark in line for mark in ("...", "…", "$", "|", "[", "--resume"))
        problem = "there is no such command" if words[0] not in VERBS else None
        if problem is None and not only_named and not in_part:
            problem = refusal(words)
        if problem is not None:
            yield f"{line!r}: {problem}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_names_exist(page: Path) -> None:
    assert list(wrong_files(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_images_resolve(page: Path) -> None:
    assert list(wrong_links(page.read_text(encoding="utf-8"), page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_parse(page: Path) -> None:
    assert list(wrong_commands(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "`src/epg/nothing.py`",
        "see `nothing.py`",
        "`lifetime/update.py: nothing`",
        "`evolution/strategy.py: Strategy.nothing`",
        "`tests/test_docs.py::test_nothing`",
        "`docs/nothing.json`",
        "`tools/nothing.sh`",
    ],
)
def test_the_search_for_files_would_have_found(text: str) -> None:
    assert len(list(wrong_files(text))) == 1


@pytest.mark.parametrize(
    "text", ["[a](nothing.md)", "![a](images/nothing.png)", "[a](glossary.md#nothing)", "[a](#nothing)"]
)
def test_the_search_for_links_would_have_found(text: str) -> None:
    assert len(list(wrong_links(text, ROOT / "docs" / "algorithm.md"))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "`epg nothing`",
        "    epg compare point-goal --loss x\n",
        "```console\nepg evolve FAMILY --search.epochs 3\n```",
        "`epg evolve nothing`",
        "`epg baseline ppo nothing`",
        "`epg learn nothing --tasks 3`",
        "`epg learn ... | x` and `epg nothing ...`",
    ],
)
def test_the_search_for_commands_would_have_found(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(wrong_commands(text))) == 1


def test_sound_text_passes() -> None:
    text = "`lifetime/update.py: InnerConfig.optimizer`, `tests/test_docs.py::test_sound_text_passes`, `RUN/loss.json`"
    text += "\n\n    epg learn LOSS --tasks 4  # a comment\n\n`epg evolve FAMILY --loss.inputs reward task-features`"
    assert list(wrong_files(text)) == list(wrong_commands(text)) == []


def test_the_picture_shows_every_package_and_only_imports_that_there_are() -> None:
    picture = (ROOT / "docs" / "images" / "architecture.svg").read_text(encoding="utf-8")
    package = ROOT / "src" / "epg"
    parts = {it.stem for it in package.iterdir() if it.is_dir() or it.suffix == ".py"} - {"__init__", "__main__"}
    parts = {part for part in parts if part.isidentifier() and not part.startswith("_")}
    assert set(re.findall(r"font-weight='bold'>(\w+)<", picture)) == parts
    for above, below in re.findall(r"<title>(\w+) imports (\w+)</title>", picture):
        files = [package / f"{above}.py", *(package / above).rglob("*.py")]
        assert any(re.search(rf"\bepg\.{below}\b", it.read_text(encoding="utf-8")) for it in files if it.is_file())


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_the_page_shows_the_example_as_it_is(example: Path) -> None:
    shown = f"```python\n{example.read_text(encoding='utf-8')}```"
    assert any(shown in page.read_text(encoding="utf-8") for page in PAGES)
