"""A digest of a function's own code: what changes it, and what does not."""

import ast
import functools
import inspect
import textwrap

import pytest

from flowfn import task
from flowfn.pregel.code import compiled, source_digest


def digest(source):
    """The digest of the one function that a source defines."""
    namespace = {}
    exec(compile(textwrap.dedent(source), "<source>", "exec"), namespace)
    return source_digest(namespace["f"])


FUNCTION = """
def f(x, *, rate=2):
    try:
        for item in x:
            if item and rate > 1:
                print(f"{item}: {rate}")
    except (ValueError, KeyError) as error:
        raise RuntimeError from error
    return {"x": [n for n in x if n and n is not rate], 'rate': (1, 2.0, True)}
"""

LAID_OUT_ANEW = [
    "\n\n\n" + FUNCTION,
    FUNCTION.replace("    try:", "    # a comment\n    try:"),
    FUNCTION.replace("    try:", '    """A docstring."""\n\n    try:'),
    FUNCTION.replace(
        "if item and rate > 1:", "if (\n                    item\n                    and rate > 1\n                ):"
    ),
    FUNCTION.replace("'rate': (1, 2.0, True)}", '"rate": (\n        1,\n        2.0,\n        True,\n    ),\n}'),
    FUNCTION.replace("(x, *, rate=2)", "(x: list, *, rate: int = 2) -> dict"),
    FUNCTION.replace("if n and n", "if n\n    and n"),
    ast.unparse(ast.parse(FUNCTION)),
]


@pytest.mark.parametrize("source", LAID_OUT_ANEW)
def test_lines_comments_docstrings_and_layout_do_not_count(source):
    assert digest(source) == digest(FUNCTION)


EDITED = [
    FUNCTION.replace("rate > 1", "rate > 2"),
    FUNCTION.replace("rate > 1", "rate >= 1"),
    FUNCTION.replace("rate > 1", "rate > True"),
    FUNCTION.replace("rate > 1", "rate > 1.0"),
    FUNCTION.replace("print", "write"),
    FUNCTION.replace(": {rate}", "; {rate}"),
    FUNCTION.replace("ValueError, KeyError", "ValueError, TypeError"),
    FUNCTION.replace("if n and", "if not n and"),
    FUNCTION.replace('"x"', '" x"'),
    FUNCTION.replace("(x, *, rate", "(x, rate"),
    FUNCTION.replace("(x, *, rate", "(x, *args, rate"),
    FUNCTION.replace("def f", "async def f"),
]


@pytest.mark.parametrize("source", EDITED)
def test_what_the_function_does_counts(source):
    assert digest(source) != digest(FUNCTION)


def test_what_a_condition_or_a_handler_covers_counts():
    inside = "def f(x):\n if x:\n  a()\n  b()\n"
    outside = "def f(x):\n if x:\n  a()\n b()\n"
    guarded = "def f(x):\n try:\n  a(); b()\n finally:\n  c()\n"
    after = "def f(x):\n a()\n try:\n  b()\n finally:\n  c()\n"
    assert digest(inside) != digest(outside)
    assert digest(guarded) != digest(after)


def test_a_docstring_counts_where_it_is_a_value_too():
    same = 'def f():\n "text"\n return "text"\n'
    assert digest(same) == digest(same.replace(' "text"\n', ' "another"\n', 1))
    assert digest(same) != digest(same.replace("text", "another"))


def test_functions_and_classes_inside_count_without_their_docstrings():
    source = """
    def f():
        class Inner:
            "About it."
            size = 1
            def total(self):
                "About this."
                return self.size
        return [lambda x: x + 1, Inner]
    """
    assert digest(source) == digest(source.replace("About", "Really about"))
    assert digest(source) == digest("\n\n" + source)
    for before, after in [("x + 1", "x + 2"), ("size = 1", "size = 2"), ("self.size", "self.total")]:
        assert digest(source) != digest(source.replace(before, after))


def test_sets_in_the_code_have_one_digest():
    assert digest("def f(x):\n return x in {'a', 'b', 'c'}\n") == digest("def f(x):\n return x in {'c', 'b', 'a'}\n")


def test_a_function_is_found_below_its_decorators():
    def plain(x):
        return x + 1

    @functools.wraps(plain)
    def wrapper(*args):
        return plain(*args)

    class Held:
        def __call__(self, x):
            return x + 1

        method = plain

    expected = source_digest(plain)
    assert expected
    wrapped = [wrapper, functools.partial(plain, 1), staticmethod(plain), Held().method, functools.lru_cache(plain)]
    assert [source_digest(one) for one in wrapped] == [expected] * 5
    assert source_digest(task(plain).func) == expected
    assert source_digest(Held()) == source_digest(Held.__call__)


def test_what_has_no_code_has_no_digest():
    assert [source_digest(len), source_digest(functools.partial(max, 1)), source_digest(dict)] == ["", "", ""]


def test_nearly_all_code_keeps_its_digest_when_it_is_written_out_anew():
    # Not all: now and then the compiler takes another way round an `and` or `or` that stands on several lines.
    source = inspect.getsource(functools) + inspect.getsource(textwrap) + inspect.getsource(ast)
    written = [compile(text, "x", "exec").co_consts for text in (source, ast.unparse(ast.parse(source)))]
    pairs = [(a, b) for a, b in zip(*written, strict=True) if inspect.iscode(a)]

    assert len(pairs) > 60
    assert sum(compiled(a).digest != compiled(b).digest for a, b in pairs) <= 1
