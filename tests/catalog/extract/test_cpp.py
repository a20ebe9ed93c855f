"""C++: throws, check macros, logs, statuses."""

from __future__ import annotations

import pytest

from tests.catalog.extract.reading import guards, only, sites
from windtunnel.catalog.extract import extract
from windtunnel.catalog.template import text_of


@pytest.mark.parametrize(
    ("statement", "type_", "template"),
    [
        ('throw std::runtime_error("no " + name + "!");', "std::runtime_error", "no {name}!"),
        ('throw std::runtime_error("size " + std::to_string(n));', "std::runtime_error", "size {std::to_string(n)}"),
        ('throw Foo{"a" "b"};', "Foo", "ab"),
        ('throw Foo(fmt::format("at {} of {:x}", i, n));', "Foo", "at {i} of {n}"),
        ('throw Foo(absl::StrCat("at ", i, " of ", n));', "Foo", "at {i} of {n}"),
        ('throw Foo(absl::StrFormat("%d of %s%%", i, n));', "Foo", "{i} of {n}%"),
        ('throw Foo(R"(raw "text")");', "Foo", 'raw "text"'),
        ('std::string m = "told " + x; throw Foo(m);', "Foo", "told {x}"),
        ('std::ostringstream s; s << "at " << i; s << "!"; throw Foo(s.str());', "Foo", "at {i}!"),
        ('throw Foo(EINVAL, "what \\"it\\" was");', "Foo", 'what "it" was'),
    ],
)
def test_what_is_thrown_has_its_type_and_its_message(statement: str, type_: str, template: str) -> None:
    site = only("a.cc", f"void f() {{ {statement} }}")
    assert (site.kind, site.type, text_of(site.template or ())) == ("throw", type_, template)


def test_what_is_thrown_on_is_no_error_of_its_own() -> None:
    assert not sites("a.cc", "void f() { try { g(); } catch (const E& e) { h(); throw; } catch (...) { throw e; } }")


@pytest.mark.parametrize(
    ("statement", "type_", "template", "source", "condition"),
    [
        ('TORCH_CHECK(a == b, "got ", a);', "TORCH_CHECK", "got {a}", "message", "a == b"),
        ('CHECK(ok) << "broken " << n;', "CHECK", "broken {n}", "message", "ok"),
        ("CHECK_EQ(a, b);", "CHECK_EQ", "a == b", "condition", "a == b"),
        ('DCHECK_GT(a, 0) << "none";', "DCHECK_GT", "none", "message", "a > 0"),
        ('assert(p && "no pointer");', "assert", "no pointer", "message", "p"),
        ("assert(p != nullptr);", "assert", "p != nullptr", "condition", "p != nullptr"),
        ('NIXL_ASSERT(x, "");', "NIXL_ASSERT", "x", "condition", "x"),
    ],
)
def test_a_check_raises_when_its_condition_does_not_hold(
    statement: str, type_: str, template: str, source: str, condition: str
) -> None:
    site = only("a.cc", f"void f() {{ {statement} }}")
    assert (site.kind, site.type, text_of(site.template or ())) == ("check", type_, template)
    assert site.message_source == source
    assert guards(site) == [("assert", False, condition)]


def test_logs_of_errors_are_found_as_streams_and_as_calls() -> None:
    found = sites(
        "a.cc",
        'void f() { LOG(ERROR) << "lost " << n; NIXL_ERROR << "no " << x << std::endl; spdlog::critical("end {}", n); '
        'LOG(INFO) << "fine"; LOG_ERROR("code %d", c); }',
    )
    told = [(site.kind, site.type, text_of(site.template or ())) for site in found]
    assert told == [
        ("log", "LOG(ERROR)", "lost {n}"),
        ("log", "NIXL_ERROR", "no {x}"),
        ("fatal log", "spdlog::critical", "end {n}"),
        ("log", "LOG_ERROR", "code {c}"),
    ]


def test_a_status_with_a_text_is_an_error_value() -> None:
    site = only("a.cc", 'Status f() { return Status::Corruption("bad block", name); }')
    assert (site.kind, site.type, text_of(site.template or ())) == (
        "error value",
        "Status::Corruption",
        "bad block: {name}",
    )


def test_guards_are_told_from_the_outside_in_with_their_polarity() -> None:
    code = """
void Agent::connect(int n) {
#ifdef HAVE_ETCD
  if (!ready) return;
  for (auto& peer : peers) {
    if (peer.alive) { use(peer); }
    else if (n > 3) {
      switch (mode) {
        case FAST: case SAFE: throw Lost("peer");
        default: throw Lost("mode");
      }
    }
  }
#endif
}
"""
    first, second = sites("src/agent.cc", code)
    before = [
        ("cfg", True, "defined(HAVE_ETCD)"),
        ("early exit", False, "!ready"),
        ("for", True, "for auto& peer : peers"),
        ("if", False, "peer.alive"),
        ("if", True, "n > 3"),
    ]
    assert guards(first) == [*before, ("case", True, "mode == FAST || mode == SAFE")]
    assert guards(second) == [*before, ("case", False, "mode == FAST"), ("case", False, "mode == SAFE")]
    assert [line.number for line in first.excerpt] == [3, 4, 5, 6, 7, 9]
    facts = extract("src/agent.cc", code.encode())
    assert facts.functions[first.function].qualified == "Agent.connect"


def test_the_guard_around_a_header_is_no_condition() -> None:
    assert not guards(only("a.h", '#ifndef A_H_\n#define A_H_\ninline void f() { throw A("x"); }\n#endif'))


def test_what_was_caught_is_the_cause() -> None:
    site = only("a.cc", 'void f() { try { g(); } catch (const io::Error& e) { throw Lost("x", e.what()); } }')
    assert site.cause is not None
    assert (site.cause.types, site.cause.how, site.cause.expression) == (("io::Error",), "cause", "e")


def test_an_exception_class_brings_its_message() -> None:
    code = 'class Lost : public std::runtime_error { public: Lost(int n) : std::runtime_error("lost " + s(n)) {} };'
    (found,) = extract("a.h", code.encode()).classes
    assert (found.name, found.bases, found.parameters) == ("Lost", ("std::runtime_error",), (("n", ""),))
    assert text_of(found.template or ()) == "lost {s(n)}"
