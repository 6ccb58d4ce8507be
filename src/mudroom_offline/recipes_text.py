"""Recipes of functions on text: name, other names, what it does, Python, JavaScript, cases."""

from __future__ import annotations

from typing import Any

TEXTS: tuple[tuple[Any, ...], ...] = (
    (
        "capitalize",
        "capitalise capitalize_first upper_first ucfirst",
        "The text with its first letter in upper case.",
        "def capitalize(text):\n    return text[:1].upper() + text[1:]",
        "function capitalize(text) {\n  return text.slice(0, 1).toUpperCase() + text.slice(1);\n}",
        ((("hello",), "Hello"), (("",), "")),
    ),
    (
        "reverse_string",
        "reverse reverse_text reversed_string string_reverse",
        "The text backwards.",
        "def reverse_string(text):\n    return text[::-1]",
        'function reverseString(text) {\n  return [...text].reverse().join("");\n}',
        ((("hello",), "olleh"), (("ab",), "ba")),
    ),
    (
        "is_palindrome",
        "palindrome check_palindrome",
        "Whether the text reads the same backwards, letters and digits only.",
        "def is_palindrome(text):\n    letters = [c.lower() for c in text if c.isalnum()]\n    return letters == letters[::-1]",
        "function isPalindrome(text) {\n  const letters = [...text.toLowerCase()].filter((c) => /[\\p{L}\\p{N}]/u.test(c));\n"
        '  return letters.join("") === letters.reverse().join("");\n}',
        ((("racecar",), True), (("hello",), False)),
    ),
    (
        "truncate",
        "truncate_string truncate_text shorten",
        "The first `length` characters, with an ellipsis when something was cut.",
        'def truncate(text, length, ellipsis="..."):\n    return text if len(text) <= length else text[:length] + ellipsis',
        'function truncate(text, length, ellipsis = "...") {\n  return text.length <= length ? text : text.slice(0, length) + ellipsis;\n}',
        ((("Hello, World!", 5), "Hello..."), (("Hi", 5), "Hi")),
    ),
    (
        "slugify",
        "slug to_slug",
        "The text as lower-case words joined by dashes, for use in addresses.",
        'def slugify(text):\n    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()\n    return "-".join(words)',
        'function slugify(text) {\n  return (text.toLowerCase().match(/[\\p{L}\\p{N}]+/gu) || []).join("-");\n}',
        ((("Hello, World!",), "hello-world"), (("  A  b ",), "a-b")),
    ),
    (
        "word_count",
        "count_words words_count wordcount",
        "The number of words.",
        "def word_count(text):\n    return len(text.split())",
        "function wordCount(text) {\n  return text.split(/\\s+/).filter(Boolean).length;\n}",
        ((("the quick  fox",), 3), (("",), 0)),
    ),
    (
        "count_vowels",
        "vowel_count vowels",
        "The number of vowels.",
        'def count_vowels(text):\n    return sum(c in "aeiou" for c in text.lower())',
        "function countVowels(text) {\n  return (text.match(/[aeiou]/gi) || []).length;\n}",
        ((("Education",), 5), (("xyz",), 0)),
    ),
    (
        "title_case",
        "titlecase to_title to_title_case",
        "The text with the first letter of each word in upper case.",
        'def title_case(text):\n    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))',
        'function titleCase(text) {\n  return text\n    .split(" ")\n    .map((word) => word.slice(0, 1).toUpperCase() + word.slice(1).toLowerCase())\n    .join(" ");\n}',
        ((("hello big world",), "Hello Big World"),),
    ),
    (
        "snake_case",
        "to_snake_case to_snake camel_to_snake",
        "A camel-case name in snake case.",
        'def snake_case(name):\n    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")',
        'function snakeCase(name) {\n  return name.replace(/[A-Z]/g, (c) => "_" + c.toLowerCase()).replace(/^_+/, "");\n}',
        ((("helloBigWorld",), "hello_big_world"),),
    ),
    (
        "camel_case",
        "to_camel_case to_camel snake_to_camel",
        "A snake-case name in camel case.",
        'def camel_case(name):\n    head, *rest = name.split("_")\n    return head + "".join(word.capitalize() for word in rest)',
        "function camelCase(name) {\n  return name.replace(/_+(\\w)/g, (_, c) => c.toUpperCase());\n}",
        ((("hello_big_world",), "helloBigWorld"),),
    ),
    (
        "is_empty",
        "is_blank blank",
        "Whether the text holds nothing but white space.",
        "def is_empty(text):\n    return not text.strip()",
        'function isEmpty(text) {\n  return text.trim() === "";\n}',
        ((("  ",), True), (("a",), False)),
    ),
    (
        "greet",
        "say_hello hello greeting",
        "A greeting.",
        'def greet(name):\n    return f"Hello, {name}!"',
        "function greet(name) {\n  return `Hello, ${name}!`;\n}",
        ((("Ada",), "Hello, Ada!"),),
    ),
    (
        "repeat",
        "repeat_string",
        "The text, so many times.",
        "def repeat(text, times):\n    return text * times",
        "function repeat(text, times) {\n  return text.repeat(times);\n}",
        ((("ab", 3), "ababab"),),
    ),
    (
        "is_anagram",
        "anagram are_anagrams",
        "Whether both texts have the same letters.",
        'def is_anagram(first, second):\n    return sorted(first.replace(" ", "").lower()) == sorted(second.replace(" ", "").lower())',
        'function isAnagram(first, second) {\n  const letters = (text) => [...text.toLowerCase().replaceAll(" ", "")].sort().join("");\n'
        "  return letters(first) === letters(second);\n}",
        ((("listen", "silent"), True), (("abc", "abd"), False)),
    ),
)
