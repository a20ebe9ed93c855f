"""Python: functions, classes, handlers, calls, imports, and what tests expect."""

from __future__ import annotations

import inspect

import pytest

import windtunnel.errors
from windtunnel.catalog.extract import extract
from windtunnel.catalog.facts import ClassFacts, FileFacts
from windtunnel.catalog.template import text_of


def facts_of(code: str, path: str = "pkg/a.py") -> FileFacts:
    facts = extract(path, code.encode())
    assert facts.problem is None, facts.problem
    return facts


def the_class(code: str) -> ClassFacts:
    return facts_of(code).classes[-1]


@pytest.mark.parametrize(
    ("body", "does"),
    [
        ("raise", "re-raises"),
        ("raise e", "re-raises"),
        ("future.set_exception(e)", "re-raises"),
        ("if a:\n   raise\n  g()", "re-raises"),
        ("raise Other('x') from e", "wraps"),
        ("logger.exception('x')\n  raise", "re-raises"),
        ("logger.error('x')\n  return 1", "logs"),
        ("logger.warning('x')\n  return 1", "warns"),
        ("warnings.warn('x')", "warns"),
        ("print('x')\n  sys.exit(1)", "ends the process"),
        ("return JSONResponse(status_code=400)", "answers"),
        ("return None", "returns"),
        ("pass", "ignores"),
        ("continue", "ignores"),
        ("x = None", "ignores"),
    ],
)
def test_a_handler_is_told_by_what_it_does(body: str, does: str) -> None:
    code = f"def f():\n try:\n  first()\n  g()\n except (A, B) as e:\n  {body}\n"
    (handler,) = facts_of(code).handlers
    assert (handler.body_start, handler.body_end, handler.start) == (3, 4, 5)
    assert (handler.catches, handler.does, handler.function) == (("A", "B"), does, 0)


def test_what_a_clause_does_is_not_what_the_one_before_does() -> None:
    code = "try:\n g()\nexcept A:\n raise\nexcept B:\n pass\ntry:\n h()\nexcept C:\n logger.error('x')\n"
    assert [handler.does for handler in facts_of(code).handlers] == ["re-raises", "ignores", "logs"]


def test_suppress_ignores() -> None:
    (handler,) = facts_of("with contextlib.suppress(KeyError, pkg.B):\n a()\n b()\n").handlers
    assert (handler.catches, handler.does, handler.body_start, handler.body_end) == (
        ("KeyError", "pkg.B"), "ignores", 2, 3,
    )  # fmt: skip


def test_another_object_s_suppress_handles_nothing() -> None:
    assert facts_of("with self.balancer.suppress():\n a()\n").handlers == ()
    assert len(facts_of("with suppress(KeyError):\n a()\n").handlers) == 1


def test_our_own_errors_have_the_templates_that_their_base_class_fills() -> None:
    facts = facts_of(inspect.getsource(windtunnel.errors), "windtunnel/errors.py")
    classes = {each.name: each for each in facts.classes}
    assert classes["WindtunnelError"].uses_text == "happened"
    told = classes["ConnectFailed"]
    assert text_of(told.texts["happened"]) == "no connection to {target} ({phase}): {reason}"
    assert [name for name, _ in told.parameters][:3] == ["target", "phase", "reason"]


@pytest.mark.parametrize(
    ("body", "template", "renders"),
    [
        ("def __init__(self, a, b=1): super().__init__(f'no {a} of {b}')", "no {a} of {b}", None),
        ("def __init__(self, a): ValueError.__init__(self, 'no %s' % a)", "no {a}", None),
        ("def __init__(self, a):\n  self.x = a\n def __str__(self): return f'no {self.x}'", "no {a}", None),
        ("def __init__(self, a):\n  self.message = 'no ' + a", "no {a}", None),
        ("def __init__(self, a):\n  m = '%s: line %d' % (a, a.n)\n  super().__init__(m)", "{a}: line {a.n}", None),
        ("def __str__(self): return f'<{super().__str__()}>'", None, "<{message}>"),
        ("def __str__(self): return 'E: ' + str(self.args[0])", None, "E: {message}"),
        ("def __init__(self, message): super().__init__(message)", None, None),
    ],
)
def test_the_message_that_a_class_makes_is_over_its_parameters(
    body: str, template: str | None, renders: str | None
) -> None:
    told = the_class(f"class Refused(ValueError):\n {body}\n")
    assert (told.template and text_of(told.template), told.renders and text_of(told.renders)) == (template, renders)


def test_attributes_have_the_types_that_calls_are_resolved_by() -> None:
    told = the_class(
        "class A(Base, metaclass=M):\n"
        ' """First\n paragraph.\n\n More."""\n'
        " x: Store\n"
        " def __init__(self, y: 'Link | None', *, z=1):\n"
        "  self.y = y\n  self.z = net.Channel(z)\n  self.w: list[Call] = []\n  self.v = compute()\n"
    )
    assert told.bases == ("Base",)
    assert told.parameters == (("y", ""), ("z", "1"))
    assert dict(told.attributes) == {"x": "Store", "y": "'Link | None'", "z": "net.Channel", "w": "list[Call]"}
    assert told.doc is not None and told.doc.text == "First paragraph."


def test_functions_are_named_within_their_classes_and_keep_what_their_docstring_says_of_the_error() -> None:
    code = (
        "class A:\n def f(self, x: Store,\n       y=1) -> Plan:\n"
        '  """Do it.\n\n  Raises:\n      ValueError: If x is\n          wrong.\n      KeyError: Never.\n  """\n'
        "  def inner():\n   pass\n  raise ValueError('x')\n"
    )
    outer, inner = facts_of(code).functions
    assert (outer.qualified, outer.owner, outer.start, outer.end) == ("A.f", "A", 2, 13)
    assert (outer.head, outer.returns) == ("def f(self, x: Store,", "Plan")
    assert outer.parameters == (("self", ""), ("x", "Store"), ("y", ""))
    assert outer.doc is not None
    assert outer.doc.text == "Do it.\n\nRaises ValueError: If x is wrong."
    assert (inner.qualified, inner.owner) == ("A.f.inner", "")


def test_calls_have_their_lines_and_receivers() -> None:
    code = "send(1)\nself.link.send(2)\nlinks[0].close()\nlen(x)\nopen_(a).close()\n(send\n (3))\n"
    calls = {call.name: (call.lines, call.receivers) for call in facts_of(code).calls}
    assert calls == {
        "send": ((1, 2, 6), ("", "self.link", "")),
        "close": ((3, 5), ("links[]", "open_()")),
        "open_": ((5,), ("",)),
    }


def test_imports_are_told_by_their_local_names() -> None:
    code = (
        "import numpy as np\nimport a.b\nfrom .sibling import f\nfrom ..top import g as h\nfrom pkg.x import Unused\n"
        "np.zeros()\na.b.c()\nf()\nh()\n"
    )
    assert dict(facts_of(code, "pkg/sub/m.py").imports) == {
        "np": "numpy", "a": "a", "f": "pkg.sub.sibling.f", "h": "pkg.top.g",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "type_", "pattern", "is_regex"),
    [
        ("with pytest.raises(E): f()", "E", "", False),
        ("with pytest.raises(pkg.E, match='no name'): f()", "pkg.E", "no name", False),
        ("with pytest.raises(E, match=r'no \\w+'): f()", "E", "no \\w+", True),
        ("with pytest.raises(E, match=re.escape('a.b')): f()", "E", "a.b", False),
        ("with pytest.raises(E) as told:\n  f()\n assert 'no name' in str(told.value)", "E", "no name", False),
        ("self.assertRaises(E, f)", "E", "", False),
        ("with self.assertRaisesRegex(E, 'a+'): f()", "E", "a+", True),
    ],
)
def test_what_tests_expect_is_found_and_they_give_no_errors(
    code: str, type_: str, pattern: str, is_regex: bool
) -> None:
    facts = facts_of(f"def test_it(self):\n {code}\n raise ValueError('x')\n", "pkg/tests/test_a.py")
    (expected,) = facts.expectations
    assert (expected.type, expected.pattern, expected.is_regex) == (type_, pattern, is_regex)
    assert facts.functions[expected.function].is_test
    assert facts.is_test and not facts.raises and not facts.calls
