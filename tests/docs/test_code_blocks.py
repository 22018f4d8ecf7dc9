"""What the pages of docs/ show: Python runs and prints what stands below it, commands parse, names exist."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fedrec_unlearn as fedrec
from fedrec_unlearn.cli import main
from fedrec_unlearn.cli.command import VERBS
from fedrec_unlearn.cli.options import config_from_arguments, given_options
from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.config import SECTIONS
from fedrec_unlearn.config_options import options_by_name
from fedrec_unlearn.federation.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
SLOW = "<!-- slow -->"
_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w-])")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    """Line of its first line, counted from 1."""
    slow: bool


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    fence: tuple[str, int, bool] | None = None
    lines = page.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if line.startswith("```") and fence is None:
            fence = (line[3:].strip(), number + 1, number > 1 and lines[number - 2] == SLOW)
        elif line == "```" and fence is not None:
            language, start, slow = fence
            found.append(Block(language, "\n".join(lines[start - 1 : number - 1]), start, slow))
            fence = None
    assert fence is None, f"{page}: the block from line {fence and fence[1]} is not closed"
    return found


def run_page(page: Path, *, slow: bool) -> int:
    """Run the Python blocks in one namespace, comparing what they print with the text block that follows."""
    namespace: dict[str, Any] = {"__name__": page.stem}
    listed, count = blocks(page), 0
    for place, block in enumerate(listed):
        if block.language != "python" or (block.slow and not slow):
            continue
        printed = io.StringIO()
        # blank lines first, so that a traceback names the line of the page
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        count += 1
        following = listed[place + 1] if place + 1 < len(listed) else None
        shown = following.text if following is not None and following.language == "text" else ""
        if printed.getvalue() or shown:
            assert_alike(printed.getvalue(), shown, f"{page.name}:{block.line}")
    return count


def assert_alike(printed: str, shown: str, where: str) -> None:
    """Words must be equal; numbers may differ a little, since libraries and processors round differently."""

    def words(text: str) -> list[str]:
        return _NUMBER.sub("0", text).split()

    assert words(printed) == words(shown), f"{where} prints\n{printed}\nbut the page shows\n{shown}"
    for found, told in zip(_NUMBER.findall(printed), _NUMBER.findall(shown), strict=True):
        assert float(found) == pytest.approx(float(told), rel=0.05, abs=0.1), f"{where}: {found}, the page says {told}"


def test_the_comparison_of_outputs_sees_another_word_and_another_number() -> None:
    assert_alike("gender 0.88 p = 0.02\n", "gender  0.86 p = 0.03", "here")
    with pytest.raises(AssertionError, match="prints"):
        assert_alike("gender 0.88", "noise 0.88", "here")
    with pytest.raises(AssertionError, match="the page says"):
        assert_alike("gender 0.88", "gender 0.60", "here")


@pytest.mark.parametrize("name", [page.name for page in PAGES if any(b.language == "python" for b in blocks(page))])
def test_python_blocks_run_and_print_what_the_page_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "recbole.md":
        pytest.importorskip("hyperopt", reason="the extra recbole is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREC_DATA", raising=False)
    assert run_page(ROOT / "docs" / name, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", [page.name for page in PAGES if any(b.slow for b in blocks(page))])
def test_slow_blocks_print_what_the_page_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "recbole.md":
        pytest.importorskip("hyperopt", reason="the extra recbole is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREC_DATA", raising=False)
    assert run_page(ROOT / "docs" / name, slow=True)


def commands() -> Iterator[tuple[str, str]]:
    """Every command line with fedrec in a console block, or in running text with more than its verb."""
    for page in [ROOT / "README.md", *PAGES]:
        shown = [line for b in blocks(page) if b.language in ("console", "sh", "bash") for line in b.text.split("\n")]
        inline = re.findall(r"`(fedrec [^`]+)`", page.read_text(encoding="utf-8"))
        for line in [*shown, *(text for text in inline if len(text.split()) > 2)]:
            command = line.removeprefix("$ ").strip()
            if command.startswith("fedrec "):
                yield page.name, command


@pytest.mark.parametrize(("page", "command"), sorted(set(commands())))
def test_commands_parse(page: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command, comments=True)[1:]
    of_the_reader = any(word.endswith((".yaml", ".yml")) for word in words)  # a file that is not here
    if words[0] not in VERBS or (words[-1] in ("--help", "--print-config") and not of_the_reader):
        assert main(words) == 0
        return
    parser = CommandParser(words[0], VERBS[words[0]])
    import_module(f"fedrec_unlearn.cli.{words[0]}").configure(parser)
    args = parser.parse_words(words[1:])
    if words[0] in ("run", "train") and not of_the_reader:
        config_from_arguments(args)
    elif words[0] in ("run", "train", "attack"):
        fedrec.load_config(None, given_options(args))


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_options_and_files_named_in_the_text_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for code in re.findall(r"`([^`\n]+)`", text):
        option = re.match(rf"(?:{'|'.join(SECTIONS)})\.[a-z_0-9]+(?![\w./])", code)
        if option and not code.endswith(".json"):
            assert option.group() in options_by_name(), f"{page}: no option {option.group()}"
        if re.fullmatch(r"(?:examples|tests|fedrec_unlearn|datasets|configs)/[\w/.-]+\.\w+", code):
            assert code == "datasets/NAME.yaml" or (ROOT / code).is_file(), f"{page}: no file {code}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    options = {
        "data.name": "synthetic",
        "output": str(folder),
        "model.embedding_dim": 4,
        "federation.rounds": 5,
        "evaluation.every": 5,
        "attack.attributes": ["gender"],
        "attack.attackers": ["logistic"],
    }
    fedrec.train(fedrec.load_config(None, options))
    fedrec.attack(folder)
    return folder


def shape(value: Any) -> Any:
    """Keys of objects, all the way down; what lies in a list is taken to be alike."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(inner) for inner in value[:1]] if isinstance(value, list) else None


def test_run_folder_page_shows_the_fields_that_a_run_writes(run: Path) -> None:
    listed = [b.text for b in blocks(ROOT / "docs" / "run-folder.md") if b.language == "json"]
    described, events, metrics, attack = listed[0], listed[1].split("\n"), listed[2], listed[3]
    folder = RunFolder(run)

    told, found = json.loads(described), json.loads(folder.run.read_text())
    for fields in (told, found):  # names of attributes and tensors are those of the data set and the model
        fields["data"]["attributes"] = [{**v, "classes": 0} for v in fields["data"]["attributes"].values()]
    assert shape(told) == shape(found)

    logged = [json.loads(line) for line in folder.events.read_text().splitlines()]
    for line in events:
        example = json.loads(line)
        same = next(event for event in logged if event["event"] == example["event"])
        assert list(example) == list(same)

    assert list(json.loads(metrics)) == list(json.loads(folder.metrics.read_text()))

    told, found = json.loads(attack), json.loads(folder.attack.read_text())
    assert list(told) == list(found)
    assert list(told["config"]) == list(found["config"])
    assert list(told["results"][0]) == list(found["results"][0])
    assert list(told["results"][0]["balanced_accuracy"]) == list(found["results"][0]["macro_f1"])
