"""Do messages that programs really raise find their record, and are messages of the interpreter left alone?

CPython's own library is indexed. Its test modules run in processes of their own, with a trace function that notes every
exception where it is raised. An exception's truth is the record that has a site at that line; where none has, the
interpreter or C code raised it, and any record is a false explanation. Each is then looked up as its traceback shows
it, and again without the frame, as a bare line.

    python benchmarks/catalog/ground_truth.py [--store FILE] [--modules test_json …] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, this file's own folder would be the first

from overhead import machine
from windtunnel.catalog.indexing import index
from windtunnel.catalog.match.look_up import Explained, resolve
from windtunnel.catalog.match.reading import read
from windtunnel.catalog.source.model import SourceFile
from windtunnel.catalog.store import Store
from windtunnel.catalog.template import num_literal_characters

RESULTS = Path(__file__).parents[1] / "results"
LIBRARY = Path(sysconfig.get_paths()["stdlib"])
MODULES = (
    "test_argparse", "test_ast", "test_asyncio.test_queues", "test_base64", "test_binascii", "test_bisect", "test_bz2",
    "test_calendar", "test_cmd_line_script", "test_codecs", "test_collections", "test_configparser", "test_contextlib",
    "test_copy", "test_csv", "test_ctypes", "test_dataclasses", "test_datetime", "test_decimal", "test_difflib",
    "test_doctest", "test_email.test_email", "test_enum", "test_filecmp", "test_fileinput", "test_fractions",
    "test_ftplib", "test_functools", "test_getopt", "test_gettext", "test_glob", "test_gzip", "test_hashlib",
    "test_heapq", "test_hmac", "test_html", "test_http_cookies", "test_httplib", "test_imaplib",
    "test_importlib.test_util", "test_inspect", "test_io", "test_ipaddress", "test_itertools", "test_json",
    "test_linecache", "test_locale", "test_logging", "test_lzma", "test_mailbox", "test_mimetypes", "test_netrc",
    "test_ntpath", "test_operator", "test_optparse", "test_os", "test_pathlib", "test_pickle", "test_pkgutil",
    "test_platform", "test_plistlib", "test_posixpath", "test_pprint", "test_pstats", "test_quopri", "test_random",
    "test_re", "test_reprlib", "test_runpy", "test_sched", "test_secrets", "test_shelve", "test_shlex", "test_shutil",
    "test_smtplib", "test_socketserver", "test_ssl", "test_statistics", "test_string", "test_struct",
    "test_subprocess", "test_tarfile", "test_tempfile", "test_textwrap", "test_tomllib", "test_tokenize",
    "test_traceback", "test_types", "test_typing", "test_unittest", "test_urllib", "test_urllib2", "test_urlparse",
    "test_uuid", "test_venv", "test_warnings", "test_weakref", "test_xml_etree", "test_xmlrpc", "test_zipfile",
    "test_zoneinfo",
)  # fmt: skip
_MOST_S = 60
"""Of one test module."""
_MOST_OF_A_MODULE = 4_000
_NOT_INDEXED = ("test", "tests", "idlelib", "site-packages", "lib2to3", "__pycache__", "turtledemo", "ensurepip")

TRACER = '''
"""Notes exceptions where they are raised: in a frame of the library whose traceback goes no deeper."""
import os, sys

_out = os.environ.get("EXCEPTIONS_TO")
if _out:
    import json, linecache, threading
    _library, _most, _seen = os.environ["LIBRARY"] + os.sep, int(os.environ["MOST"]), set()
    _file = open(_out, "a", encoding="utf-8", errors="backslashreplace")
    _getpid = os.getpid
    _pid = _getpid()

    def _note(frame, kind, value, trace):
        path = frame.f_code.co_filename
        if trace is None or trace.tb_next is not None or len(_seen) >= _most or _getpid() != _pid:
            return
        try:
            message = str(value)
        except BaseException:
            return
        key = (path, trace.tb_lineno, kind.__qualname__, message)
        if key in _seen or len(message) > 4000:
            return
        _seen.add(key)
        module = kind.__module__
        name = kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"
        source = linecache.getline(path, trace.tb_lineno).strip()
        _file.write(json.dumps([path, trace.tb_lineno, frame.f_code.co_name, name, message, source]) + "\\n")
        _file.flush()

    def _local(frame, event, argument):
        if event == "exception":
            kind, value, trace = argument
            if isinstance(value, BaseException):
                _note(frame, kind, value, trace)
        return _local

    def _global(frame, event, argument):
        path = frame.f_code.co_filename
        if path.startswith(_library) and not path.startswith((_library + "test" + os.sep, _library + "unittest")):
            frame.f_trace_lines = False
            return _local
        return None

    sys.settrace(_global)
    threading.settrace(_global)
'''


class Raised(NamedTuple):
    """An exception that was raised."""

    path: str
    line: int
    function: str
    type: str
    message: str
    source: str

    @property
    def traceback(self) -> str:
        """As the interpreter prints it, from the frame that raised it on."""
        frame = f'  File "{self.path}", line {self.line}, in {self.function}\n'
        source = f"    {self.source}\n" if self.source else ""
        return f"Traceback (most recent call last):\n{frame}{source}{self.bare}\n"

    @property
    def bare(self) -> str:
        """Its last line."""
        return f"{self.type}: {self.message}" if self.message else self.type


class Library:
    """CPython's library without its tests, as a source."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name, self.version, self.commit = "cpython", platform.python_version(), None
        self.spec = str(folder)

    def files(self) -> Iterator[SourceFile]:
        """Those of the library itself."""
        for file in sorted(self._folder.rglob("*.py")):
            path = file.relative_to(self._folder)
            if not set(path.parts[:-1]) & set(_NOT_INDEXED):
                found = file.stat()
                yield SourceFile(path.as_posix(), found.st_size, f"{found.st_size}-{found.st_mtime_ns}")

    def read(self, path: str) -> bytes:
        """A file's bytes."""
        return (self._folder / path).read_bytes()

    def permalink(self, path: str, start: int, end: int) -> str | None:
        """There is none for an installation."""
        return None


def provoke(module: str, folder: Path) -> list[Raised]:
    """Run a test module, and return what was raised meanwhile in the library."""
    (folder / "sitecustomize.py").write_text(TRACER)
    out = folder / f"{module}.jsonl"
    environment = os.environ | {
        "PYTHONPATH": str(folder), "EXCEPTIONS_TO": str(out), "LIBRARY": str(LIBRARY), "MOST": str(_MOST_OF_A_MODULE),
        "TMPDIR": str(folder),
    }  # fmt: skip
    command = [sys.executable, "-W", "ignore", "-m", "unittest", "-q", f"test.{module}"]
    try:
        subprocess.run(
            command, env=environment, cwd=folder, timeout=_MOST_S, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pass
    if not out.exists():
        return []
    raised = []
    for line in out.read_text(encoding="utf-8").splitlines():
        try:
            raised.append(Raised(*json.loads(line)))
        except ValueError:
            continue  # cut off
    return raised


class Truth:
    """Which record an exception belongs to: that of the site at its line."""

    def __init__(self, store: Store) -> None:
        self._sites: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        self.templates: dict[str, int] = {}
        for matchable in store.matchables():
            says = matchable.message_source == "message"
            self.templates[matchable.id] = num_literal_characters(matchable.template) if says else 0
            for path, start, end, _ in matchable.places:
                if matchable.kind not in ("log", "fatal log"):
                    self._sites[path].append((start, end, matchable.id))

    def of(self, raised: Raised) -> set[str]:
        """Ids of the records with a site at the line; none: no statement raised it."""
        path = Path(raised.path).relative_to(LIBRARY).as_posix()
        return {key for start, end, key in self._sites[path] if start <= raised.line <= end}


def looked_up(text: str, store: Store) -> Explained:
    """The root cause that a text's last event has."""
    return resolve(read(text)[0][0], store)


def measure(raised: list[Raised], store: Store, truth: Truth) -> dict[str, Any]:
    """Shares of what was found, with frames and without, and how often each kind of evidence was right."""
    counts: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for each in raised:
        right = truth.of(each)
        has_text = any(truth.templates[key] for key in right)
        group = "template" if has_text else "statement" if right else "interpreter"
        counts[group] += 1
        for form, text in (("frame", each.traceback), ("bare", each.bare)):
            item = looked_up(text, store)
            best = item.candidates[0] if item.candidates else None
            outcome = "none" if best is None else "right" if best.matchable.id in right else "false"
            counts[f"{group} {form} {outcome}"] += 1
            if best is not None:
                counts[f"{group} {form} {outcome} {item.answer}"] += 1
                kinds[f"{form}: {best.kind}"][outcome] += 1
                kinds[f"{form}: {best.kind}"]["expected"] += round(best.confidence * 1000)
            if outcome == "false" or (outcome == "none" and group == "template"):
                found = (best.kind, best.matchable.type, str(best.matchable.template)[:120]) if best else ("", "", "")
                wrong[f"{group} {form} {outcome}"].append((each.traceback, *found))
    return {"counts": dict(counts), "kinds": {kind: dict(n) for kind, n in kinds.items()}, "wrong": wrong}


def figures(counts: dict[str, int]) -> dict[str, float | int]:
    """The figures that the goals are about."""

    def share(part: str, whole: str) -> float:
        return round(counts.get(part, 0) / max(counts.get(whole, 0), 1), 4)

    return {
        "num_exceptions": sum(counts.get(group, 0) for group in ("template", "statement", "interpreter")),
        "num_of_templates": counts.get("template", 0),
        "num_of_statements": counts.get("statement", 0),
        "num_of_interpreter": counts.get("interpreter", 0),
        "top_1_with_frame": share("template frame right", "template"),
        "top_1_with_frame_statements": share("statement frame right", "statement"),
        "top_1_bare": share("template bare right", "template"),
        "false_with_frame": share("interpreter frame false", "interpreter"),
        "false_found_with_frame": share("interpreter frame false found", "interpreter"),
        "possible_bare_of_interpreter": share("interpreter bare false", "interpreter"),
        "false_found_bare": share("interpreter bare false found", "interpreter"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--exceptions", type=Path, help="keep them there; where the file exists, nothing is run")
    parser.add_argument("--modules", nargs="+", default=MODULES)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--wrong", type=int, default=0, help="print so many of each kind that went wrong")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.store or Path(folder) / "catalog.sqlite"
        if not path.exists():
            with Store.open(path, write=True) as store:
                index(Library(LIBRARY), store)
        with Store.open(path) as store:
            truth = Truth(store)
            raised = _exceptions(arguments, Path(folder))
            began = time.process_time()
            measured = measure(raised, store, truth)
            spent_s = time.process_time() - began
        result = {
            "benchmark": "catalog-ground-truth",
            "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "machine": machine.facts(),
            "revision": machine.revision(),
            "num_modules": len(arguments.modules),
            "figures": figures(measured["counts"]),
            "cpu_ms_a_look_up": round(spent_s * 1000 / max(2 * len(raised), 1), 3),
            "kinds": {
                kind: {
                    "num": sum(n.get(o, 0) for o in ("right", "false", "none")),
                    "right": round(n.get("right", 0) / max(n.get("right", 0) + n.get("false", 0), 1), 3),
                    "confidence": round(n["expected"] / 1000 / max(n.get("right", 0) + n.get("false", 0), 1), 3),
                }
                for kind, n in sorted(measured["kinds"].items())
            },
            "counts": measured["counts"],
        }
    print(json.dumps(result, indent=2))
    for group, cases in measured["wrong"].items():
        for case in cases[: arguments.wrong]:
            print("\n---", group, case[1:], case[0], sep="\n")
    out = arguments.output or RESULTS / time.strftime("catalog-ground-truth-%Y%m%d-%H%M%S.json")
    out.write_text(json.dumps(result, indent=2) + "\n")


def _exceptions(arguments: argparse.Namespace, folder: Path) -> list[Raised]:
    kept: Path | None = arguments.exceptions
    if kept is not None and kept.exists():
        return [Raised(*json.loads(line)) for line in kept.read_text(encoding="utf-8").splitlines()]
    raised: dict[Raised, None] = {}
    for module in arguments.modules:
        found = provoke(module, folder)
        raised |= dict.fromkeys(found)
        print(f"{module}: {len(found)}", file=sys.stderr)
    if kept is not None:
        kept.write_text("".join(json.dumps(each) + "\n" for each in raised), encoding="utf-8")
    return list(raised)


if __name__ == "__main__":
    main()
