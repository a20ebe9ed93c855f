"""TypeScript and JavaScript: throws, rejections, error classes, logs."""

from __future__ import annotations

import pytest

from tests.catalog.extract.reading import guards, only, sites
from windtunnel.catalog.extract import extract
from windtunnel.catalog.template import Hole, text_of


@pytest.mark.parametrize("path", ["a.ts", "a.tsx", "a.js", "a.mjs"])
@pytest.mark.parametrize(
    ("statement", "kind", "type_", "template"),
    [
        ("throw new TypeError('no ' + name);", "throw", "TypeError", "no {name}"),
        ("throw new Foo(`at ${i} of ${n.length}\\n`);", "throw", "Foo", "at {i} of {n.length}\n"),
        ("throw Error('bare');", "throw", "Error", "bare"),
        ("throw 'only text';", "throw", "string", "only text"),
        ("const m = `told ${x}`; throw new Foo(m);", "throw", "Foo", "told {x}"),
        ("throw new Foo(['a', `b ${x}`].join('\\n'));", "throw", "Foo", "a\nb {x}"),
        ("throw new Foo({ message: 'by name', code: 3 });", "throw", "Foo", "by name"),
        ("return Promise.reject(new Foo('later'));", "reject", "Foo", "later"),
        ("return new Promise((resolve, reject) => reject(new Foo('never')));", "reject", "Foo", "never"),
        ("console.error('lost %s', id);", "log", "console.error", "lost {id}"),
        ("return new FooError('made here');", "error value", "FooError", "made here"),
    ],
)
def test_an_error_has_its_kind_type_and_message(
    path: str, statement: str, kind: str, type_: str, template: str
) -> None:
    site = only(path, f"function f() {{ {statement} }}")
    assert (site.kind, site.type, text_of(site.template or ())) == (kind, type_, template)


def test_what_is_thrown_on_is_no_error_of_its_own() -> None:
    assert not sites("a.ts", "try { f() } catch (e) { throw e; }")


def test_a_choice_of_two_texts_is_a_hole_with_both() -> None:
    site = only("a.ts", "function f() { throw new Error(many ? 'several' : 'one'); }", template=False)
    assert site.arguments == (("", (Hole("many ? 'several' : 'one'", values=("several", "one")),)),)


def test_guards_are_told_from_the_outside_in_with_their_polarity_also_around_callbacks() -> None:
    code = """
export class Store {
  load(key: string) {
    if (!key) return null;
    for (const part of parts) {
      switch (part.kind) {
        case 'a':
        case 'b': part.then(() => { if (closed) throw new Lost('x'); });
      }
    }
  }
}
"""
    site = only("src/store.ts", code)
    assert guards(site) == [
        ("early exit", False, "!key"),
        ("for", True, "for const part of parts"),
        ("case", True, "part.kind == 'a' || part.kind == 'b'"),
        ("if", True, "closed"),
    ]
    assert extract("src/store.ts", code.encode()).functions[site.function].qualified == "Store.load"


def test_a_function_is_named_by_what_it_is_assigned_to() -> None:
    facts = extract(
        "a.ts", b"export const load = async () => { throw new Error('x'); }; const o = { m() { throw new B('y') } };"
    )
    assert [facts.functions[site.function].qualified for site in facts.raises] == ["load", "m"]


def test_an_error_class_brings_its_message_over_its_parameters() -> None:
    code = """
/** A peer is gone. */
export class Lost extends Base.PeerError { constructor(public peer: string, n = 3) { super(`lost ${peer}`); } }
export class Plain extends Error { message = 'always this'; }
class NoError extends Map {}
"""
    lost, plain = extract("a.ts", code.encode()).classes
    assert (lost.name, lost.bases, lost.parameters) == ("Lost", ("Base.PeerError",), (("peer", ""), ("n", "3")))
    assert text_of(lost.template or ()) == "lost {peer}"
    assert lost.doc is not None and lost.doc.text == "A peer is gone."
    assert text_of(plain.template or ()) == "always this"
