"""Which grammar reads which file, and what of its syntax tree is told.

The grammars come inside wheels, and one is loaded when the first of its files is read.

A query names nodes by what they are for an outline:

- `holder`: what is defined inside is told too, one level deeper (a class)
- `module`: a holder whose definitions count as the file's own (a Ruby module)
- `space`: the same, and its own name is that of many files (a namespace)
- `part`: a holder that adds to what is defined elsewhere (an impl of Rust)
- `function`: what is inside is its own affair, or there is nothing inside (a method, a type alias)
- `member`: a function outside of the class that it belongs to (a method of Go)
- `value`: only its first line is told (a constant); `constant`: a value, if its name is in UPPER_CASE
- `scope`: a function without a name
- `leave`: never part of a signature (annotations, comments)
- `mention`: an identifier
"""

import importlib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Final

from tree_sitter import Language, Query


@dataclass(frozen=True, slots=True)
class Grammar:
    """`module` has `entry`, a function that gives the grammar. `query`: see above. `suffixes` of file names."""

    module: str
    query: str
    suffixes: tuple[str, ...]
    entry: str = "language"


_PYTHON: Final = """
(class_definition) @holder
(function_definition) @function
(lambda) @scope
(module (expression_statement (assignment left: (identifier)) @constant))
(comment) @leave
(identifier) @mention
"""

_SCRIPT: Final = """
[(class_declaration) (class)] @holder
[(function_declaration) (generator_function_declaration) (method_definition)] @function
[(arrow_function) (function_expression) (generator_function)] @scope
(variable_declarator name: (identifier) value: [(arrow_function) (function_expression) (generator_function)]) @function
(variable_declarator name: (identifier) value: (class)) @holder
(program (lexical_declaration (variable_declarator name: (identifier)) @constant))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier)) @constant)))
(program (expression_statement (assignment_expression left: (member_expression)
  right: [(arrow_function) (function_expression)]) @function))
[(comment) (decorator)] @leave
[(identifier) (property_identifier) (shorthand_property_identifier) (private_property_identifier)] @mention
"""

_JAVASCRIPT: Final = f"""
{_SCRIPT}
(field_definition value: (arrow_function)) @function
"""

_TYPESCRIPT: Final = f"""
{_SCRIPT}
(public_field_definition value: (arrow_function)) @function
[(abstract_class_declaration) (interface_declaration)] @holder
[(internal_module) (module)] @space
[(enum_declaration) (type_alias_declaration)] @function
[(function_signature) (method_signature) (abstract_method_signature)] @function
(type_identifier) @mention
"""

_GO: Final = """
[(function_declaration) (type_alias)] @function
(method_declaration) @member
(type_spec) @holder
(method_elem) @function
(func_literal) @scope
(source_file (const_declaration (const_spec) @value))
(source_file (var_declaration (var_spec) @value))
(source_file (var_declaration (var_spec_list (var_spec) @value)))
[(comment) (field_declaration_list) (method_elem) (type_elem)] @leave
[(identifier) (type_identifier) (field_identifier)] @mention
"""

_RUST: Final = """
(impl_item) @part
(trait_item) @holder
(mod_item body: (_)) @space
[(function_item) (function_signature_item) (macro_definition)] @function
[(struct_item) (enum_item) (union_item) (type_item)] @function
(closure_expression) @scope
[(const_item) (static_item)] @value
[(line_comment) (block_comment) (attribute_item) (macro_rule)] @leave
[(identifier) (type_identifier) (field_identifier)] @mention
"""

_JAVA: Final = """
[(class_declaration) (interface_declaration) (enum_declaration)] @holder
[(record_declaration) (annotation_type_declaration)] @holder
[(method_declaration) (constructor_declaration) (compact_constructor_declaration)] @function
(lambda_expression) @scope
(field_declaration (variable_declarator) @constant)
(constant_declaration) @value
[(line_comment) (block_comment) (annotation) (marker_annotation)] @leave
[(identifier) (type_identifier)] @mention
"""

_C: Final = """
(function_definition) @function
(declaration declarator: [(function_declarator) (pointer_declarator (function_declarator))
  (pointer_declarator (pointer_declarator (function_declarator)))]) @function
[(struct_specifier name: (_) body: (_)) (union_specifier name: (_) body: (_))] @holder
(enum_specifier name: (_) body: (_)) @function
(type_definition) @holder
(preproc_def value: (_)) @value
(preproc_function_def) @value
(comment) @leave
[(identifier) (type_identifier) (field_identifier)] @mention
"""

_CPP: Final = f"""
{_C}
(class_specifier body: (_)) @holder
(function_definition declarator: [(function_declarator declarator: (qualified_identifier))
  (_ (function_declarator declarator: (qualified_identifier)))]) @member
(field_declaration declarator: [(function_declarator) (pointer_declarator (function_declarator))
  (reference_declarator (function_declarator))]) @function
(declaration declarator: (reference_declarator (function_declarator))) @function
[(alias_declaration) (concept_definition)] @function
(namespace_definition) @space
(lambda_expression) @scope
(field_initializer_list) @leave
(namespace_identifier) @mention
"""

_RUBY: Final = """
(class) @holder
(module) @module
[(method) (singleton_method)] @function
[(block) (do_block) (lambda)] @scope
(assignment left: (constant)) @value
[(comment) "end"] @leave
[(identifier) (constant)] @mention
"""

_C_SHARP: Final = """
[(class_declaration) (interface_declaration) (struct_declaration) (record_declaration)] @holder
[(namespace_declaration) (file_scoped_namespace_declaration)] @space
[(method_declaration) (constructor_declaration) (destructor_declaration) (operator_declaration) (enum_declaration)
 (conversion_operator_declaration) (indexer_declaration) (property_declaration) (delegate_declaration)] @function
[(lambda_expression) (anonymous_method_expression)] @scope
(field_declaration (variable_declaration (variable_declarator) @constant))
[(comment) (attribute_list) (accessor_list) (arrow_expression_clause) (constructor_initializer)] @leave
(identifier) @mention
"""

_PHP: Final = """
[(class_declaration) (interface_declaration) (trait_declaration) (enum_declaration)] @holder
(namespace_definition) @space
[(function_definition) (method_declaration)] @function
[(anonymous_function) (arrow_function)] @scope
(const_declaration (const_element) @value)
[(comment) (attribute_list)] @leave
(name) @mention
"""

GRAMMARS: Final = {
    "python": Grammar("tree_sitter_python", _PYTHON, (".py", ".pyi", ".pyw")),
    "javascript": Grammar("tree_sitter_javascript", _JAVASCRIPT, (".js", ".jsx", ".mjs", ".cjs")),
    "typescript": Grammar("tree_sitter_typescript", _TYPESCRIPT, (".ts", ".mts", ".cts"), "language_typescript"),
    "tsx": Grammar("tree_sitter_typescript", _TYPESCRIPT, (".tsx",), "language_tsx"),
    "go": Grammar("tree_sitter_go", _GO, (".go",)),
    "rust": Grammar("tree_sitter_rust", _RUST, (".rs",)),
    "java": Grammar("tree_sitter_java", _JAVA, (".java",)),
    "c": Grammar("tree_sitter_c", _C, (".c",)),
    "cpp": Grammar("tree_sitter_cpp", _CPP, (".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".inl", ".ipp")),
    "ruby": Grammar("tree_sitter_ruby", _RUBY, (".rb", ".rake", ".gemspec")),
    "c#": Grammar("tree_sitter_c_sharp", _C_SHARP, (".cs",)),
    "php": Grammar("tree_sitter_php", _PHP, (".php",), "language_php"),
}
LANGUAGE_OF_SUFFIX: Final = {suffix: name for name, grammar in GRAMMARS.items() for suffix in grammar.suffixes}


def versions() -> str:
    """Of everything that decides about a tree, as installed."""
    packages = {"tree-sitter"} | {grammar.module.replace("_", "-") for grammar in GRAMMARS.values()}
    return " ".join(f"{name}={version(name)}" for name in sorted(packages))


@cache
def load(language: str) -> tuple[Language, Query]:
    """The grammar and the compiled query of a language in GRAMMARS."""
    grammar = GRAMMARS[language]
    loaded = Language(getattr(importlib.import_module(grammar.module), grammar.entry)())
    return loaded, Query(loaded, grammar.query)
