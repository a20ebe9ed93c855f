"""Go: error values, sentinels, error types, panics, fatal exits, logs."""

from __future__ import annotations

import pytest

from tests.catalog.extract.reading import guards, only, sites
from tests.catalog.trees import records_of
from windtunnel.catalog.extract import extract
from windtunnel.catalog.template import text_of


def in_function(statement: str) -> str:
    return f"package a\nfunc f(k string) error {{ {statement} }}\n"


@pytest.mark.parametrize(
    ("statement", "kind", "type_", "template"),
    [
        ('return errors.New("gone")', "error value", "errors.New", "gone"),
        ('return fmt.Errorf("no key %q: %w", k, err)', "error value", "fmt.Errorf", "no key {k}: {err}"),
        ('return status.Errorf(codes.NotFound, "no %s", k)', "error value", "status.Errorf", "no {k}"),
        ('return errors.Wrapf(err, "load %s", k)', "error value", "errors.Wrapf", "load {k}"),
        ('return errors.New("a " + k + `b\n`)', "error value", "errors.New", "a {k}b\n"),
        ('panic("bad " + k)', "panic", "panic", "bad {k}"),
        ('panic(fmt.Sprintf("bad %d%%", n))', "panic", "panic", "bad {n}%"),
        ("panic(err)", "panic", "panic", "panic(err)"),
        ('log.Fatalf("no %v", err)', "fatal log", "log.Fatalf", "no {err}"),
        ('s.logger.Errorf("lost %s", k)', "log", "s.logger.Errorf", "lost {k}"),
        ('klog.ErrorS(err, "lost it")', "log", "klog.ErrorS", "lost it"),
    ],
)
def test_an_error_has_its_kind_type_and_message(statement: str, kind: str, type_: str, template: str) -> None:
    site = only("a.go", in_function(statement))
    assert (site.kind, site.type, text_of(site.template or ())) == (kind, type_, template)


def test_what_is_wrapped_is_the_cause() -> None:
    site = only("a.go", in_function('return fmt.Errorf("no key %q: %w", k, cause)'))
    assert site.cause is not None and (site.cause.how, site.cause.expression) == ("%w", "cause")


def test_a_sentinel_is_known_by_its_variable() -> None:
    site = only("a.go", 'package a\nvar (\n\tErrGone = errors.New("it is gone")\n)\n')
    assert (site.type, site.function) == ("ErrGone", -1)


def test_guards_are_told_from_the_outside_in_with_their_polarity() -> None:
    code = """package a

func (s *Store[K]) Load(k string) (int, error) {
	if k == "" {
		return 0, ErrEmpty
	}
	if s.dead {
		panic("dead")
	}
	for _, p := range s.parts {
		if err := p.check(); err != nil {
			continue
		} else if n > 3 {
			switch p.kind {
			case A, B:
				return 0, errors.New("ab")
			default:
				return 0, errors.New("other")
			}
		}
	}
	return 1, nil
}
"""
    dead, ab, other = sites("src/store.go", code)
    assert guards(dead) == [("early exit", False, 'k == ""'), ("if", True, "s.dead")]
    before = [
        ("early exit", False, 'k == ""'),
        ("early exit", False, "s.dead"),
        ("for", True, "for _, p := range s.parts"),
        ("if", False, "err != nil"),
        ("if", True, "n > 3"),
    ]
    assert guards(ab) == [*before, ("case", True, "p.kind == A, B")]
    assert guards(other) == [*before, ("case", False, "p.kind == A, B")]
    facts = extract("src/store.go", code.encode())
    assert facts.functions[ab.function].qualified == "Store.Load"


def test_an_error_type_brings_its_message_over_its_fields() -> None:
    code = """package a

func (e *LoadError) Error() string { return fmt.Sprintf("load %s failed", e.Key) }

func f(k string) error { return &LoadError{Key: "x " + k} }
"""
    (record,) = records_of({"a.go": code})
    assert (record.type, record.text) == ("LoadError", "load x {k} failed")


@pytest.mark.parametrize("code", ["", "package", "func f( {", "\xff\x00", "package a\nfunc f() {" + "{" * 2000])
def test_broken_code_is_no_reason_to_fail(code: str) -> None:
    extract("a.go", code.encode("latin-1"))
