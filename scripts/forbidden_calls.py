"""Refuses calls that run what a file says: part of ``make lint``, beside what ruff's own rules see.

python scripts/forbidden_calls.py FILE_OR_FOLDER …: a line for each forbidden call; exit code 1 if
there is one.

A call is judged by the full name that imports give it, not by its spelling: ``from torch import
load as get`` is ``torch.load``. Exceptions are listed below, each with its reason.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["forbidden", "main"]

# Not to be imported or used at all: they run code from data, or start what was not asked for.
FORBIDDEN = {
    **dict.fromkeys(
        (
            "pickle",
            "cPickle",
            "_pickle",
            "cloudpickle",
            "dill",
            "jsonpickle",
            "joblib",
            "shelve",
            "marshal",
        ),
        "unpickling runs code; use JSON or safetensors (longtail.store)",
    ),
    **dict.fromkeys(
        (
            "torch.load",
            "torch.save",
            "torch.jit.load",
            "torch.hub",
            "torch.package",
            "torch.serialization",
        ),
        "it pickles; use safetensors (longtail.store)",
    ),
    **dict.fromkeys(
        ("pandas.read_pickle", "numpy.fromregex", "numpy.DataSource"), "use longtail.data"
    ),
    **dict.fromkeys(
        ("eval", "exec", "compile", "__import__", "runpy", "code", "imp", "builtins"),
        "it runs text as code",
    ),
    **dict.fromkeys(
        ("yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all"), "use JSON or TOML"
    ),
    **dict.fromkeys(
        ("os.system", "os.popen", "pty.spawn", "commands"), "use subprocess.run with a list"
    ),
    "tempfile.mktemp": "somebody else may take the name; use TemporaryDirectory",
    "huggingface_hub": "nothing is downloaded",
}
_BUILT_IN = ("eval", "exec", "compile", "__import__", "builtins")
PREFIXES = ("os.exec", "os.spawn", "os.posix_spawn")
# What must be said, and be this, whoever is called.
KEYWORDS = {"allow_pickle": False, "trust_remote_code": False, "shell": False, "weights_only": True}
# What must be said in these calls of the library.
NEEDED = {
    "numpy.load": {"allow_pickle": False},
    "numpy.lib.format.write_array": {"allow_pickle": False},
    "numpy.lib.format.read_array": {"allow_pickle": False},
    ".from_pretrained": {"trust_remote_code": False, "local_files_only": True},
}
# Only where they are listed.
GUARDED = ("subprocess", "ctypes.CDLL", "ctypes.cdll", "importlib.import_module")
ALLOWED = {
    (
        "src/longtail/__init__.py",
        "importlib.import_module",
    ): "modules of its own table of public names",
    (
        "src/longtail/data/formats.py",
        "importlib.import_module",
    ): "functions of its own table of formats",
    (
        "src/longtail/methods/registry.py",
        "importlib.import_module",
    ): "modules of its own table of families",
    (
        "src/longtail/networks/losses/base.py",
        "importlib.import_module",
    ): "modules of its own folder, whose names are the only values that the setting accepts",
    (
        "src/longtail/store/durable.py",
        "ctypes.CDLL",
    ): "renameat2 of the C library that is loaded already",
    ("src/longtail/cli/doctor.py", "subprocess"): "asks this very Python, with a list of words",
    (
        "src/longtail/forecast/gpus.py",
        "subprocess",
    ): "asks nvidia-smi for the devices, with a list of words",
}


def forbidden(source: str, file: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and reason of every forbidden call; ``file`` is the path from the root of
    the repository.
    """
    tree = ast.parse(source, file)
    names = dict(_imports(tree))
    for node in ast.walk(tree):
        for name in _used(node, names):
            if reason := _reason(name, file):
                yield node.lineno, name, reason  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            yield from _arguments(node, names, file)


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield what each imported name of a file stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield alias.asname or top, alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _used(node: ast.AST, names: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Attribute | ast.Name) and (name := _full_name(node, names)):
        yield name


def _full_name(node: ast.expr, names: dict[str, str]) -> str:
    """Return «numpy.load» for ``np.load``; nothing for what is not a name with dots."""
    if isinstance(node, ast.Name):
        if node.id in _BUILT_IN and isinstance(node.ctx, ast.Load):
            return names.get(node.id, node.id)
        return names.get(node.id, "")  # other names are defined in the file
    if isinstance(node, ast.Attribute):
        before = _full_name(node.value, names)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _reason(name: str, file: str) -> str:
    parts = name.split(".")
    heads = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    for head in heads:
        if head in FORBIDDEN:
            return FORBIDDEN[head]
        if head in GUARDED and file.startswith("src/") and (file, head) not in ALLOWED:
            return "it is allowed in few places, which scripts/forbidden_calls.py lists"
    if any(head.startswith(PREFIXES) for head in heads):
        return "use subprocess.run with a list"
    return ""


def _arguments(call: ast.Call, names: dict[str, str], file: str) -> Iterator[tuple[int, str, str]]:
    called = _full_name(call.func, names)
    if not called and isinstance(call.func, ast.Attribute):
        called = f".{call.func.attr}"
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    for name, value in KEYWORDS.items():
        if name in keywords and not _is(keywords[name], value):
            yield call.lineno, f"{called}({name}=…)", f"expected {name}={value}"
    if not file.startswith("src/"):
        return
    for ending, needed in NEEDED.items():
        if called == ending or (ending.startswith(".") and f".{called}".endswith(ending)):
            for name, value in needed.items():
                if name not in keywords or not _is(keywords[name], value):
                    yield call.lineno, called, f"expected {name}={value}"


def _is(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def main(places: list[str]) -> int:
    """Print what is forbidden in files and folders; return the exit code."""
    root = Path(__file__).resolve().parent.parent
    n_problems = 0
    for path in map(Path, places):
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            known = file.resolve()
            name = file.as_posix()
            if known.is_relative_to(root):
                name = known.relative_to(root).as_posix()
            for line, what, reason in forbidden(file.read_text(), name):
                n_problems += 1
                print(f"{name}:{line}: {what} is forbidden: {reason}")
    return min(n_problems, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
