from textkit.wrap import indent, wrap


def test_short_text_stays_one_line():
    assert wrap("one two", width=20) == ["one two"]


def test_a_line_may_be_exactly_as_long_as_the_width():
    assert wrap("aaaa bbbb cccc", width=9) == ["aaaa bbbb", "cccc"]


def test_empty():
    assert wrap("") == []


def test_indent():
    assert indent(["a", "b"], prefix="> ") == ["> a", "> b"]
