"""Go: error values, sentinels, error types, panics, logs, exits, and what had to hold."""

from __future__ import annotations

import pytest

from tests.catalog.extract.reading import guards, only, sites
from tests.catalog.trees import records_of
from windtunnel.catalog.extract import extract
from windtunnel.catalog.record import NOT_ANALYSED
from windtunnel.catalog.template import text_of


def in_function(statement: str) -> str:
    return f"package a\nfunc f(k string) error {{ {statement} }}\n"


@pytest.mark.parametrize(
    ("statement", "kind", "type_", "template"),
    [
        ('return errors.New("gone")', "error value", "errors.New", "gone"),
        ('return errors.New("a " + k + `b\n`)', "error value", "errors.New", "a {k}b\n"),
        ('return fmt.Errorf("no key %q: %w", k, err)', "error value", "fmt.Errorf", "no key {k}: {err}"),
        ('return fmt.Errorf("%[2]s of %[1]d%%", n, k)', "error value", "fmt.Errorf", "{k} of {n}%"),
        ('return fmt.Errorf("no "+what+" in %s", k)', "error value", "fmt.Errorf", "no {what} in {k}"),
        ('m := "told " + k; return errors.New(m)', "error value", "errors.New", "told {k}"),
        ('return errors.Wrapf(err, "load %s", k)', "error value", "errors.Wrapf", "load {k}: {err}"),
        ('return status.Errorf(codes.NotFound, "no %s", k)', "error value", "codes.NotFound", "no {k}"),
        ('return status.Error(code, "no "+k)', "error value", "status.Error", "no {k}"),
        ('return connectionErrorf(true, err, "lost %v", k)', "error value", "connectionErrorf", "lost {k}"),
        ('return d.syntaxError("bad digit")', "error value", "d.syntaxError", "bad digit"),
        ('http.Error(w, "not allowed", 405)', "error value", "http.Error", "not allowed"),
        ('panic("bad " + k)', "panic", "panic", "bad {k}"),
        ('panic(fmt.Errorf("bad %d%%", n))', "panic", "panic", "bad {n}%"),
        ("panic(err)", "panic", "panic", "panic(err)"),
        ('log.Fatalf("no %v", err)', "fatal log", "log.Fatalf", "no {err}"),
        ('log.Fatal("no ", n, 3)', "fatal log", "log.Fatal", "no {n} {3}"),
        ('log.Fatalln("no", k)', "fatal log", "log.Fatalln", "no {k}"),
        ("log.Fatal(err)", "fatal log", "log.Fatal", "log.Fatal(err)"),
        ('lg.Panic("lost", zap.Error(err))', "panic", "lg.Panic", "lost"),
        ('s.logger.Errorf("lost %s", k)', "log", "s.logger.Errorf", "lost {k}"),
        ('klog.ErrorS(err, "lost it", "peer", k)', "log", "klog.ErrorS", "lost it"),
        ('slog.Error("lost it", "peer", k)', "log", "slog.Error", "lost it"),
        ('fmt.Fprintf(os.Stderr, "no %s\\n", k); os.Exit(2)', "exit", "os.Exit", "no {k}\n"),
        ("os.Exit(2)", "exit", "os.Exit", "os.Exit(2)"),
    ],
)
def test_an_error_has_its_kind_type_and_message(statement: str, kind: str, type_: str, template: str) -> None:
    site = only("a.go", in_function(statement))
    assert (site.kind, site.type, text_of(site.template or ())) == (kind, type_, template)


@pytest.mark.parametrize(
    "statement",
    [
        "os.Exit(0)",
        't.Fatalf("lost %s", k)',
        "return err",
        "errStop := g(); return errStop",
        'return errors.Is(err, &LoadError{Key: "k"})',
        'if err == ErrGone { return nil }; logger.Info("gone")',
        'var ok = status.New(codes.OK, "fine"); return nil',
        "return code(http2.ErrCodeProtocol)",
    ],
)
def test_what_makes_no_error_is_no_site(statement: str) -> None:
    assert not sites("a.go", in_function(statement))


ERRORS = """package errs

var (
	// ErrGone says that the key was removed.
	ErrGone  = errors.New("it is gone")
	ErrStale = status.New(codes.Aborted, "it is stale").Err()
)

// LoadError is what Load gives.
type LoadError struct {
	Key string
	Err error
}

func (e *LoadError) Error() string { return fmt.Sprintf("load %s: %v", e.Key, e.Err) }

type Refused string

func (r Refused) Error() string { return "refused by " + string(r) }
"""
USES = """package store

import "example.org/tree/v2/errs"

func load(k string) error {
	if gone[k] {
		return errs.ErrGone
	}
	if err := read(k); err != nil {
		return &errs.LoadError{Key: "key " + k, Err: err}
	}
	return nil
}
"""


def test_a_sentinel_is_one_error_wherever_it_is_made_and_returned() -> None:
    records = {record.type: record for record in records_of({"errs/errs.go": ERRORS, "store/store.go": USES})}
    gone = records["ErrGone"]
    assert gone.text == "it is gone"
    assert [(site.path, site.function) for site in gone.sites] == [("errs/errs.go", ""), ("store/store.go", "load")]
    assert [(g.condition, g.holds) for g in gone.sites[1].guards] == [("gone[k]", True)]
    assert gone.sites[0].docs[0].text == "ErrGone says that the key was removed."
    assert records["ErrStale"].text == "it is stale"
    assert gone.handled == NOT_ANALYSED and gone.sites[1].callers == NOT_ANALYSED


def test_a_sentinel_of_another_package_is_another() -> None:
    other = ERRORS.replace("it is gone", "it went")
    records = records_of({"errs/errs.go": ERRORS, "other/errs/errs.go": other, "other/errs/use.go": OWN_USE})
    assert {record.text: len(record.sites) for record in records if record.type == "ErrGone"} == {
        "it is gone": 1, "it went": 2
    }  # fmt: skip


OWN_USE = "package errs\n\nfunc f() error { return ErrGone }\n"


def test_a_sentinel_that_is_only_declared_is_said_to_stand_for_its_message() -> None:
    (record,) = records_of({"a.go": 'package a\n\nvar ErrGone = errors.New("it is gone")\n'})
    assert [claim.text for claim in record.prose.meaning] == ["`ErrGone` stands for “it is gone” in `a.go`."]
    assert record.prose.trigger == ()


def test_an_error_type_brings_its_message_over_its_fields() -> None:
    found = {record.type: record.text for record in records_of({"errs/errs.go": ERRORS, "store/store.go": USES})}
    assert found["LoadError"] == "load key {k}: {Err}"
    classes = {each.name: each for each in extract("errs/errs.go", ERRORS.encode()).classes}
    assert text_of(classes["Refused"].template or ()) == "refused by {0}"
    assert [name for name, _ in classes["LoadError"].parameters] == ["Key", "Err"]
    assert classes["LoadError"].doc is not None and classes["LoadError"].doc.text == "LoadError is what Load gives."


def test_a_status_is_shown_with_its_code() -> None:
    (record,) = records_of({"a.go": in_function('return status.Errorf(codes.NotFound, "no %s", k)')})
    assert record.renders is not None and text_of(record.renders) == "rpc error: code = NotFound desc = {message}"


@pytest.mark.parametrize(
    ("statement", "types", "how", "expression"),
    [
        ('v, err := open(k); if err != nil { return fmt.Errorf("no: %w", err) }', (), "%w", "open(k)"),
        ('if err := open(k); err != nil { return fmt.Errorf("no: %v", err) }', (), "cause", "open(k)"),
        ('if err := open(k); err != nil { return errors.New("no") }', (), "during handling", "open(k)"),
        ('return fmt.Errorf("no %s: %w", k, reason)', (), "%w", "reason"),
        ('return fmt.Errorf("no: %w", errs.ErrGone)', ("errs.ErrGone",), "%w", "errs.ErrGone"),
    ],
)
def test_what_an_error_is_made_from_is_its_cause(
    statement: str, types: tuple[str, ...], how: str, expression: str
) -> None:
    site = only("a.go", in_function(statement))
    assert site.cause is not None
    assert (site.cause.types, site.cause.how, site.cause.expression) == (types, how, expression)


def test_guards_are_told_from_the_outside_in_with_their_polarity() -> None:
    code = """//go:build linux

package a

func (s *Store[K]) Load(k string) (int, error) {
	if k == "" {
		return 0, nil
	}
	if s.dead {
		panic("dead")
	}
	for _, p := range s.parts {
		if p.old {
			continue
		} else if n > 3 {
			switch p.kind {
			case A, B:
				return 0, errors.New("ab")
			case C:
				fallthrough
			case D:
				return 0, errors.New("cd")
			default:
				return 0, errors.New("other")
			}
		}
	}
	for s.open() {
		switch {
		case a:
		case b > 1:
			return 0, errors.New("b")
		}
		switch v := k.(type) {
		case *T, error:
			go func() { log.Fatal("t") }()
		}
	}
	select {
	case <-ctx.Done():
		return 0, errors.New("late")
	}
}
"""
    dead, ab, cd, other, b, t, late = sites("src/store.go", code)
    first = [("cfg", True, "linux"), ("early exit", False, 'k == ""')]
    assert guards(dead) == [*first, ("if", True, "s.dead")]
    first.append(("early exit", False, "s.dead"))
    inside = [*first, ("for", True, "for _, p := range s.parts"), ("if", False, "p.old"), ("if", True, "n > 3")]
    assert guards(ab) == [*inside, ("case", True, "p.kind == A || p.kind == B")]
    assert guards(cd) == [*inside, ("case", True, "p.kind == C || p.kind == D")]
    assert guards(other) == [*inside, *[("case", False, f"p.kind == {kind}") for kind in "ABCD"]]
    assert guards(b) == [*first, ("while", True, "s.open()"), ("case", False, "a"), ("case", True, "b > 1")]
    assert guards(t) == [*first, ("while", True, "s.open()"), ("case", True, "k.(type) == *T || k.(type) == error")]
    assert guards(late) == [*first, ("select", True, "<-ctx.Done()")]
    facts = extract("src/store.go", code.encode())
    assert facts.functions[ab.function].qualified == "Store.Load"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("v, err := open(k); if err != nil { X }", [("failed", True, "open(k)")]),
        ("v, err := open(k); if err == nil { return v }; X", [("failed", True, "open(k)")]),
        ("if err := open(k); err != nil && n > 1 { X }", [("failed", True, "open(k)"), ("if", True, "n > 1")]),
        ("if _, ok := seen[k]; !ok { X }", [("if", False, "seen[k]")]),
        ("v, ok := k.(T); if !ok { return 1 }; X", [("early exit", True, "k.(T)")]),
        ("if lg != nil { X }", []),
    ],
)
def test_a_tested_result_is_told_by_what_gave_it(body: str, expected: list[tuple[str, bool, str]]) -> None:
    site = only("a.go", f"package a\nfunc f() {{ {body.replace('X', 'panic(`no`)')} }}")
    assert guards(site) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if n > 1 { return }; n = g(); X", []),
        ("if n > 1 { return }; n++; X", []),
        ("if n > 1 { return }; if a { n := g(); h(n) }; X", [("early exit", False, "n > 1")]),
        ("err := g(); if a { err = h() }; if err != nil { X }", [("if", True, "err != nil")]),
        ("var err error; h(&err); if err != nil { X }", [("if", True, "err != nil")]),
        ("err := g(); for a { if err != nil { X }; err = h() }", [("while", True, "a"), ("if", True, "err != nil")]),
        ("if err := g(); err != nil { return }; X", []),
        ("if err := ctx.Err(); err != nil { X }", [("if", True, "err != nil")]),
    ],
)
def test_a_condition_on_a_variable_counts_as_long_as_its_value_is_known(
    body: str, expected: list[tuple[str, bool, str]]
) -> None:
    site = only("a.go", f"package a\nfunc f() {{ {body.replace('X', 'panic(`no`)')} }}")
    assert guards(site) == expected


def test_files_of_tests_raise_nothing() -> None:
    facts = extract("a/store_test.go", in_function('panic("no")').encode())
    assert facts.is_test and facts.raises == () and facts.num_lines == 3


@pytest.mark.parametrize(
    "code",
    [
        "",
        "package",
        "func f( {",
        "\xff\x00",
        "package a\nfunc f() {" + "{" * 2000,
        "package a\nvar a, b = errors.New()\nfunc () Error() string {}\nfunc f() { panic(); os.Exit(); x.Error() }",
        "package a\nfunc f() { switch { case : fmt.Errorf() }; select { case : panic(1) } }",
    ],
)
def test_broken_code_is_no_reason_to_fail(code: str) -> None:
    extract("a.go", code.encode("latin-1"))


def test_a_sentinel_that_is_given_to_who_waits_for_it_is_a_site() -> None:
    code = """package a
var ErrFull = errors.New("full")
func f(q Q) {
    if q.n > 3 { q.future.respond(ErrFull) }
    if errors.Is(e, ErrFull) { return }
}
"""
    declared, given = sites("a.go", code)
    assert (declared.type, given.type) == ("ErrFull", "ErrFull")
    assert guards(given) == [("if", True, "q.n > 3")]
