"""Java: throws, preconditions, assertions, logs, exception classes."""

from __future__ import annotations

import pytest

from tests.catalog.extract.reading import guards, only, sites
from windtunnel.catalog.extract import extract
from windtunnel.catalog.template import text_of


def in_method(statement: str) -> str:
    return f"class A {{ void f(int n) {{ {statement} }} }}"


@pytest.mark.parametrize(
    ("statement", "kind", "type_", "template"),
    [
        ('throw new IOException("no " + name + "!");', "throw", "IOException", "no {name}!"),
        ('throw new Foo(String.format("%s of %d%n", a, b), e);', "throw", "Foo", "{a} of {b}\n"),
        ('throw new Foo(MessageFormat.format("{0} of {1}", a, b));', "throw", "Foo", "{a} of {b}"),
        ('throw new Foo("a %s".formatted(x));', "throw", "Foo", "a {x}"),
        ('String m = "told " + x; throw new Foo(m);', "throw", "Foo", "told {x}"),
        ('throw new Foo("""\n    several\n      lines""");', "throw", "Foo", "several\n  lines"),
        ('x.orElseThrow(() -> new Foo("none of " + k));', "throw", "Foo", "none of {k}"),
        ('LOG.error("lost {} of {}", a, b, e);', "log", "LOG.error", "lost {a} of {b}"),
        ('return new FooException("made here");', "error value", "FooException", "made here"),
        ('Objects.requireNonNull(x, "x must be given");', "check", "NullPointerException", "x must be given"),
        ("throw Errors.of(code);", "throw", "Errors.of", "throw Errors.of(code);"),
    ],
)
def test_an_error_has_its_kind_type_and_message(statement: str, kind: str, type_: str, template: str) -> None:
    site = only("src/A.java", in_method(statement))
    assert (site.kind, site.type, text_of(site.template or ())) == (kind, type_, template)


@pytest.mark.parametrize(
    ("statement", "condition"),
    [
        ('assert n > 1 : "few";', "n > 1"),
        ("assert n > 1;", "n > 1"),
        ('Preconditions.checkArgument(n > 1, "few %s", n);', "n > 1"),
        ("Objects.requireNonNull(n);", "n != null"),
    ],
)
def test_a_check_raises_when_its_condition_does_not_hold(statement: str, condition: str) -> None:
    assert guards(only("src/A.java", in_method(statement))) == [("assert", False, condition)]


def test_guards_are_told_from_the_outside_in_with_their_polarity() -> None:
    code = in_method(
        """
        if (n == 0) { return; } else { log(); }
        while (open) {
          switch (n) {
            case 1 -> throw new A("one");
            default -> { if (ok) continue; else throw new A("many"); }
          }
        }"""
    )
    one, many = sites("src/A.java", code)
    before = [("early exit", False, "n == 0"), ("while", True, "while open")]
    assert guards(one) == [*before, ("case", True, "n == 1")]
    assert guards(many) == [*before, ("case", False, "n == 1"), ("if", False, "ok")]


def test_what_was_caught_is_the_cause() -> None:
    site = only("src/A.java", in_method('try { g(); } catch (IOException | Foo e) { throw new Bar("x", e); }'))
    assert site.cause is not None
    assert (site.cause.types, site.cause.how, site.cause.expression) == (("IOException", "Foo"), "cause", "e")


def test_an_exception_class_brings_its_message_its_base_and_its_doc() -> None:
    code = """
    class Outer {
      /** A peer is gone.
       *  @param n how many */
      static class Lost extends IOException { Lost(int n) { super("lost " + n); } }
    }"""
    (found,) = extract("src/A.java", code.encode()).classes
    assert (found.name, found.bases, found.parameters) == ("Outer.Lost", ("IOException",), (("n", ""),))
    assert text_of(found.template or ()) == "lost {n}"
    assert found.doc is not None and found.doc.text == "A peer is gone."


def test_code_that_is_broken_is_read_as_far_as_it_goes_and_said() -> None:
    facts = extract("src/A.java", b'class A { void f() { throw new B("x"); } void g( { }')
    assert [site.type for site in facts.raises] == ["B"]
    assert facts.problem is not None and facts.problem.startswith("line 1 ")


def test_each_branch_that_left_before_did_not_hold() -> None:
    code = in_method(
        'if (n == 0) { if (a) return; } else if (n == 1) { return; } else if (n == 2) { return; } throw new A("x");'
    )
    assert guards(only("src/A.java", code)) == [
        ("early exit", False, "!(n == 0) && (n == 1)"),
        ("early exit", False, "!(n == 0) && (n == 2)"),
    ]
    both = in_method('if (n == 1) return; else if (n == 2) return; throw new A("x");')
    assert guards(only("src/A.java", both)) == [("early exit", False, "n == 1"), ("early exit", False, "n == 2")]


def test_a_doc_comment_is_told_without_its_markup_and_tags() -> None:
    code = """
class A {
  /**
   * <p>Checks that {@code n &lt; 1} fails as {@link #g(int) g} does.</p>
   * @param n a number
   */
  void f(int n) { throw new B("x"); }
}
"""
    doc = extract("src/A.java", code.encode()).functions[0].doc
    assert doc is not None and doc.text == "Checks that `n < 1` fails as `g` does."
