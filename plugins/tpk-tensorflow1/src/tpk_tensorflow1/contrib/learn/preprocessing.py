"""Texts as sequences of word numbers."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tpk_tensorflow1.missing import finder_in

__all__ = ["CategoricalVocabulary", "VocabularyProcessor", "tokenizer"]

_WORD = re.compile(
    r"""
    [A-Z]{2,}(?![a-z])      # capital letters, unless a small letter follows
    | [A-Z][a-z]+(?=[A-Z])  # a capitalized word before another capital letter
    | ['\w-]+
    """,
    re.VERBOSE,
)


def tokenizer(iterator: Iterable[str]) -> Iterator[list[str]]:
    """Yield the words of each text."""
    for text in iterator:
        yield _WORD.findall(text)


class CategoricalVocabulary:
    """Numbers words in the order in which they come. The number 0 stands for unknown words.

    Args:
        unknown_token: what `reverse` returns for 0.
        support_reverse: ignored.
    """

    def __init__(self, unknown_token: str = "<UNK>", support_reverse: bool = True) -> None:
        # These attributes have the names that they have in the files that TensorFlow 1 saved.
        self._unknown_token = unknown_token
        self._freeze = False
        self._freq: Any = Counter()
        self._number([])

    def __len__(self) -> int:
        return len(self._mapping)

    def freeze(self, freeze: bool = True) -> None:
        """Stop giving numbers to new words, or start again."""
        self._freeze = freeze

    def get(self, category: Any) -> int:
        """Return the number of a word; a new word gets the next number, or 0 if the vocabulary is frozen."""
        if category not in self._mapping:
            if self._freeze:
                return 0
            self._mapping[category] = len(self._mapping)
            self._reverse_mapping.append(category)
        return self._mapping[category]

    def add(self, category: Any, count: int = 1) -> None:
        """Count a word `count` times. A frozen vocabulary does not count unknown words."""
        if self.get(category) > 0:
            self._freq[category] += count

    def trim(self, min_frequency: int, max_frequency: int = -1) -> None:
        """Keep only words that are counted more often than `min_frequency` and, if positive, less than `max_frequency`.

        The most frequent words get the lowest numbers, and words with the same count are in alphabetical order.
        """
        order = sorted(self._freq, key=lambda word: (-self._freq[word], isinstance(word, str), word))
        kept = [
            word
            for word in order
            if self._freq[word] > min_frequency and (max_frequency <= 0 or self._freq[word] < max_frequency)
        ]
        self._freq = Counter({word: self._freq[word] for word in kept})
        self._number(kept)

    def reverse(self, class_id: int) -> Any:
        """Return the word with a number."""
        return self._reverse_mapping[class_id]

    def _number(self, words: list[Any]) -> None:
        self._reverse_mapping = [self._unknown_token, *words]
        self._mapping = {word: number for number, word in enumerate(self._reverse_mapping)}


class VocabularyProcessor:
    """Maps texts to sequences of word numbers, all of the same length.

    Args:
        max_document_length: the length; longer texts are cut, and shorter ones are filled up with zeros.
        min_frequency: words that are not more frequent than this in the fitted texts get the number 0.
        vocabulary: a vocabulary to use, by default a new one.
        tokenizer_fn: maps an iterable of texts to an iterable of lists of words; by default `tokenizer`.

    Example:
        >>> processor = VocabularyProcessor(max_document_length=4)
        >>> [words.tolist() for words in processor.fit_transform(["a small text", "a very small one"])]
        [[1, 2, 3, 0], [1, 4, 2, 5]]
    """

    def __init__(
        self,
        max_document_length: int,
        min_frequency: int = 0,
        vocabulary: CategoricalVocabulary | None = None,
        tokenizer_fn: Callable[[Iterable[str]], Iterable[list[str]]] | None = None,
    ) -> None:
        self.max_document_length = max_document_length
        self.min_frequency = min_frequency
        self.vocabulary_ = vocabulary or CategoricalVocabulary()
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(self, raw_documents: Iterable[str], unused_y: Any = None) -> VocabularyProcessor:
        """Learn the vocabulary of texts, freeze it, and return self."""
        for words in self._tokenizer(raw_documents):
            for word in words:
                self.vocabulary_.add(word)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(self, raw_documents: Iterable[str], unused_y: Any = None) -> Iterator[np.ndarray]:
        """Learn the vocabulary of texts, and yield the word numbers of each text."""
        return self.fit(raw_documents).transform(raw_documents)

    def transform(self, raw_documents: Iterable[str]) -> Iterator[np.ndarray]:
        """Yield the word numbers of each text, as an int64 array."""
        for words in self._tokenizer(raw_documents):
            numbers = np.zeros(self.max_document_length, np.int64)
            for place, word in enumerate(words[: self.max_document_length]):
                numbers[place] = self.vocabulary_.get(word)
            yield numbers

    def reverse(self, documents: Iterable[Iterable[int]]) -> Iterator[str]:
        """Yield the words of each sequence of numbers, separated by spaces."""
        for numbers in documents:
            yield " ".join(self.vocabulary_.reverse(number) for number in numbers)

    def save(self, filename: str) -> None:
        """Save the vocabulary to a file."""
        Path(filename).write_bytes(pickle.dumps(self))

    @classmethod
    def restore(cls, filename: str) -> VocabularyProcessor:
        """Return the vocabulary in a file that `save` wrote, also with TensorFlow 1.

        The file is a pickle, so restoring it can run any code.
        """
        with Path(filename).open("rb") as file:
            restored: VocabularyProcessor = _Unpickler(file).load()
        return restored


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_old = module.startswith("tensorflow.contrib.learn.")
        return super().find_class(__name__ if is_old else module, name)


__getattr__ = finder_in("tf.contrib.learn.preprocessing", __all__)
