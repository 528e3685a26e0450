"""The words of synthetic texts: made-up ones of syllables, by number, and common English ones."""

from __future__ import annotations

from itertools import product

import numpy as np

from metaxc.arrays import Rows

# fmt: off
COMMON = [
    "best", "new", "cheap", "small", "large", "light", "dark", "soft", "strong", "simple", "modern",
    "classic", "daily", "quick", "fresh", "quiet", "for", "with", "and", "of", "from", "in", "on", "by",
    "near", "about", "home", "work", "travel", "kids", "garden", "kitchen", "office", "winter", "summer",
    "city", "set", "kit", "pack", "guide", "book", "plan", "type", "model", "style", "part", "care", "use",
    "idea", "help", "list", "review",
]
# fmt: on

SYLLABLES = ["".join(one) for one in product("bdfgklmnprstvz", "aeiou")]
"""70 syllables; the last digits of a word's number in base 70 are its syllables."""

SPREAD = 48_271
"""Words of successive numbers would differ in one syllable. A factor without a divisor in common with 70 mixes them."""


def make_words(numbers: Rows) -> list[str]:
    """A word of at least three syllables for each number from 0 on; different numbers give different words."""
    base = len(SYLLABLES)
    syllables = np.asarray(SYLLABLES, dtype=object)
    numbers = np.asarray(numbers, dtype=np.int64)
    mixed, rest = numbers % base**3 * SPREAD % base**3, numbers // base**3
    words = syllables[mixed // base**2] + syllables[mixed // base % base] + syllables[mixed % base]
    while rest.any():
        # The digits above the first three, counted from 1, so that a word with more syllables is no other word.
        words = words + np.where(rest > 0, syllables[(rest - 1) % base], "")
        rest = np.where(rest > 0, (rest - 1) // base, 0)
    return [str(word) for word in words.tolist()]


def common_words(number: int) -> str:
    """At least one common word; different numbers give different words."""
    words = [COMMON[number % len(COMMON)]]
    while number := number // len(COMMON):
        number -= 1
        words.append(COMMON[number % len(COMMON)])
    return " ".join(words)


def scramble(numbers: Rows, seed: int) -> Rows:
    """A pseudo-random whole number from 0 to 2³¹ − 1 for each number (multiplicative hashing)."""
    mixed = (numbers.astype(np.uint64) + np.uint64(seed + 1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(33)).astype(np.int64)
