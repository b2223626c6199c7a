from textkit.slug import slugify, unique_slug


def test_words_are_joined():
    assert slugify("Hello World") == "hello-world"


def test_accents_are_removed():
    assert slugify("Crème Brûlée") == "creme-brulee"


def test_no_hyphen_at_the_ends():
    assert slugify("  Hello, World!  ") == "hello-world"


def test_unique():
    assert unique_slug("Hello", {"hello", "hello-2"}) == "hello-3"
