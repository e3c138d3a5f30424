"""What users see: exported names, commands, documents, layers and imports."""

from __future__ import annotations

import ast
import inspect
import json
import multiprocessing
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

import crg
import crg.checks
from crg.cli import COMMANDS, main
from documents import DOCUMENTS, ROOT, code_blocks, commands, run_python_blocks
from synthetic import gaussian_stream

SOURCES = sorted((ROOT / "src").rglob("*.py"))
PYTHON_FILES = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py"))]


def test_exported_names_are_listed() -> None:
    """Every exported name exists and is listed once, in order, and nothing else may be imported."""
    assert set(dir(crg)) == {*crg.__all__, "__version__"}
    for module in (crg, crg.checks):
        assert len(set(module.__all__)) == len(module.__all__)
        assert set(module.__all__) <= set(dir(module))
        assert all(hasattr(module, name) for name in module.__all__)
    assert sorted([*crg._HOME_OF, *crg._MODULES]) == crg.__all__
    assert not hasattr(crg, "no_such_name")


@pytest.mark.parametrize("name", crg.__all__)
def test_exported_names_are_documented_and_typed(name: str) -> None:
    """Each exported class and function, and each public method, has a docstring and types."""
    thing = getattr(crg, name)
    assert inspect.getdoc(thing)
    public = {} if not inspect.ismodule(thing) else vars(thing)
    named = [value for key, value in public.items() if not key.startswith("_")]
    ours = [value for value in named if getattr(value, "__module__", "") == f"crg.{name}"]
    for function in [f for each in ours or [thing] for f in _functions_of(each)]:
        assert function.__doc__, function.__qualname__
        hints = inspect.signature(function)
        assert hints.return_annotation is not inspect.Signature.empty, function.__qualname__
        for parameter in hints.parameters.values():
            typed = parameter.annotation is not inspect.Parameter.empty
            assert typed or parameter.name in ("self", "cls"), f"{name}: {parameter}"


def test_layers_hold() -> None:
    """The import contracts of pyproject.toml are kept."""
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import crg; crg.list_methods()", {"torch", "rich", "click", "matplotlib", "numba"}),
        ("from crg.cli import main; main(['--help'], standalone_mode=False)",
         {"numpy", "rich", "PIL", "crg.cli.compare"}),
        ("import crg, numpy as np; crg.Classifier('mini', ['red', 'blue']).predict(np.eye(9))",
         {"torch"}),
    ],
    ids=["import", "help", "mini"],
)  # fmt: skip
def test_import_and_help_are_light(code: str, heavy: set[str]) -> None:
    """They load no torch and nothing that draws; the list of commands loads no command either."""
    code = f"import sys; {code}; print('loaded', *{heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded"


def test_files_stay_small_and_never_import_torch_at_module_level() -> None:
    """No file is longer than 400 lines, no module needs torch, and the changelog is up to date."""
    assert not [path for path in SOURCES if "torch" in _imported_at_module_level(path)]
    assert not [path for path in PYTHON_FILES if path.read_text().count("\n") > 400]
    assert f"## [{crg.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_explain_themselves(name: str) -> None:
    """Each command has help with an example, help for its options, and a place in the documents."""
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert COMMANDS[name] == command.get_short_help_str(limit=100)
    text = command.get_help(click.Context(command, info_name=name, parent=click.Context(main)))
    assert re.search(rf"^\s*(\$ )?crg {name}\b", text.split("\n", 1)[1], re.MULTILINE), text
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"crg {name} {parameter.opts[0]}"
    documents = [path for path in DOCUMENTS if path.name != "CONTRIBUTING.md"]
    assert any(words[:2] == ["crg", name] for path in documents for words in commands(path))


def test_every_promise_names_its_test() -> None:
    """SECURITY.md and docs/service.md name a test that exists for every promise."""
    known = set(re.findall(r"def (test_\w+)", "".join(map(Path.read_text, PYTHON_FILES))))
    security, service = (ROOT / "SECURITY.md").read_text(), (ROOT / "docs/service.md").read_text()
    table = security.partition("| promise | test |\n| --- | --- |\n")[2].partition("\n\n")[0]
    rows = service.partition("each with its test:\n\n")[2].partition("\n\n")[0]
    promises = [*table.splitlines(), *rows.splitlines()]
    assert len(promises) > 20 and all("`test_" in each for each in promises)
    assert set(re.findall(r"`(test_\w+)`", security + service)) <= known


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_commands_that_exist(path: Path) -> None:
    """Commands, options and targets exist; no placeholder is left, nor an empty generated block."""
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for words in commands(path):
        if words[0] == "crg":
            _parse(words[1:])
        if words[0] == "make":
            assert all("=" in word or word in targets for word in words[1:]), words
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"@[A-Z]+@|TODO|TBD", text)
    for name in re.findall(r"<!-- (\w+):begin -->", text):
        block = text.split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0]
        assert block.strip(), f"{path.name} has an empty block {name}"


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_documented_python_runs(tmp_path: Path) -> None:
    """The Python blocks of each document run from top to bottom, beside a feature file.

    The libraries are imported once; each document then runs in a fork of that process.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["crg.features.files", "documents"])
    stream = gaussian_stream(n=60, n_classes=4, width=16, n_views=2)
    for number, path in enumerate(DOCUMENTS):
        (place := tmp_path / str(number)).mkdir()
        crg.write_features(place / "features.npz", stream)
        child = server.Process(target=run_python_blocks, args=(path, place))
        child.start()
        child.join()
        assert child.exitcode == 0, f"{path}:\n{(place / 'said.txt').read_text()[-3000:]}"


def test_the_readme_shows_a_gain_and_both_ways_in(capsys: pytest.CaptureFixture[str]) -> None:
    """Its first example ends with about the numbers of its last comment; commands follow."""
    shown = [words[:2] for words in commands(ROOT / "README.md")]
    assert any(words[0] == "crg" for words in shown)
    assert ["make", "demo"] in shown and ["make", "test"] in shown
    block = code_blocks(ROOT / "README.md", "python")[0]
    exec(block, {})
    printed, said = ([int(each) for each in re.findall(r"\d+", text.splitlines()[-1])]
                     for text in (capsys.readouterr().out, block))  # fmt: skip
    assert printed == pytest.approx(said, abs=4) and printed[1] > printed[0] + 20


def test_the_container_runs_what_is_documented() -> None:
    """The image starts the service with existing options, unprivileged, on its volume."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    [command] = [json.loads(line[4:]) for line in lines if line.startswith("CMD ")]
    _parse(command)
    data = command[command.index("--data") + 1]
    assert f"VOLUME {data}" in lines
    assert f"      - sessions:{data}" in (ROOT / "compose.yaml").read_text().splitlines()
    assert lines.index("USER crg") < lines.index('ENTRYPOINT ["crg"]')
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [wanted] = [line.partition("=")[2] for line in lines if line.startswith("ARG EXTRAS=")]
    assert set(wanted.split(",")) <= set(project["optional-dependencies"])


def test_wrong_commands_would_be_found() -> None:
    """The check of documented commands refuses commands and options that do not exist."""
    for words in (["no-such-command"], ["demo", "--no-such-option"]):
        with pytest.raises(click.UsageError):
            _parse(words)


def _parse(words: list[str]) -> None:
    """Check a command line against the commands and their options, without running it."""
    group = click.Context(main, info_name="crg")
    _, rest, _ = main.make_parser(group).parse_args(list(words))
    if not rest:
        return  # crg --help, crg --version
    command = main.get_command(group, rest[0])
    if command is None:
        raise click.UsageError(f"there is no crg {rest[0]}")
    command.make_parser(click.Context(command, parent=group)).parse_args(rest[1:])


def _functions_of(thing: Any) -> list[Any]:
    if inspect.isfunction(thing):
        return [thing]
    members = vars(thing).items()
    public = [value for name, value in members if not name.startswith("_")]
    functions = [v.fget if isinstance(v, property) else v for v in public]
    return [function for function in functions if inspect.isfunction(function)]


def _imported_at_module_level(path: Path) -> set[str]:
    """First parts of the module names that are imported when the file is."""
    names: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
    return names
