"""Python: what is raised, and with which message."""

from __future__ import annotations

import pytest

from tests.catalog.extract.reading import guards, only, sites
from windtunnel.catalog.template import Hole, identity_of, text_of


@pytest.mark.parametrize(
    ("expression", "template"),
    [
        ('"plain"', "plain"),
        ('"a" "b"  # why\n  "c"', "abc"),
        ('("in " + place + ": " + why)', "in {place}: {why}"),
        ('f"no {name} in {len(items)} items"', "no {name} in {len(items)} items"),
        ('f"{{braces}} and {x}"', "{braces} and {x}"),
        ('rf"a\\d {x}"', "a\\d {x}"),
        ('"tab\\t\\N{BULLET}\\x41"', "tab\t•A"),
        ('"%s of %d, 100%%" % (a, b)', "{a} of {b}, 100%"),
        ('"%(name)s is %(size).1f" % {"name": n, "size": s}', "{n} is {s}"),
        ('"%s" " is bad" % value', "{value} is bad"),
        ('"{} and {}".format(a, b.c)', "{a} and {b.c}"),
        ('"{1}{0}! {n} {n.x} {0!r}".format(a, b, n=node)', "{b}{a}! {node} {node.x} {a}"),
        ('"{{}} {x}".format(**facts)', "{} {x}"),
        ('", ".join(["a", f"b {x}"])', "a, b {x}"),
        ('textwrap.dedent("""\n    two\n      lines {}\n    """).format(x)', "\ntwo\n  lines {x}\n"),
        ('" about ".strip()', "about"),
        ('_("told in %s") % language', "told in {language}"),
        ('str("text")', "text"),
        ('"mode " + ("on" if flag else "off")', 'mode {"on" if flag else "off"}'),
        ('error or "told by nobody"', "told by nobody"),
    ],
)
def test_a_message_is_found_however_it_is_written(expression: str, template: str) -> None:
    site = only("a.py", f"def f():\n raise ValueError({expression})\n")
    assert (site.type, text_of(site.template or ())) == ("ValueError", template)


@pytest.mark.parametrize(
    ("body", "template"),
    [
        ('m = "one"\n raise E(m)', "one"),
        ('m = "one "\n m += f"two {x}"\n raise E(m)', "one two {x}"),
        ('m = "one"\n m = m + " two"\n raise E(m)', "one two"),
        ('m = None\n if x:\n  m = f"only {x}"\n raise E(m)', "only {x}"),
        ('if x:\n  m = "then"\n  raise E(m)\n else:\n  m = "else"', "then"),
        ('e = E(f"made {x}")\n e.add(1)\n raise e', "made {x}"),
        ('raise E("a %s" % x).with_traceback(tb) from None', "a {x}"),
        ('raise E(CONSTANT + ": " + x)', "of the module: {x}"),
        ('raise E(f"{CONSTANT}: {x}")', "of the module: {x}"),
        ('raise E(message_of(x))', "made elsewhere of {thing}"),
        ('raise E(code, "short", detail="the detail")', "the detail"),
        ('raise E("ab", "this is the longest text")', "this is the longest text"),
        ('raise E(5, text=name, why="because of it")', "because of it"),
    ],
)  # fmt: skip
def test_names_are_followed_to_the_text_that_they_stand_for(body: str, template: str) -> None:
    before = 'CONSTANT = "of the module"\ndef message_of(thing):\n return f"made elsewhere of {thing}"\n'
    site = only("a.py", f"{before}def f(x):\n {body}\n")
    assert (site.type, text_of(site.template or ())) == ("E", template)


def test_a_message_that_branches_choose_is_a_site_for_each_of_them_with_its_guards() -> None:
    first, second = sites(
        "a.py", 'def f(x):\n if x > 1:\n  m = f"large {x}"\n else:\n  m = "small"\n raise ValueError(m)\n'
    )
    assert (text_of(first.template or ()), guards(first)) == ("large {x}", [("if", True, "x > 1")])
    assert (text_of(second.template or ()), guards(second)) == ("small", [("if", False, "x > 1")])
    assert [line.number for line in second.excerpt] == [2, 4, 5, 6]
    arms = sites("a.py", 'raise ValueError("yes" if flag else f"no {x}")')
    assert [(text_of(arm.template or ()), guards(arm)) for arm in arms] == [
        ("yes", [("if", True, "flag")]),
        ("no {x}", [("if", False, "flag")]),
    ]


@pytest.mark.parametrize(
    ("code", "hole"),
    [
        ('def f(x: Literal["a", "b"]):\n raise E(f"in {x}")', Hole("x", values=("a", "b"))),
        ('for x in ("a", "b"):\n raise E(f"in {x}")', Hole("x", values=("a", "b"))),
        ('def f(y):\n x = "a" if y else "b"\n raise E(f"in {x}")', Hole('"a" if y else "b"', values=("a", "b"))),
        ('def f(y):\n if y:\n  x = "a"\n else:\n  x = "b"\n raise E(f"in {x}")', Hole("x", values=("a", "b"))),
        ('def _f(x):\n raise E(f"in {x}")\n_f("a")\n_f(x="b")', Hole("x", values=("a", "b"))),
        ('def _f(x):\n raise E(f"in {x}")\n_f("a")\n_f(name)', Hole("x")),
        ('def _f(x):\n raise E(f"in {x}")\n_f("a")\nhand_on(_f)', Hole("x")),
        ('def f(x):\n raise E(f"in {x}")\nf("a")', Hole("x")),
        ('raise E(f"in {x!r:>{width}}")', Hole("x", "!r:>{width}")),
        ('raise E("in %05.1f" % x)', Hole("x", "%05.1f")),
        ('raise E("in {0:x}".format(x))', Hole("x", "x")),
        ('raise E(f"in {compute(\n  a,  # first\n  b,\n)}")', Hole("compute(a, b)")),
    ],
)
def test_a_hole_has_its_expression_its_format_and_the_texts_that_it_can_be(code: str, hole: Hole) -> None:
    assert only("a.py", code).template == ("in ", hole)


def test_a_hole_that_names_itself_keeps_its_white_space() -> None:
    assert only("a.py", 'raise E(f"got {value = }")').template == ("got value = ", Hole("value", "!r"))
    assert only("a.py", 'raise E(f"got {value=:.1f}")').template == ("got value=", Hole("value", ".1f"))


def test_a_name_that_is_set_in_another_function_gives_no_text() -> None:
    code = 'state = "new"\ndef g():\n global state\n state = "old"\ndef f():\n raise E(f"in {state}")\n'
    assert only("a.py", code).template == ("in ", Hole("state"))


@pytest.mark.parametrize(
    "body",
    ["raise", "raise e", "raise error", "raise self.error", "raise errors[0]", "raise future.exception()"],
)
def test_an_error_that_was_there_before_is_no_error_of_its_own(body: str) -> None:
    assert not sites("a.py", f"def f(self, error):\n try:\n  g()\n except E as e:\n  {body}\n")


@pytest.mark.parametrize(
    ("statement", "type_"),
    [
        ("raise ValueError", "ValueError"),
        ("raise pkg.errors.Refused()", "pkg.errors.Refused"),
        ("raise socket.timeout", "socket.timeout"),
        ("raise error", "error"),
        ("raise made()", "Made"),
    ],
)
def test_an_error_without_a_message_has_its_type_and_statement(statement: str, type_: str) -> None:
    code = f"import socket\nclass error(Exception): pass\ndef made():\n return Made()\ndef f():\n {statement}\n"
    site = only("a.py", code, template=False)
    assert (site.type, site.statement, site.message_source) == (type_, statement, "statement")


def test_an_assertion_without_a_message_stands_for_its_condition() -> None:
    site = only("a.py", "assert (\n x in (1, 2)  # why\n and y\n)", template=False)
    assert (site.type, site.message_source, site.statement) == ("AssertionError", "condition", "x in (1, 2) and y")
    assert guards(site) == [("assert", False, "x in (1, 2) and y")]
    told = only("a.py", 'assert x, f"no {x}"')
    assert (text_of(told.template or ()), told.message_source) == ("no {x}", "message")


@pytest.mark.parametrize(
    ("statement", "kind", "type_", "template"),
    [
        ('logger.error("no %s", name, exc_info=True)', "log", "logger.error", "no {name}"),
        ('self._log.exception(f"no {name}")', "log", "logger.exception", "no {name}"),
        ('logging.getLogger(__name__).critical("over")', "fatal log", "logger.critical", "over"),
        ('events.error("told")', "log", "logger.error", "told"),
        ('sys.exit(f"no {name}")', "exit", "SystemExit", "no {name}"),
        ('raise SystemExit("stop")', "exit", "SystemExit", "stop"),
        ('print(f"no {name}", file=sys.stderr)\nsys.exit(2)', "exit", "SystemExit", "no {name}"),
        ('parser.error("--a needs --b")', "usage", "parser.error", "--a needs --b"),
        ('flags.error("--a needs --b")', "usage", "parser.error", "--a needs --b"),
    ],
)
def test_exits_usage_errors_and_logs_are_told_errors(statement: str, kind: str, type_: str, template: str) -> None:
    made = "events = logging.getLogger('e')\nflags = argparse.ArgumentParser()\n"
    site = only("a.py", made + statement)
    assert (site.kind, site.type, text_of(site.template or ())) == (kind, type_, template)


@pytest.mark.parametrize(
    "statement", ['result.error("x")', 'logger.warning("x")', "sys.exit(0)", "sys.exit(main())", "sys.exit()"]
)
def test_what_tells_no_error_is_none(statement: str) -> None:
    assert not sites("a.py", statement)


def test_arguments_keep_their_keywords_and_what_is_no_text_is_a_hole() -> None:
    site = only("a.py", 'raise ApiError(404, path, detail=f"no {path}", *more)', template=True)
    assert [(keyword, identity_of(parts)) for keyword, parts in site.arguments] == [
        ("", "{}"), ("", "{}"), ("detail", "no {}"), ("*", "{}"),
    ]  # fmt: skip
    assert site.arguments[0][1] == (Hole("404", values=("404",)),)
